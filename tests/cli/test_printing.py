"""Names, paths and messages are printed as they are, on the stream they belong to."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.running import TASKS, Melisma, quick_job

LEARNERS = """
[[learners]]
name = "[red]pi[/red]"
rate = "4000 samples/s"
bandwidth = "8 MB/s"
[[learners]]
name = "[a]:smile:"
rate = "4000 samples/s"
bandwidth = "8 MB/s"
"""


def test_brackets_in_names_and_paths_are_kept(tmp_path: Path, melisma: Melisma) -> None:
    job, runs = quick_job(tmp_path, LEARNERS), "[b]runs[/b]"
    result = melisma("simulate", job, "--runs", runs)
    assert result.code == 0, result.err
    for text in ("[red]pi[/red] ", "[a]:smile: ", f": {runs}/quick\n"):
        assert text in result.out
    assert (
        f"Report: {runs}/quick/report.html\n" in melisma("report", f"{runs}/quick").out
    )
    (tmp_path / runs / "quick").rename(tmp_path / runs / "[i]")
    assert melisma("runs", runs).out.splitlines()[2].split()[0] == "[i]"
    assert "No runs in [c] yet.\n" in melisma("runs", _folder(tmp_path / "[c]")).out


def test_brackets_in_errors_are_kept(tmp_path: Path, melisma: Melisma) -> None:
    job = quick_job(tmp_path, "learners = []")
    assert "give at least one [[learners]] table" in melisma("simulate", job).err
    assert "melisma: [x].toml: No such file" in melisma("simulate", "[x].toml").err
    job = quick_job(tmp_path, TASKS.replace('"one"', '"[one]"'))
    result = melisma("simulate", job)
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "tasks[0]: name '[one]' is to be a folder" in result.err


def test_where_the_metric_is_the_loss_it_is_printed_once(
    tmp_path: Path, melisma: Melisma
) -> None:
    job = quick_job(tmp_path, 'samples = 200\nmetrics = ["loss"]\n')
    heads = [line.split() for line in melisma("simulate", job).out.splitlines()]
    assert ["cycle", "time", "(s)", "loss", "samples", "(epochs)"] in heads


def test_without_cycles_staleness_is_counted_in_versions(
    tmp_path: Path, melisma: Melisma
) -> None:
    job = quick_job(tmp_path, 'scheme = "async:fedasync"\n')
    heads = [line.split() for line in melisma("simulate", job).out.splitlines()]
    assert any(words[-2:] == ["samples", "(versions)"] for words in heads)


def test_no_line_of_a_pipe_is_wrapped_or_cut(tmp_path: Path, melisma: Melisma) -> None:
    name, runs = "pi" * 60, "r" * 120
    learners = LEARNERS.replace("[red]pi[/red]", name)
    result = melisma("simulate", quick_job(tmp_path, learners), "--runs", runs)
    assert f" {name}  " in result.out
    assert f"model: {runs}/quick\n" in result.out
    result = melisma("simulate", f"{runs}/{name}.toml")
    assert result.err.count("\n") == 1


@pytest.mark.slow
def test_progress_is_shown_on_a_terminal_and_taken_away(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "melisma", "simulate", quick_job(tmp_path)]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        shown = _until_closed(ours)
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, shown
    text = re.sub(r"\x1b\[[\d;]*m", "", shown)
    assert re.search(r"quick by csa ━+ 2/2 cycles .* accuracy \d", text)
    assert shown.endswith("\x1b[2K")  # its line is erased
    assert b"quick by csa" not in out


def _until_closed(terminal: int) -> str:
    text = b""
    while True:
        try:
            text += os.read(terminal, 1 << 16)
        except OSError:  # Linux: the other side is closed
            return text.decode()


def _folder(path: Path) -> str:
    path.mkdir()
    return path.name


def test_where_nobody_watches_each_cycle_is_a_line_and_paths_come_last(
    tmp_path: Path, melisma: Melisma
) -> None:
    done = melisma("simulate", quick_job(tmp_path))
    first, second = done.err.splitlines()
    assert re.fullmatch(r"cycle 1 of 2: accuracy \d+\.\d % after 0\.\d+ s", first)
    assert second.startswith("cycle 2 of 2: ")
    assert "Model: runs/quick/model.safetensors\n" in done.out
    assert "Next: melisma report runs/quick\n" in done.out


def test_lines_of_several_tasks_say_whose_they_are(
    tmp_path: Path, melisma: Melisma
) -> None:
    done = melisma("simulate", quick_job(tmp_path, TASKS))
    assert done.code == 0, done.err
    for task in ("one", "two"):
        assert f"{task}: cycle 2 of 2: accuracy " in done.err
