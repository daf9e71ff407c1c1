"""Federated live runs: the data lies on the learners, and stays there."""

from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.fleets.learners import Steady, changed, live, of

from melisma.errors import DataError
from melisma.fleets.messages import Ready, TaskSpec, TrainRequest, Update
from melisma.jobs.building import task_of
from melisma.jobs.schema import AggregationTable
from melisma.launch.local import own_data, run_locally
from melisma.learner.learner import Learner
from melisma.learner.source import Caller, RpcSource
from melisma.learner.training import LocalTraining
from melisma.learning.data import Dataset, load
from melisma.learning.parameters import Parameters, parameters_of
from melisma.learning.samples import Arrays, Part, pairs
from melisma.learning.settings import Correction
from melisma.runs import records
from melisma.system.law import Mode
from melisma.units import BytesPerSecond, Deadline, SamplesPerSecond

pytestmark = [pytest.mark.slow, pytest.mark.alone]

JOB = changed(mode=Mode.FEDERATED, samples=None, shard=10)


def owner(name: str, rows: range, kind: Any = Steady) -> Any:
    data = load("mnist-5k")
    some = np.array(rows)
    mine = Dataset(name, Part(data.train, some), Part(data.train, some[:0]))
    return kind(name=name, own=mine)


@pytest.mark.parametrize("scheme", ["eta", "dab", "csa"])
def test_learners_train_on_what_they_have(tmp_path: Path, scheme: str) -> None:
    # Every third sample to b: 333 of the first 1,000, of which 330 are whole shards.
    learners = [owner("a", range(0, 1000, 2)), owner("b", range(0, 999, 3))]
    job = changed(JOB, scheme=scheme, deadline=Deadline(8.0), cycles=1)
    happened = live(job, tmp_path, learners)
    (merged,) = of(records.Aggregated, happened)
    assert (merged.learners, merged.samples) == (2, 500 + 330)


def test_no_data_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[str] = set()

    fetch = RpcSource._function

    def noted(self: RpcSource, name: str, *rest: Any) -> Any:
        asked.add(name)
        return fetch(self, name, *rest)

    monkeypatch.setattr(RpcSource, "_function", noted)
    live(JOB, tmp_path, [owner("a", range(500), Steady)])
    assert asked == {"filler", "parameters"}


class Kept(Steady):
    """Keeps its first update."""

    first: Update | None = None

    def train(self, request: TrainRequest, caller: Caller) -> Update:
        update = super().train(request, caller)
        self.first = self.first or update
        return update


def test_learners_fetch_what_corrects_their_gradients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[tuple[int, Parameters]] = []
    fetch = RpcSource.correction

    def noted(
        self: RpcSource, task: str, cycle: int, within_s: float | None = None
    ) -> Parameters:
        correction = fetch(self, task, cycle, within_s)
        fetched.append((cycle, correction))
        return correction

    monkeypatch.setattr(RpcSource, "correction", noted)
    learners = [owner("a", range(100), Kept), owner("b", range(100, 150), Kept)]
    job = changed(
        JOB,
        scheme="csa",
        cycles=3,
        deadline=Deadline(8.0),
        aggregation=AggregationTable(correction=Correction.SCAFFOLD),
    )
    happened = live(job, tmp_path, learners)
    assert not of(records.Dropped, happened)
    assert sorted(cycle for cycle, _ in fetched) == [2, 2, 3, 3]
    # c − cₖ, of mean gradients (x − y)/(η·K)
    task, gradients = task_of(job), []
    start = parameters_of(task.model)
    for learner in learners:
        steps = learner.first.batches * task.training.rate
        gradients.append(
            {n: (x - learner.first.parameters[n]) / steps for n, x in start.items()}
        )
    for correction in (c for cycle, c in fetched if cycle == 2):
        own = min(gradients, key=lambda g: _apart(g, gradients, correction))
        assert _apart(own, gradients, correction) < 1e-5


def _apart(
    own: Parameters, gradients: list[Parameters], correction: Parameters
) -> float:
    """Return how far a correction is from that of who has these gradients."""
    return max(
        float((sum(g[n] for g in gradients) / len(gradients) - own[n] - h).abs().max())
        for n, h in correction.items()
    )


def test_part_of_the_data_is_another_part_in_each_cycle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []

    examples = LocalTraining.examples

    def noted(self: LocalTraining, *which: Any) -> Any:
        samples = examples(self, *which)
        seen.append(float(samples[:]["x"].sum()))
        return samples

    monkeypatch.setattr(LocalTraining, "examples", noted)
    live(changed(JOB, samples=100), tmp_path, [owner("a", range(500), Steady)])
    assert len(set(seen)) == len(seen) == 2


def test_a_learner_without_data_does_not_take_part(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    learners = [owner("a", range(500)), Learner(name="b")]
    happened = live(JOB, tmp_path, learners, least=1)
    assert {record.learner for record in of(records.Joined, happened)} == {"a"}
    complaints = [text for text in caplog.messages if "no data of its own" in text]
    # Said once on either side, not once a cycle.
    assert sorted(text[:12] for text in complaints) == ["Does not tak", "b does not t"]


def test_a_learner_whose_data_does_not_fit_the_model_does_not_take_part(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    odd = owner("b", range(500))
    own = odd._device.own.train[:]
    narrow = pairs(own["x"][..., :7], own["y"])
    odd._device.own = Dataset("odd", narrow, Arrays(narrow[:0]))
    happened = live(JOB, tmp_path, [owner("a", range(500)), odd], least=1)
    assert {record.learner for record in of(records.Joined, happened)} == {"a"}
    assert any("does not take samples of x" in text for text in caplog.messages)


def test_a_claim_of_more_samples_than_asked_for_is_refused(tmp_path: Path) -> None:
    class Boastful(Steady):
        def train(self, request: TrainRequest, caller: Caller) -> Update:
            update = super().train(request, caller)
            return msgspec.structs.replace(update, samples=10**6)

    learners = [owner("a", range(500)), owner("b", range(500), Boastful)]
    happened = live(JOB, tmp_path, learners)
    assert {r.learner for r in of(records.Dropped, happened)} == {"b"}


def test_every_local_learner_gets_its_own_part(tmp_path: Path) -> None:
    job = changed(JOB, learners=_learners())
    with own_data(job, ["a", "b"]) as folder:
        assert folder is not None
        parts = [np.load(folder / name / "y.npy") for name in ("a", "b")]
    assert sum(map(len, parts)) == 4000
    assert not folder.exists()


def test_a_federated_job_runs_locally_in_processes(tmp_path: Path) -> None:
    happened = run_locally(changed(JOB, learners=_learners()), tmp_path)
    assert len(of(records.Evaluated, happened)) == 2
    assert {r.learners for r in of(records.Aggregated, happened)} == {2}


@pytest.mark.parametrize("scheme", ["eta", "csa"])
def test_a_run_with_less_data_than_its_job_asks_for_goes_on(
    tmp_path: Path, scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    job = changed(JOB, samples=600, scheme=scheme)
    happened = live(job, tmp_path, [owner("a", range(500))])
    assert [r.samples for r in of(records.Aggregated, happened)] == [500, 500]
    warning = "600 samples a cycle were asked for, 500 are there"
    assert caplog.messages.count(warning) == 1


@pytest.mark.parametrize("scheme", ["eta", "csa", "dab"])
def test_a_learner_with_less_than_a_shard_sits_out(
    tmp_path: Path, scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    learners = [owner("a", range(500)), owner("b", range(500, 509))]
    happened = live(changed(JOB, scheme=scheme), tmp_path, learners)
    assert {r.learner for r in of(records.Uploaded, happened)} == {"a"}
    assert len(of(records.Evaluated, happened)) == 2
    assert "less than a shard of 10 has b" in caplog.messages


def test_a_learner_that_leaves_takes_its_data_along_and_no_more(
    tmp_path: Path,
) -> None:
    class Leaving(Steady):
        def train(self, request: TrainRequest, caller: Caller) -> Update:
            if request.cycle > 1:
                raise DataError("the battery is empty")
            return super().train(request, caller)

        def prepare(self, spec: TaskSpec) -> Ready:
            if left.is_set():
                raise DataError("gone")
            return super().prepare(spec)

    def watch(record: Any) -> None:
        if isinstance(record, records.Evaluated):
            left.set()

    left = Event()
    learners = [owner("a", range(400)), owner("b", range(400, 1000), Leaving)]
    happened = live(changed(JOB, samples=1000), tmp_path, learners, watch)
    assert [r.samples for r in of(records.Aggregated, happened)] == [1000, 400]


def _learners() -> Any:
    fast = msgspec.structs.replace(
        JOB.learners[0],
        name="a",
        rate=SamplesPerSecond(1e4),
        bandwidth=BytesPerSecond(1e8),
    )
    return (fast, msgspec.structs.replace(fast, name="b"))


def test_data_is_dealt_to_as_many_as_there_are() -> None:
    job = changed(JOB, learners=_learners())
    with own_data(job, ["a", "b", "c"]) as folder:
        assert folder is not None
        parts = [np.load(folder / name / "y.npy") for name in ("a", "b", "c")]
    assert [len(part) for part in parts] == [1334, 1333, 1333]
