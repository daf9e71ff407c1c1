"""`melisma run`, `serve`, `join` and `resume`, as a user starts them."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.launch.chaos.processes import (
    MELISMA,
    Process,
    Processes,
    Row,
    free_port,
    freeze,
    learners_in,
    processes,
    rows_of,
    running_in,
    seen,
    thaw,
    until,
)
from tests.web.clients import Visitor

from melisma.fleets.protocols import NOT_THERE
from melisma.fleets.roster import HURRY_S
from melisma.launch.api import hardware_of
from melisma.runs.start import started
from melisma.testbed import Testbed, missing

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


@pytest.mark.long
def test_run_starts_learners_and_leaves_a_model(job: Path, tmp_path: Path) -> None:
    done = melisma("run", str(job), "--json", "--device", "cpu:0", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert len(result["cycles"]["metrics"]["accuracy"]) == 2
    folder = tmp_path / "runs" / "tiny"
    assert hardware_of(started(folder)).device == "cpu:0"  # `resume` goes on there
    assert {path.name for path in folder.iterdir()} == {
        "config.toml",
        "run.toml",
        "records.jsonl",
        "checkpoint.safetensors",
        "checkpoint.previous.safetensors",
        "model.safetensors",
        "report.html",
        "learners.csv",
    }
    rows = list(map(json.loads, (folder / "records.jsonl").read_text().splitlines()))
    learners = {row.get("learner") for row in rows if row["event"] == "uploaded"}
    assert learners == {"fast", "slow"}


def test_run_shows_what_happened(job: Path, tmp_path: Path) -> None:
    done = melisma("run", str(job), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "its own" in done.stdout  # what a DAB learner predicts is its own
    assert "broke" not in done.stderr


TASKS = """
name = "tasks"
scheme = "med-probe"
cycles = 2
deadline = "20 s"
shard = 50

[[tasks]]
name = "one"
samples = 500
steps = 1

[[tasks]]
name = "two"
samples = 200
steps = 2

[[learners]]
name = "calm"
rate = "2000 samples/s"
bandwidth = "8 MB/s"

[[learners]]
name = "moody"
heat = 1
states = [
    { rate = "1500 samples/s", bandwidth = "8 MB/s" },
    { rate = "800 samples/s", bandwidth = "8 MB/s", owner = "computing" },
    { rate = "1500 samples/s", bandwidth = "8 MB/s", owner = "downloading" },
]
"""


@pytest.mark.long
def test_several_tasks_run_and_are_reported(tmp_path: Path) -> None:
    (tmp_path / "tasks.toml").write_text(TASKS)
    done = melisma("run", "tasks.toml", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert set(result["tasks"]) == {"one", "two"}
    assert result["tasks"]["one"]["service"]["fulfilment"] > 0
    folder = tmp_path / "runs" / "tasks"
    for name in ("one", "two"):
        assert (folder / name / "model.safetensors").exists()
        assert (folder / name / "report.html").exists()
    assert (folder / "report.html").exists()
    again = melisma("resume", "runs/tasks", "--locally", "--json", cwd=tmp_path)
    assert again.returncode == 0, again.stderr  # there is nothing left to do
    assert json.loads(again.stdout)["tasks"] == result["tasks"]


def test_serve_and_join_meet_over_tls_and_resume_goes_on(
    job: Path, tmp_path: Path
) -> None:
    home = os.environ | {"HOME": str(tmp_path)}  # where the certificate goes
    words = ("serve", str(job), "--host", "0.0.0.0", "--port", "0", "--json")
    server = subprocess.Popen(
        [sys.executable, "-m", "melisma", *words],
        cwd=tmp_path,
        env=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    learner = None
    try:
        assert server.stdout is not None
        first = server.stdout.readline()  # is there before anybody has joined
        assert first, server.stderr and server.stderr.read()
        links = json.loads(first)
        assert links.keys() == {"join", "dashboard", "phones"}
        assert links["join"].startswith("melisma://")
        assert links["dashboard"].startswith("https://")
        assert Visitor(links["dashboard"]).get("/api/runs")
        learner = subprocess.Popen(
            [sys.executable, "-m", "melisma", "join", "--name", "a"],
            cwd=tmp_path,
            env=os.environ | {"MELISMA_JOIN": links["join"]},
            stderr=subprocess.DEVNULL,
        )
        rest, errors = server.communicate(timeout=PATIENCE_S)
        assert (server.returncode, errors) == (0, "")
    finally:
        for process in (server, learner):
            if process:
                process.kill()
                process.wait()
    (last,) = rest.splitlines()
    result = json.loads(last)
    assert len(result["cycles"]["metrics"]["accuracy"]) == 2
    assert (result["folder"], result["state"]) == ("runs/tiny", "finished")
    again = melisma("resume", "runs/tiny", "--locally", "--json", cwd=tmp_path)
    assert (again.returncode, again.stderr) == (0, "")  # nothing is left to do
    assert json.loads(again.stdout)["cycles"] == result["cycles"]


def test_serve_tells_people_how_to_join_on_standard_error(
    job: Path, start: Processes, tmp_path: Path
) -> None:
    server = start(*MELISMA, "serve", str(job), "--port", "0", pipes=True)
    assert server.stderr is not None
    dashboard, join = server.stderr.readline(), server.stderr.readline()
    assert re.fullmatch(r"Dashboard: http://127\.0\.0\.1:\d+/#token=\S+\n", dashboard)
    assert re.fullmatch(r"Join with: melisma join '\S+'\n", join)  # no token here


def test_serve_says_who_has_come_and_how_many_are_missing(
    job: Path, start: Processes, tmp_path: Path
) -> None:
    words = ("serve", str(job), "--port", "0", "--learners", "2")
    server = start(*MELISMA, *words)

    def says(pattern: str) -> re.Match[str]:
        until(lambda: re.search(pattern, start.said(server)), pattern, alive=server)
        found = re.search(pattern, start.said(server))
        assert found
        return found

    link = says(r"Dashboard: (\S+)")[1]
    join = says(r"Join with: melisma join '(\S+)'")[1]
    says(r"Waiting for 2 learners to join\.\n")
    start(*MELISMA, "join", join, "--name", "a", "--quiet", "--until-eof")
    says(r"a has joined\. 1 of 2 learners: a prepares; waiting for one more\n")
    says(r"a benchmarks itself for tiny\na is ready\n")
    status = Visitor(link).get("/api/status")
    assert (status["waiting"]["needed"], status["waiting"]["missing"]) == (2, [])
    assert status["waiting"]["learners"]["a"]["stage"] == "ready"
    start(*MELISMA, "join", join, "--name", "b", "--quiet", "--until-eof")
    says(r"cycle 2 of 2: accuracy")
    assert server.wait(PATIENCE_S) == 0
    assert "\x1b" not in start.said(server)


def test_a_run_stopped_from_the_dashboard_says_so_in_its_json(
    job: Path, start: Processes, tmp_path: Path
) -> None:
    job.write_text(JOB.replace("cycles = 2", "cycles = 1000"))
    words = ("serve", str(job), "--port", "0", "--json")
    server = start(*MELISMA, *words, pipes=True)
    assert server.stdout is not None
    links = json.loads(server.stdout.readline())
    start(*MELISMA, "join", links["join"], "--name", "a", "--quiet", "--until-eof")
    folder = tmp_path / "runs" / "tiny"
    until(lambda: seen(rows_of(folder), "evaluated"), "a cycle", alive=server)
    assert Visitor(links["dashboard"]).steer("stop")[0] == 200
    rest, errors = server.communicate(timeout=PATIENCE_S)
    assert (server.returncode, errors) == (0, "")
    result = json.loads(rest)
    assert result["state"] == "cut short"
    assert 0 < len(result["cycles"]["metrics"]["accuracy"]) < 1000


@pytest.mark.skipif(bool(missing()), reason=f"no testbed here: {missing()}")
def test_the_testbed_trains_on_emulated_devices(job: Path, tmp_path: Path) -> None:
    devices = "2070-super,jetson-nano"
    done = melisma("testbed", str(job), "--devices", devices, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    records = (tmp_path / "runs" / "tiny" / "records.jsonl").read_text()
    assert '"learner":"2070-super-1"' in records
    assert '"learner":"jetson-nano-2"' in records
    assert Testbed.sweep() == []  # nothing was left


# Killed, frozen, interrupted


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Processes]:
    with processes(tmp_path) as start:
        yield start


#: Steady learners tell the same speed always: who is given what never depends on the
#: machine, and is done long before the deadline.
STEADY = """
name = "steady"
scheme = "eta"
cycles = {cycles}
deadline = "{deadline}"
samples = {samples}
shard = 50
"""


class Steady:
    """`melisma serve` with two steady learners, each a process."""

    def __init__(self, start: Processes, root: str, **job: object) -> None:
        self._start, self._root = start, root
        self.run, self.port = start.folder / root / "steady", free_port()
        (start.folder / f"{root}.toml").write_text(STEADY.format(**job))
        words = (f"{root}.toml", "--learners", "2", "--runs", root)
        self.server = self.serve("serve", *words)

    def serve(self, *words: str) -> Process:
        return self._start(*MELISMA, *words, "--port", str(self.port))

    def join(self, name: str, *words: str, **favours: object) -> Process:
        return self._start.learner(self.port, name, *words, steady=True, **favours)

    def joined(self, **b: object) -> Process:
        """Both join, and ``b`` does these favours; return it."""
        # Slow enough that its cycles alone do not pass before another has started.
        self.join("a", "--rate", "400 samples/s")
        return self.join("b", **b)

    def wait_for(self, what: str, *, after: int = 0, **facts: object) -> Row:
        """Wait until that is recorded, of a cycle after ``after``; return the first."""

        def happened() -> list[Row]:
            rows = [row for row in rows_of(self.run) if row["cycle"] > after]
            return seen(rows, what, **facts)

        until(happened, f"{what} {facts}", alive=self.server)
        return happened()[0]

    def wait_to_cycle(self, cycle: int) -> None:
        self.wait_for("evaluated", cycle=cycle)


def without_times(rows: list[Row]) -> list[Row]:
    """What does not depend on when it happened, in the order of cycles."""
    times = {"time_s", "predicted_s", "cycle_s", "truancy", "utilisation"}
    timeless = [{k: v for k, v in row.items() if k not in times} for row in rows]

    def place(row: Row) -> tuple[Any, ...]:
        return row["cycle"], row["event"], row.get("learner", "")

    return sorted(timeless, key=place)


def test_a_killed_orchestrator_goes_on_as_if_it_had_not_been(
    start: Processes, tmp_path: Path
) -> None:
    job = {"cycles": 4, "deadline": "30 s", "samples": 600}
    whole = Steady(start, "whole", **job)
    for name in ("a", "b"):
        whole.join(name)
    assert whole.server.wait(PATIENCE_S) == 0, start.said(whole.server)

    cut, held = Steady(start, "cut", **job), tmp_path / "held"
    cut.join("a")
    cut.join("b", hold=[3, str(held)])
    cut.wait_for("uploaded", cycle=3, learner="a")
    until(held.exists, "b is done, and has not said so")
    cut.server.kill()
    cut.server.wait()
    held.unlink()
    before = [row for row in rows_of(cut.run) if row["cycle"] < 3]
    cut.server = cut.serve("resume", "cut/steady")
    assert cut.server.wait(PATIENCE_S) == 0, start.said(cut.server)

    rows = rows_of(cut.run)
    assert rows[: len(before)] == before
    assert without_times(rows) == without_times(rows_of(whole.run))
    model = "model.safetensors"
    assert (cut.run / model).read_bytes() == (whole.run / model).read_bytes()


#: Ends when the test has seen what it waits for.
ENDLESS = {"cycles": 100_000, "deadline": "4 s", "samples": 100}


def test_a_killed_learner_costs_its_share_and_can_come_back(
    start: Processes, tmp_path: Path
) -> None:
    run, held = Steady(start, "runs", **ENDLESS), tmp_path / "held"
    b = run.joined(hold=[2, str(held)])
    until(held.exists, "b in mid-cycle", alive=run.server)
    b.kill()
    run.wait_to_cycle(4)  # nobody has to come back for that
    run.join("b")
    back = run.wait_for("joined", learner="b", after=2)
    run.wait_for("uploaded", learner="b", after=2)
    _assert_only_missed(rows_of(run.run), back["cycle"])


def test_a_frozen_learner_keeps_nobody_waiting_twice(
    start: Processes, tmp_path: Path
) -> None:
    run, held = Steady(start, "runs", **ENDLESS), tmp_path / "held"
    b = run.joined(hold=[2, str(held)])
    until(held.exists, "b in mid-cycle", alive=run.server)
    freeze(b)
    held.unlink()
    run.wait_to_cycle(7)
    thaw(b)
    back = run.wait_for("joined", learner="b", after=2)
    run.wait_for("uploaded", learner="b", after=2)
    rows = rows_of(run.run)
    _assert_only_missed(rows, back["cycle"])
    # From the end of a cycle to the start of the next, while it was frozen.
    over_s = {row["cycle"]: row["time_s"] for row in seen(rows, "evaluated")}
    begun_s = {row["cycle"]: row["time_s"] for row in seen(rows, "allocated")}
    waits_s = [begun_s[cycle + 1] - over_s[cycle] for cycle in range(2, 7)]
    assert sum(wait_s >= HURRY_S for wait_s in waits_s) == 1


def _assert_only_missed(rows: list[Row], back: int) -> None:
    """``b`` was cut off in cycle 2 and is back in cycle ``back``; ``a`` never was."""
    (dropped,) = seen(rows, "dropped", cycle=2)
    assert (dropped["learner"], dropped["reason"]) == ("b", NOT_THERE)
    assert not dropped["offence"]
    merged = {row["cycle"]: row["learners"] for row in seen(rows, "aggregated")}
    assert [merged[cycle] for cycle in range(1, back)] == [2] + [1] * (back - 2)
    (left,) = seen(rows, "left", learner="b")
    assert left["cycle"] == 3
    away = [row for row in rows if 3 <= row["cycle"] < back]
    assert {row["event"] for row in away if row.get("learner") == "b"} == {"left"}
    assert not seen(rows, "left", learner="a")


@pytest.fixture
def running(job: Path, start: Processes, tmp_path: Path) -> Process:
    """`melisma run` in the middle of its first cycle."""
    running = start(*MELISMA, "run", str(job), pipes=True)
    folder = tmp_path / "runs" / "tiny"
    until(lambda: seen(rows_of(folder), "allocated"), "a cycle", alive=running)
    # Itself, its learners and the process that they are forked from.
    assert len(running_in(tmp_path)) == (4 if sys.platform == "linux" else 3)
    return running


def test_the_learners_of_a_killed_run_end_with_it(
    running: Process, tmp_path: Path
) -> None:
    running.kill()
    running.communicate(timeout=PATIENCE_S)  # until the last who could write is gone
    until(lambda: not running_in(tmp_path), "the end of the learners")
    assert running.returncode == -signal.SIGKILL


def test_a_run_that_is_interrupted_can_be_resumed(
    running: Process, tmp_path: Path
) -> None:
    running.send_signal(signal.SIGINT)
    out, errors = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 130
    assert (out, "Traceback" in errors) == ("", False)
    assert running_in(tmp_path) == []
    again = melisma("resume", "runs/tiny", "--locally", "--json", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert len(json.loads(again.stdout)["cycles"]["metrics"]["accuracy"]) == 2


#: Commands that are stopped: words, what they say before, and what they say then.
STOPPED = {
    "simulate": (("simulate", "long.toml"), r"cycle 1 of", "melisma resume runs/long"),
    "run": (("run", "long.toml"), r"has joined", "melisma resume runs/long"),
    "serve": (
        ("serve", "long.toml", "--port", "0", "--learners", "3"),
        r"Waiting for 3 learners",
        "melisma resume runs/long --learners 3",
    ),
    "dialling": (("join", "127.0.0.1:9", "--name", "a"), "", "Stopped."),
}


@pytest.mark.parametrize("which", STOPPED)
def test_ctrl_c_ends_a_command_soon_and_it_says_what_is_kept(
    start: Processes, tmp_path: Path, which: str
) -> None:
    (tmp_path / "long.toml").write_text(
        JOB.replace("tiny", "long").replace("cycles = 2", "cycles = 1000")
    )
    words, before, then = STOPPED[which]
    process = start(*MELISMA, *words)
    if before:
        until(lambda: re.search(before, start.said(process)), before, alive=process)
    else:  # it says nothing until it gives up
        until(lambda: "torch" in mapped(process.pid), "torch", alive=process)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 130
    said = start.said(process)
    assert then in said
    assert "Traceback" not in said
    assert running_in(tmp_path) == []


def mapped(pid: int) -> str:
    """The files that a process has in its memory, where there is /proc."""
    maps = Path(f"/proc/{pid}/maps")
    return maps.read_text() if maps.exists() else "torch"


def test_a_learner_that_is_stopped_while_it_benchmarks_leaves(
    job: Path, start: Processes, tmp_path: Path
) -> None:
    server = start(*MELISMA, "serve", str(job), "--port", "0")
    pattern = r"Join with: melisma join '(\S+)'"
    until(lambda: re.search(pattern, start.said(server)), pattern, alive=server)
    found = re.search(pattern, start.said(server))
    assert found
    slow = ("--rate", "1 samples/s", "--fresh", "--name", "a")
    learner = start(*MELISMA, "join", found[1], *slow)
    until(lambda: "a benchmarks itself" in start.said(server), "a", alive=server)
    learner.send_signal(signal.SIGINT)
    assert learner.wait(PATIENCE_S) == 0
    assert "has left" in start.said(learner)
    assert "Traceback" not in start.said(learner)


def test_a_run_goes_on_without_a_learner_that_has_ended(
    start: Processes, tmp_path: Path
) -> None:
    slow = JOB.replace('"800 samples/s"', '"2 samples/s"')
    (tmp_path / "tiny.toml").write_text(slow)
    run = start(*MELISMA, "run", "tiny.toml")
    until(lambda: "slow benchmarks itself" in start.said(run), "a benchmark", alive=run)
    os.kill(learners_in(tmp_path)["slow"], signal.SIGKILL)
    assert run.wait(PATIENCE_S) == 0
    said = start.said(run)
    assert "slow does not take part: its process ended with exit code -9\n" in said
    assert "cycle 2 of 2: accuracy" in said
    assert said.count("does not take part: its process") == 1
    assert "did not reconnect" not in said  # nobody waited for it


def test_a_run_whose_learners_have_all_ended_says_so(
    start: Processes, tmp_path: Path
) -> None:
    slow = JOB.replace('"800 samples/s"', '"2 samples/s"')
    slow = slow.replace('"4000 samples/s"', '"2 samples/s"')
    (tmp_path / "tiny.toml").write_text(slow)
    run = start(*MELISMA, "run", "tiny.toml")
    for name in ("fast", "slow"):
        said = f"{name} benchmarks itself"
        until(lambda said=said: said in start.said(run), said, alive=run)  # type: ignore[misc]
    for name in ("fast", "slow"):
        os.kill(learners_in(tmp_path)[name], signal.SIGKILL)
    assert run.wait(PATIENCE_S) == 2
    assert "all learners have ended by themselves" in start.said(run)
