"""A benchmark that is kept spares the next run its own, as long as it holds."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.learner.test_source import KEYS, SPEC, source

from melisma.fleets.messages import TaskSpec
from melisma.learner import kept, measuring
from melisma.learner.background import BackgroundLoad, State
from melisma.learner.device import Device, WarmTask
from melisma.learner.kept import EXPIRES_S, Benchmarks, key_of
from melisma.learner.learner import Learner
from melisma.learner.source import Caller
from melisma.learning.benchmark import Line

#: One size, once: what is short has no latency that could hide a rate.
ONCE = msgspec.structs.replace(SPEC, sizes=1, repeats=1)
#: Emulated: a benchmark of it takes as long on any machine that is not very busy.
SLOW = State(samples_per_s=2000.0, bytes_per_s=1e6)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tasks of all whole benchmarks."""
    tasks: list[str] = []
    whole = measuring.measure

    def counted(device: Device, task: WarmTask, *rest: Any) -> None:
        tasks.append(task.spec.task)
        whole(device, task, *rest)

    monkeypatch.setattr(measuring, "measure", counted)
    return tasks


def join(
    folder: Path,
    *,
    spec: TaskSpec = ONCE,
    states: tuple[State, ...] = (SLOW,),
    now_s: Callable[[], float] = lambda: 1000.0,
    about: str = "",
) -> tuple[Line | None, Line | None]:
    """Join a run and benchmark; return the lines of link and compute."""
    benchmarks = Benchmarks(folder, about, now_s)
    load = BackgroundLoad(states)
    learner = Learner(name="a", background=load, benchmarks=benchmarks)
    learner.prepare(spec)
    learner.measure(spec.task, KEYS, Caller(source()))
    speed = learner._tasks[spec.task].speed
    assert speed.sample_bytes > 0
    return speed.link, speed.compute


def only(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_a_benchmark_is_taken_over_by_the_next_run(
    tmp_path: Path, measured: list[str]
) -> None:
    first = join(tmp_path)
    other = msgspec.structs.replace(ONCE, task="t2", seed=7)  # whatever it is called
    assert join(tmp_path, spec=other) == first
    assert measured == ["t"]


def test_without_a_folder_each_run_measures(measured: list[str]) -> None:
    for _ in range(2):
        learner = Learner(name="a")
        learner.prepare(SPEC)
        learner.measure("t", KEYS, Caller(source()))
    assert measured == ["t", "t"]


@pytest.mark.parametrize(
    "changes",
    [
        {"spec": msgspec.structs.replace(ONCE, repeats=2)},
        {"states": (State(samples_per_s=3000.0, bytes_per_s=1e6),)},
        {"about": "another orchestrator"},
        {"now_s": lambda: 1001.0 + EXPIRES_S},
        {"now_s": lambda: 999.0},  # a clock that was set back
    ],
)
def test_what_is_otherwise_is_measured_anew(
    tmp_path: Path, measured: list[str], changes: dict[str, Any]
) -> None:
    join(tmp_path)
    join(tmp_path, **changes)
    assert len(measured) == 2


def test_states_are_always_measured(tmp_path: Path, measured: list[str]) -> None:
    two = (State(probability=0.5), State(probability=0.5))
    for _ in range(2):
        join(tmp_path, states=two)
    assert len(measured) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.2, 5.0])
@pytest.mark.parametrize("which", ["link", "compute"])
def test_a_benchmark_that_does_not_hold_is_made_anew(
    tmp_path: Path, measured: list[str], which: str, factor: float
) -> None:
    # Long enough to be told from a moment.
    slow = (State(samples_per_s=800.0, bytes_per_s=6e5),)
    join(tmp_path, states=slow)
    path = only(tmp_path)
    lines = msgspec.json.decode(path.read_bytes())
    lines[which][1] *= factor
    path.write_bytes(msgspec.json.encode(lines))
    measured.clear()
    join(tmp_path, states=slow)
    assert measured == ["t"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"at": 1000, "link": [0, -1, 0], "compute": [0, 1, 0]}',
        b'{"at": 1000, "link": [0, 1, 0], "compute": "fast"}',
        b"\x00" * 100,
    ],
    ids=range(6),
)
def test_a_damaged_file_is_ignored_with_a_line_and_written_anew(
    tmp_path: Path,
    measured: list[str],
    caplog: pytest.LogCaptureFixture,
    content: bytes,
) -> None:
    join(tmp_path)
    path = only(tmp_path)
    path.write_bytes(content)
    join(tmp_path)
    assert len(measured) == 2
    (said,) = caplog.messages
    assert str(path) in said
    join(tmp_path)
    assert len(measured) == 2  # the new file is of use


def test_where_nothing_can_be_written_a_line_says_so(
    tmp_path: Path, measured: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    join(tmp_path / "file" / "folder")
    assert measured == ["t"]
    assert "is not kept" in caplog.text


def test_only_so_many_files_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "FILES", 3)
    for n in range(5):
        path = tmp_path / f"{n}.json"
        path.write_text("")
        os.utime(path, (n, n))
    join(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert len(names) == 3
    assert {"3.json", "4.json"} < names


def test_the_key_is_of_device_threads_and_precision() -> None:
    device = Learner(name="a")._device
    before = key_of(device, SPEC, "")
    assert key_of(Learner(name="b")._device, SPEC, "") == before
    device.precision = type(device.precision)("bf16")
    assert key_of(device, SPEC, "") != before
