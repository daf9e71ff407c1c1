"""`melisma compare` and `melisma papers run` as a user spreads, stops and resumes."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from melisma import cli
from melisma.comparison.outcomes import compare
from melisma.errors import ConfigError
from melisma.jobs.files import load

MELISMA = (sys.executable, "-m", "melisma")


@pytest.mark.parametrize("command", ["compare", "papers run csa"])
@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--address 10.0.0.7:6379", "of a Ray cluster: add --engine ray"),
        (
            "--engine ray --address 10.0.0.7:6379 --processes 2",
            "--processes 2: the cluster at 10.0.0.7:6379 has CPUs of its own",
        ),
    ],
)
def test_flags_that_do_not_agree_are_refused(
    in_tmp: Path, command: str, flags: str, says: str
) -> None:
    found = CliRunner().invoke(cli.app, [*command.split(), *flags.split()])
    assert isinstance(found.exception, ConfigError)
    assert says in str(found.exception)
    assert not list(in_tmp.rglob("*.*"))


def test_a_folder_without_a_comparison_is_not_resumed(in_tmp: Path) -> None:
    found = CliRunner().invoke(cli.app, ["compare", "--resume", str(in_tmp)])
    assert isinstance(found.exception, ConfigError)
    assert str(found.exception).endswith("no comparison was begun there")


@pytest.mark.parametrize("command", ["compare", "papers run"])
def test_help_tells_of_engines(command: str) -> None:
    result = CliRunner().invoke(
        cli.app, [*command.split(), "--help"], env={"COLUMNS": "99"}
    )
    for flag in ("--engine", "[processes|ray]", "--address", "--processes"):
        assert flag in result.stdout


def test_ray_that_is_not_installed_is_said(
    in_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ray", "melisma.ray.sweeps", "melisma.ray.cluster"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    found = CliRunner().invoke(cli.app, ["compare", "--engine", "ray"])
    assert isinstance(found.exception, ConfigError)
    assert "pip install 'melisma[ray]'" in str(found.exception)


def stopped(words: list[str], folder: Path, begun: Callable[[], bool]) -> list[str]:
    """Run a command, press Ctrl-C once ``begun``; return the command to resume it."""
    process = subprocess.Popen(
        [*MELISMA, *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        while not begun():
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert out == ""
    *others, last = err.splitlines()
    # Where a data set is not to be had; how far it is.
    known = r".* in place of .*|quick: 4 runs: \d+ of 12 cycles"
    assert all(re.fullmatch(known, line) for line in others), err
    found = re.fullmatch(
        "Stopped; what has ended is kept. Go on with: melisma (.*)", last
    )
    assert found, err
    return shlex.split(found[1])


@pytest.mark.long
@pytest.mark.slow
def test_a_comparison_that_is_stopped_goes_on_by_the_command_that_it_tells(
    tmp_path: Path,
) -> None:
    (tmp_path / "job.toml").write_text("name = 'quick'\ncycles = 3")
    words = ["compare", "job.toml", "--schemes", "csa,eta", "--seeds", "2"]
    words += ["--processes", "1"]
    folder = tmp_path / "runs/quick-compared"

    def kept() -> dict[Path, int]:
        """Runs that have ended, and when."""
        results = folder.glob("*-seed*/result.msgpack")
        return {path: path.stat().st_mtime_ns for path in results}

    again = stopped(words, tmp_path, lambda: bool(kept()))
    assert again == [*words, "--resume", "runs/quick-compared"]
    before = kept()
    assert 0 < len(before) < 4
    subprocess.run([*MELISMA, *again], cwd=tmp_path, check=True, capture_output=True)
    assert before.items() <= kept().items()
    (tmp_path / "whole").mkdir()
    whole = compare(load(tmp_path / "job.toml"), ["csa", "eta"], 2, tmp_path / "whole")
    assert (folder / "comparison.json").read_bytes() == msgspec.json.encode(whole)


@pytest.mark.slow
def test_a_paper_that_is_stopped_goes_on_by_the_same_command(tmp_path: Path) -> None:
    words = ["papers", "run", "csa", "--figure", "3", "--processes", "1"]
    again = stopped(
        *(
            words,
            tmp_path,
            lambda: any(tmp_path.glob("runs/papers/csa/*.parts/*.msgpack")),
        )
    )
    assert again == words
    assert any(tmp_path.glob("runs/papers/csa/*.parts/*.msgpack"))
    assert not any(tmp_path.glob("runs/papers/csa/*.npz"))


@pytest.fixture
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path
