"""`melisma run`, `serve`, `join` and `resume`, as a user starts them."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from melisma.runtime.testbed import Testbed, missing

pytestmark = pytest.mark.slow

JOB = """
name = "tiny"
scheme = "dab"
cycles = 2
deadline = "3 s"
shard = 50
steps = 1
most = 10

[[learners]]
name = "fast"
rate = "4000 samples/s"
bandwidth = "8 MB/s"

[[learners]]
name = "slow"
rate = "800 samples/s"
bandwidth = "2 MB/s"
"""
PATIENCE_S = 120.0  # guards against hanging; nothing is measured with it


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(JOB)
    return path


def melisma(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "melisma", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def test_run_starts_learners_and_leaves_a_model(job: Path, tmp_path: Path) -> None:
    done = melisma("run", str(job), "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert len(told["cycles"]["accuracy"]) == 2
    folder = tmp_path / "runs" / "tiny"
    assert {path.name for path in folder.iterdir()} == {
        "config.toml",
        "records.jsonl",
        "checkpoint.safetensors",
        "model.safetensors",
    }
    rows = list(map(json.loads, (folder / "records.jsonl").read_text().splitlines()))
    learners = {row.get("learner") for row in rows if row["event"] == "uploaded"}
    assert learners == {"fast", "slow"}


def test_run_shows_what_happened(job: Path, tmp_path: Path) -> None:
    done = melisma("run", str(job), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "its own" in done.stdout  # what a DAB learner predicts is its own
    assert "broke" not in done.stderr


def test_serve_and_join_meet_over_tls_and_resume_goes_on(
    job: Path, tmp_path: Path
) -> None:
    server = subprocess.Popen(
        [sys.executable, "-m", "melisma", "serve", str(job), "--port", "0", "--json"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    learner = None
    try:
        assert server.stderr is not None
        address = ""
        while not address:
            line = server.stderr.readline()
            assert line, "the server ended"
            found = re.search(r"melisma join '(.*?)'", line)
            address = found[1] if found else ""
        learner = subprocess.Popen(
            [sys.executable, "-m", "melisma", "join", address, "--name", "a"],
            cwd=tmp_path,
            stderr=subprocess.DEVNULL,
        )
        out, errors = server.communicate(timeout=PATIENCE_S)
        assert server.returncode == 0, errors
        assert len(json.loads(out)["cycles"]["accuracy"]) == 2
    finally:
        for process in (server, learner):
            if process:
                process.kill()
                process.wait()
    again = melisma("resume", "runs/tiny", "--locally", "--json", cwd=tmp_path)
    assert again.returncode == 0, again.stderr  # nothing is left to do
    assert json.loads(again.stdout)["cycles"] == json.loads(out)["cycles"]


@pytest.mark.skipif(bool(missing()), reason=f"no testbed here: {missing()}")
def test_the_testbed_trains_on_emulated_devices(job: Path, tmp_path: Path) -> None:
    devices = "2070-super,jetson-nano"
    done = melisma("testbed", str(job), "--devices", devices, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    records = (tmp_path / "runs" / "tiny" / "records.jsonl").read_text()
    assert '"learner":"2070-super-1"' in records
    assert '"learner":"jetson-nano-2"' in records
    assert Testbed.sweep() == []  # nothing was left


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("resume", "nowhere"), "is no run"),
        (("join", "127.0.0.1:1", "--rate", "fast"), "'fast' is not a number"),
        (("serve", "missing.toml"), "missing.toml"),
        (("testbed", "--devices", "pie1"), "unknown device 'pie1': did you mean"),
    ],
)
def test_misuse_is_one_line(
    arguments: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    done = melisma(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
