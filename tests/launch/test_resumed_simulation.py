"""A simulated run that was cut short goes on to the same records, byte for byte."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.jobs.small import SMALL

from melisma.algorithms.control import Control
from melisma.coding import choice
from melisma.errors import DataError
from melisma.jobs.files import load
from melisma.jobs.schema import Job, WorkloadTable
from melisma.launch.api import resume
from melisma.launch.simulate import build
from melisma.runs import store
from melisma.runs.records import ACCURACY, Evaluated, Metrics, Record, read
from melisma.runs.store import CHECKPOINT, MODEL, RECORDS, RunWriter

EXAMPLES = Path(__file__).parents[2] / "examples"


#: What makes the largest examples small: they are to go on, not to learn.
LESS: dict[str, dict[str, Any]] = {
    "demo": SMALL,
    "cell": {"samples": 400, "workload": WorkloadTable(cycles=3.2e7)},
    "transmission": {"samples": 400},
}


def job(example: str, **changes: object) -> Job:
    loaded = load(EXAMPLES / f"{example}.toml")
    less = {"cycles": 4} | LESS.get(example, {})
    return msgspec.structs.replace(loaded, **(less | changes))


@pytest.fixture(autouse=True)
def _coarse_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coded iterations need not be planned well here."""
    monkeypatch.setattr(choice, "SCENARIOS", 4)


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.name in (RECORDS, MODEL)
    }


class Killed(BaseException):
    """As if the process had gone."""


def killed_after(evaluations: int, folder: Path, job: Job) -> None:
    """Simulate, and die in the cycle after so many; only checkpoints are left."""
    seen = 0

    def watch(record: Record) -> None:
        nonlocal seen
        if seen == evaluations:
            raise Killed
        seen += isinstance(record, Evaluated)

    with pytest.raises(Killed):
        build(job).run(folder, watch)


@pytest.mark.parametrize(
    "cut",
    [
        job("demo", noise=0.2),
        pytest.param(job("states", changing=0.3), marks=pytest.mark.slow),
        pytest.param(job("federated"), marks=pytest.mark.slow),
        pytest.param(job("cell", noise=0.1), marks=pytest.mark.slow),
        job("coded"),
        pytest.param(job("transmission"), marks=pytest.mark.slow),
        pytest.param(
            job("coded", name="ring", helpers="ring", first="random"),
            marks=pytest.mark.slow,
        ),
        pytest.param(job("fog", scheme="fog:windows"), marks=pytest.mark.slow),
        job("tasks", scheme="med-probe"),
        pytest.param(job("tasks", scheme="med-learned"), marks=pytest.mark.slow),
        pytest.param(job("tasks", scheme="mmtt-ideal"), marks=pytest.mark.slow),
    ],
    ids=lambda job: f"{job.name}-{job.scheme}",
)
def test_a_run_that_was_cut_short_goes_on_to_the_same_bytes(
    cut: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    build(cut).run(whole)
    monkeypatch.setattr(store, "SELDOM_S", 0.0)
    killed_after(2, parts, cut)
    assert list(parts.rglob(CHECKPOINT))
    resume(parts)
    assert files(parts) == files(whole)


def test_a_finished_run_is_left_as_it_is(tmp_path: Path) -> None:
    build(job("demo")).run(tmp_path)
    before = files(tmp_path)
    build(job("demo")).run(tmp_path)
    assert files(tmp_path) == before


def test_a_run_that_is_under_way_is_not_written_twice(tmp_path: Path) -> None:
    with (
        RunWriter.open(tmp_path, ""),
        pytest.raises(DataError, match="under way in another process"),
        RunWriter.open(tmp_path, ""),
    ):
        pass


def test_a_deadline_that_was_changed_holds_in_a_resumed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SELDOM_S", 0.0)

    def steered(folder: Path, last: int) -> None:
        """Extend the deadline after the first cycle, and stop after the last."""
        folder.mkdir()
        control = Control()

        def watch(record: Record) -> None:
            if isinstance(record, Evaluated) and record.cycle == 1:
                control.set_deadline(2.0)
            if isinstance(record, Evaluated) and record.cycle == last:
                control.stop()

        build(job("demo", noise=0.2)).run(folder, watch, control)

    steered(tmp_path / "whole", last=4)
    steered(tmp_path / "parts", last=2)
    resume(tmp_path / "parts")
    assert files(tmp_path / "parts") == files(tmp_path / "whole")


def test_metrics_are_recorded_once_and_told_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SELDOM_S", 0.0)
    killed_after(2, tmp_path, job("demo"))
    told: list[Record] = []
    resume(tmp_path, watch=told.append)
    first, *others = read(tmp_path / RECORDS)
    assert first == told[0]
    assert isinstance(first, Metrics)
    assert (first.cycle, first.metrics) == (1, (ACCURACY,))
    assert not any(isinstance(record, Metrics) for record in [*others, *told[1:]])
