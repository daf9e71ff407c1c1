"""The command line, run as a user runs it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.running import BATTERIES, FOG, TASKS, Melisma, quick_job

from melisma import __version__
from melisma.runs import records


def test_simulate_trains_and_says_where_it_left_the_run(
    tmp_path: Path, melisma: Melisma
) -> None:
    done = melisma("simulate", quick_job(tmp_path))
    assert done.code == 0, done.err
    assert "runs/quick" in done.out
    assert "accuracy (%)" in done.out
    names = {path.name for path in (tmp_path / "runs" / "quick").iterdir()}
    assert {"config.toml", "records.jsonl", "model.safetensors"} <= names


def test_simulate_says_who_sits_out_and_why(tmp_path: Path, melisma: Melisma) -> None:
    done = melisma("simulate", quick_job(tmp_path, "learners_at_most = 9"))
    assert "Sits out: others are faster (pi-" in done.out


def test_a_promise_is_held_against_what_was_kept(
    tmp_path: Path, melisma: Melisma
) -> None:
    done = melisma("simulate", quick_job(tmp_path, "late_at_most = 0.1"))
    assert "at most 10 % of each one's were promised." in done.out
    assert "reserve" in done.out


def test_simulate_as_json_prints_one_object(tmp_path: Path, melisma: Melisma) -> None:
    words = (
        "simulate",
        quick_job(tmp_path),
        "--json",
        "--scheme",
        "eta",
        "--seed",
        "7",
    )
    done = melisma(*words)
    shown = json.loads(done.out)
    assert (shown["scheme"], shown["seed"], done.err) == ("eta", 7, "")
    kept = records.read(tmp_path / shown["folder"] / "records.jsonl")
    evaluated = records.evaluations(kept)
    assert shown["cycles"]["metrics"]["accuracy"] == [
        record.metrics["accuracy"] for record in evaluated
    ]


def test_a_job_that_was_edited_is_resumed_on_purpose_alone(
    tmp_path: Path, melisma: Melisma
) -> None:
    melisma("simulate", quick_job(tmp_path))
    config = tmp_path / "runs" / "quick" / "config.toml"
    config.write_text(config.read_text().replace("cycles = 2", "cycles = 3"))
    done = melisma("resume", "runs/quick")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "`melisma resume runs/quick --edited`" in done.err
    again = melisma("resume", "runs/quick", "--edited", "--json")
    assert (again.code, again.err) == (0, "")
    assert len(json.loads(again.out)["cycles"]["metrics"]["accuracy"]) == 3
    assert melisma("resume", "runs/quick", "--json").code == 0


def test_a_damaged_run_is_refused_in_one_line(tmp_path: Path, melisma: Melisma) -> None:
    melisma("simulate", quick_job(tmp_path))
    checkpoint = tmp_path / "runs" / "quick" / "checkpoint.safetensors"
    content = bytearray(checkpoint.read_bytes())
    content[-1] ^= 1
    checkpoint.write_bytes(content)
    checkpoint.with_stem("checkpoint.previous").unlink(missing_ok=True)
    done = melisma("resume", "runs/quick")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "checkpoint.safetensors is damaged" in done.err


def test_version(melisma: Melisma) -> None:
    assert melisma("version").out == f"melisma {__version__}\n"


def test_a_real_process_ends_with_code_2_and_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "melisma", "simulate", "nowhere.toml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("melisma: nowhere.toml: No such file")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("job", "words", "message"),
    [
        ("dedline = 3", (), "unknown key 'dedline': did you mean 'deadline'?"),
        ("deadline = '3 parsec'", (), "unknown unit 'parsec'"),
        ("deadline = 0", (), "deadline of 0.0 s: give a finite time above 0 s"),
        ("learners = []", (), "no learners"),
        ("", ("--scheme", "cas"), "unknown scheme 'cas': did you mean 'csa'?"),
        (
            "samples = 5\nleast = 6",
            (),
            "5 samples are fewer than the 60 that 10 learners",
        ),
        ("deadline = '1 ms'", (), "to exchange the model alone, past the deadline"),
        ("data.name = 'mnits'", (), "unknown data set 'mnits': did you mean 'mnist'?"),
        (
            "[[learners]]\nname = 'a'\nrate = nan\nbandwidth = 1",
            (),
            "samples_per_s of learner 0 is nan",
        ),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(
    tmp_path: Path, melisma: Melisma, job: str, words: tuple[str, ...], message: str
) -> None:
    done = melisma("simulate", quick_job(tmp_path, job), *words)
    assert done.code == 2
    assert message in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "runs" / "quick").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "simulat",
            "No such command 'simulat'. Did you mean 'simulate'? See `melisma ",
        ),
        ("token ad", "No such command 'ad'. Did you mean 'add'? See `melisma token -"),
        ("serve", "Missing argument 'JOB.toml'. See `melisma serve --help`."),
        ("join --trust", "Option '--trust' requires an argument. See `melisma --he"),
        (
            "compare --seeds few",
            "Invalid value for '--seeds': ",
        ),
        ("compare --engine [x]", "'[x]' is not one of 'processes', 'ray'. See `melis"),
        ("resume a b", "Got unexpected extra argument"),
        (
            "simulate --runs job.toml",
            "'job.toml' is a file. See `melisma simul",
        ),
        ("resume nowhere", "is no run"),
        ("join 127.0.0.1:1 --rate fast", "'fast' is not a number"),
        ("serve missing.toml", "missing.toml"),
        ("testbed --devices pie1", "unknown device 'pie1': did you mean"),
    ],
)
def test_a_wrong_word_gets_one_line_and_exit_code_2(
    tmp_path: Path, melisma: Melisma, words: str, message: str
) -> None:
    quick_job(tmp_path)
    done = melisma(*words.split())
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith("melisma: ")
    assert message in done.err


@pytest.mark.parametrize("group", ["", "token", "papers"])
def test_a_group_alone_shows_its_help(melisma: Melisma, group: str) -> None:
    done = melisma(*group.split())
    assert (done.code, done.err) == (2, "")
    assert f"Usage: melisma {group}".strip() in done.out


def test_a_users_own_model_is_found_in_the_current_folder(
    tmp_path: Path, melisma: Melisma
) -> None:
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "def model():\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))\n"
    )
    job = quick_job(tmp_path, "model = 'mine:model'")
    done = melisma("simulate", job, "--json")
    assert done.code == 0, done.err


@pytest.mark.slow
def test_several_tasks_are_simulated_reported_and_compared(
    tmp_path: Path, melisma: Melisma
) -> None:
    job = quick_job(tmp_path, TASKS)
    done = melisma("simulate", job, "--json")
    assert done.code == 0, done.err
    assert set(json.loads(done.out)["tasks"]) == {"one", "two"}
    done = melisma("report", "runs/quick")
    assert done.code == 0, done.err
    assert "cycles in time (%)" in done.out
    assert (tmp_path / "runs/quick/report.html").exists()
    done = melisma("compare", job, "--schemes", "med,mmtt", "--seeds", "2", "--json")
    assert done.code == 0, done.err
    shown = json.loads(done.out)
    assert [o["scheme"] for o in shown["comparison"]["outcomes"]] == ["med", "mmtt"]
    assert (Path(shown["folder"]) / "report.html").exists()


def test_batteries_are_shown_and_reported(tmp_path: Path, melisma: Melisma) -> None:
    done = melisma("simulate", quick_job(tmp_path, BATTERIES))
    assert done.code == 0, done.err
    assert "Batteries: over all cycles" in done.out
    shown = json.loads(melisma("report", "runs/quick", "--json").out)["batteries"]
    kept = records.read(tmp_path / "runs/quick/records.jsonl")
    rows = [row for row in kept if isinstance(row, records.Powered)]
    assert set(shown) == {row.learner for row in rows}
    first = rows[0].learner
    spent_j = sum(row.computing_j for row in rows if row.learner == first)
    assert shown[first]["computing_j"] == pytest.approx(spent_j)
    assert re.search(rf"{first}\s.*\s{spent_j:,.1f}\s", done.out)


def test_a_fog_is_simulated_reported_and_its_devices_shown(
    tmp_path: Path, melisma: Melisma
) -> None:
    done = melisma("simulate", quick_job(tmp_path, FOG))
    assert done.code == 0, done.err
    assert "predicted" not in done.out
    assert "Devices: samples, and what they cost, over all slots" in done.out
    shown = json.loads(melisma("report", "runs/quick", "--json").out)
    kept = records.read(tmp_path / "runs/quick/records.jsonl")
    rows = [row for row in kept if isinstance(row, records.Moved)]
    assert set(shown["devices"]) == {"d-1", "d-2", "d-3"}
    first = sum(row.collected for row in rows if row.learner == "d-1")
    assert shown["devices"]["d-1"]["collected"] == first
    assert re.search(rf"d-1\s+{first:,}\s", done.out)
    assert sum(flow[2] for flow in shown["flows"]) == sum(
        sum(row.sent.values()) for row in rows
    )
