"""The command line, run as a user runs it."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest

from melisma import __version__
from melisma.cli import main
from melisma.runs import records


class Told(NamedTuple):
    """What a command left: its exit code and what it printed."""

    code: int
    out: str
    err: str


class Melisma(Protocol):
    def __call__(self, *words: str) -> Told: ...


@pytest.fixture
def melisma(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Melisma:
    """The command line in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())

    def run(*words: str) -> Told:
        monkeypatch.setattr(sys, "argv", ["melisma", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return Told(int(ended.value.code or 0), *capsys.readouterr())

    return run


def quick_job(folder: Path, text: str = "") -> str:
    (folder / "job.toml").write_text(f"name = 'quick'\ncycles = 2\n{text}")
    return "job.toml"


def test_simulate_trains_and_says_where_it_left_the_run(
    tmp_path: Path, melisma: Melisma
) -> None:
    done = melisma("simulate", quick_job(tmp_path))
    assert done.code == 0, done.err
    assert "runs/quick" in done.out
    assert "accuracy (%)" in done.out
    names = {path.name for path in (tmp_path / "runs" / "quick").iterdir()}
    assert names == {
        "checkpoint.safetensors",
        "run.toml",
        "config.toml",
        "records.jsonl",
        "model.safetensors",
    }


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
    told = json.loads(done.out)
    assert (told["scheme"], told["seed"], done.err) == ("eta", 7, "")
    kept = records.read(tmp_path / told["folder"] / "records.jsonl")
    evaluated = records.evaluations(kept)
    assert told["cycles"]["accuracy"] == [record.accuracy for record in evaluated]


def test_compare_shows_all_schemes_and_writes_picture_and_report(
    tmp_path: Path, melisma: Melisma
) -> None:
    words = ("compare", quick_job(tmp_path), "--schemes", "csa,dab", "--seeds", "2")
    done = melisma(*words)
    assert done.code == 0, done.err
    assert "csa" in done.out
    assert "95 % intervals" in done.out
    folder = tmp_path / "runs" / "quick-compared"
    assert (folder / "accuracy.png").read_bytes().startswith(b"\x89PNG")
    page = (folder / "report.html").read_text()
    assert '"comparison":{"job":"quick"' in page
    assert "http://" not in page
    assert len(list(folder.glob("*-seed*/records.jsonl"))) == 4


@pytest.mark.slow
def test_a_scheme_that_fails_does_not_stop_the_others(
    tmp_path: Path, melisma: Melisma
) -> None:
    # 500 passes over a shard take a laptop 100·500/8000 s; one over its share fits.
    job = quick_job(tmp_path, "deadline = '0.3 s'\nsteps = 500\nshard = 100")
    words = ("compare", job, "--schemes", "eta,dab", "--seeds", "1", "--json")
    told = json.loads(melisma(*words).out)
    eta, dab = told["comparison"]["outcomes"]
    assert len(eta["histories"]) == 1
    assert dab["histories"] == []
    assert "before 0.3 s" in dab["failed"]


def test_schemes_lists_them_with_a_line_each(melisma: Melisma) -> None:
    told = json.loads(melisma("schemes", "--json").out)
    assert {"eta", "sync", "csa", "csa-strict", "csa-relaxed", "csa-sai", "dab"} <= set(
        told
    )
    assert all(told.values())
    assert "csa-strict" in melisma("schemes").out


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
        ("samples = 5", (), "5 samples are fewer than the 10 that 10 learners need"),
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


def test_a_missing_job_file_gets_one_line_and_exit_code_2(melisma: Melisma) -> None:
    done = melisma("compare", "nowhere.toml")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "nowhere.toml: No such file or directory" in done.err


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


@pytest.mark.parametrize("command", ["", "simulate", "compare", "schemes", "version"])
def test_every_command_explains_itself(melisma: Melisma, command: str) -> None:
    done = melisma(*command.split(), "--help")
    assert done.code == 0
    assert "Usage" in done.out


TASKS = """
scheme = "med"
shard = 20
deadline = "60 s"
[[task]]
name = "one"
samples = 200
[[task]]
name = "two"
samples = 100
"""


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
    told = json.loads(done.out)
    assert [o["scheme"] for o in told["comparison"]["outcomes"]] == ["med", "mmtt"]
    assert (Path(told["folder"]) / "report.html").exists()


def test_a_scheme_for_one_task_is_named_where_there_are_several(
    tmp_path: Path, melisma: Melisma
) -> None:
    job = quick_job(tmp_path, TASKS)
    done = melisma("compare", job, "--schemes", "csa,med")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "unknown scheme for several tasks 'csa'" in done.err
    done = melisma("run", job, "--scheme", "mmtt-ideal")
    assert done.code == 2
    assert "simulate it, or use 'med-probe'" in done.err
    assert not list((tmp_path / "runs").glob("*"))


FOG = """
scheme = "fog:known"
mode = "federated"
model = "FogMLP"
samples = 120
deadline = "2 s"
[fog]
period = 2
costs = "uniform"
[[learners]]
name = "d"
rate = "1000 samples/s"
bandwidth = "1 MB/s"
count = 3
"""


def test_a_fog_is_simulated_reported_and_its_devices_shown(
    tmp_path: Path, melisma: Melisma
) -> None:
    done = melisma("simulate", quick_job(tmp_path, FOG))
    assert done.code == 0, done.err
    assert "predicted" not in done.out
    assert "Devices: samples, and what they cost, over all slots" in done.out
    told = json.loads(melisma("report", "runs/quick", "--json").out)
    kept = records.read(tmp_path / "runs/quick/records.jsonl")
    rows = [row for row in kept if isinstance(row, records.Moved)]
    assert set(told["devices"]) == {"d-1", "d-2", "d-3"}
    first = sum(row.collected for row in rows if row.learner == "d-1")
    assert told["devices"]["d-1"]["collected"] == first
    assert re.search(rf"d-1\s+{first:,}\s", done.out)
    assert sum(flow[2] for flow in told["flows"]) == sum(
        sum(row.sent.values()) for row in rows
    )


def test_a_fog_is_not_compared_with_other_schemes(
    tmp_path: Path, melisma: Melisma
) -> None:
    job = quick_job(tmp_path, FOG)
    done = melisma("compare", job, "--schemes", "fog:alone,csa")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "the figures of csa are others" in done.err
    assert not list((tmp_path / "runs").glob("*"))


@pytest.mark.slow
def test_schemes_of_a_fog_are_compared_by_their_costs(
    tmp_path: Path, melisma: Melisma
) -> None:
    job = quick_job(tmp_path, FOG)
    done = melisma("compare", job, "--schemes", "fog:alone,fog:known", "--seeds", "1")
    assert done.code == 0, done.err
    assert "unit cost" in done.out
    assert "staleness" not in done.out
    names = {path.name for path in (tmp_path / "runs/quick-compared").glob("*.png")}
    assert names == {"accuracy.png", "costs.png"}


def test_schemes_names_the_pages_of_the_others(melisma: Melisma) -> None:
    told = melisma("schemes").out
    assert "docs/fog.md" in told
    assert "docs/coding.md" in told
