"""Coded training on learners in this process, over real sockets."""

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.algorithms.test_coded import assert_same, plainly
from tests.fleets.learners import Steady, changed, live, of, slow

from melisma.coding import CODES
from melisma.errors import ConfigError
from melisma.fleets import judge
from melisma.fleets.judge import LEAST_BATCH_S
from melisma.fleets.messages import Gradient, GradientRequest
from melisma.jobs.building import task_of
from melisma.jobs.schema import Job, StragglingTable, TrainingTable
from melisma.learner.learner import Learner
from melisma.learner.source import Caller
from melisma.learner.throttle import sleep_unless
from melisma.learning.parameters import load
from melisma.runs import records
from melisma.runs.records import Record
from melisma.runs.store import MODEL
from melisma.units import Deadline

JOB = changed(
    name="coded",
    scheme="coded",
    stragglers=1,
    cycles=3,
    samples=600,
    shard=10,
    deadline=Deadline(60.0),
    training=TrainingTable(rate=0.3, momentum=0.9),
)


class Missing(Learner):
    """Does not answer in the cycles in which it is its turn."""

    ends = threading.Event()

    def _is_missing(self, cycle: int) -> bool:
        return "abcdef".index(self.name) == cycle % 6

    def gradient(self, request: GradientRequest, caller: Caller) -> Gradient:
        if self._is_missing(request.cycle):
            sleep_unless(caller.gave_up, 120.0)
        return super().gradient(request, caller)


def workers(kind: type[Learner] = Learner) -> list[Learner]:
    return [kind(name=name) for name in "abcdef"]


def assert_exact(job: Job, folder: Path, happened: list[Record]) -> None:
    assert {r.error for r in of(records.Aggregated, happened)} == {0.0}
    assert len(of(records.Evaluated, happened)) == job.cycles
    assert_same(load(folder / MODEL), plainly(task_of(job), job.training))


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "two-stage",
        *(
            pytest.param(code, marks=pytest.mark.slow)
            for code in CODES
            if code not in ("uncoded", "two-stage")
        ),
    ],
)
def test_whoever_is_missing_the_model_is_that_of_plain_descent(
    tmp_path: Path, code: str
) -> None:
    job = msgspec.structs.replace(JOB, code=code)
    assert_exact(job, tmp_path, live(job, tmp_path, workers(Missing)))


@pytest.mark.slow
def test_uncoded_training_needs_everybody(tmp_path: Path) -> None:
    job = msgspec.structs.replace(JOB, code="uncoded", stragglers=0)
    assert_exact(job, tmp_path, live(job, tmp_path, workers()))


@pytest.mark.slow
@pytest.mark.parametrize("how", [{}, {"helpers": "ring", "first": "random"}], ids=str)
def test_helpers_may_be_reserved(tmp_path: Path, how: dict[str, str]) -> None:
    job = msgspec.structs.replace(JOB, **({"helpers": "reserved"} | how))
    assert_exact(job, tmp_path, live(job, tmp_path, workers(Missing)))


@pytest.mark.slow
def test_one_that_is_slow_is_helped(tmp_path: Path) -> None:
    class Slowing(Learner):
        def gradient(self, request: GradientRequest, caller: Caller) -> Gradient:
            self._device.background = slow(5.0)
            return super().gradient(request, caller)

    learners = [Slowing(name="a"), *(Learner(name=name) for name in "bcd")]
    happened = live(JOB, tmp_path, learners)
    assert_exact(JOB, tmp_path, happened)
    # A fourth of 600 samples at 5 a second would be half a minute.
    assert max(r.cycle_s for r in of(records.Aggregated, happened)) < 25.0


@pytest.mark.parametrize(
    "kind",
    [
        "nan",
        *(
            pytest.param(kind, marks=pytest.mark.slow)
            for kind in ("short", "stale", "word")
        ),
    ],
)
def test_a_wrong_answer_is_refused_and_decoded_around(
    tmp_path: Path, kind: str
) -> None:
    class Wrong(Learner):
        def gradient(self, request: GradientRequest, caller: Caller) -> Any:
            told = super().gradient(request, caller)
            match kind:
                case "nan":
                    vector = np.full_like(told.vector, np.nan)
                    return msgspec.structs.replace(told, vector=vector)
                case "short":
                    return msgspec.structs.replace(told, vector=told.vector[:-1])
                case "stale":
                    return msgspec.structs.replace(told, cycle=0)
            return "a gradient"

    job = msgspec.structs.replace(JOB, code="hetero", cycles=2)
    learners = [Wrong(name="a"), *(Learner(name=name) for name in "bcd")]
    happened = live(job, tmp_path, learners)
    assert_exact(job, tmp_path, happened)
    refused = [r for r in of(records.Dropped, happened) if r.offence]
    assert {r.learner for r in refused} <= {"a"}


#: Nobody can be spared, so that every answer counts. Learners are steady and shards
#: small: who is slow for a moment has something to do nevertheless.
PLAIN = msgspec.structs.replace(
    JOB, code="uncoded", stragglers=0, cycles=1, samples=100, shard=1
)


@pytest.mark.parametrize("times", [(0.0, 0.0), (5.0, -5.0), (-5.0, 5.0), (0.0, 1e-9)])
def test_times_of_a_gradient_are_in_order_and_no_faster_than_any_device(
    tmp_path: Path, times: tuple[float, float]
) -> None:
    class Boastful(Steady):
        def gradient(self, request: GradientRequest, caller: Caller) -> Gradient:
            told = super().gradient(request, caller)
            return msgspec.structs.replace(
                told, downloaded_s=times[0], trained_s=times[1]
            )

    happened = live(PLAIN, tmp_path, [Boastful(name="a"), Steady(name="b")])
    downloaded, trained, uploaded = (
        next(r for r in of(kind, happened) if r.learner == "a")
        for kind in (records.Downloaded, records.Trained, records.Uploaded)
    )
    took_s = trained.time_s - downloaded.time_s
    assert took_s >= 0.999 * LEAST_BATCH_S * trained.batches > 0
    assert trained.time_s <= uploaded.time_s


def test_a_step_that_breaks_the_model_leaves_no_momentum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Far(Steady):
        def gradient(self, request: GradientRequest, caller: Caller) -> Gradient:
            told = super().gradient(request, caller)
            if request.cycle == 2:
                told.vector[:] = 1e37 * np.sign(told.vector)
            return told

    monkeypatch.setattr(judge, "MOST_TIMES", 1e36)  # as if it had passed
    job = msgspec.structs.replace(PLAIN, cycles=3)
    happened = live(job, tmp_path, [Steady(name="a"), Far(name="b")])
    one, two, three = of(records.Evaluated, happened)
    assert two.loss == one.loss
    assert three.loss not in (None, one.loss)
    assert [r.learners for r in of(records.Aggregated, happened)] == [2, 0, 2]


ADAM = TrainingTable(optimiser="Adam", rate=1e-3, arguments={"eps": 1e-3})


@pytest.mark.slow
@pytest.mark.parametrize("training", [JOB.training, ADAM])
def test_a_run_that_was_cut_short_goes_on_with_its_momentum(
    tmp_path: Path, training: TrainingTable
) -> None:
    class Cut(Exception):
        pass

    def cut(record: Record) -> None:
        if isinstance(record, records.Allocated) and record.cycle == 3:
            raise Cut

    job = msgspec.structs.replace(JOB, cycles=4, code="cyclic", training=training)
    with pytest.raises(Cut):
        live(job, tmp_path, workers(), cut)
    happened = live(job, tmp_path, workers())
    assert_exact(job, tmp_path, happened)


@pytest.mark.slow
def test_a_cycle_without_an_answer_does_not_end_the_run(tmp_path: Path) -> None:
    class Away(Learner):
        def gradient(self, request: GradientRequest, caller: Caller) -> Gradient:
            if request.cycle == 2:
                sleep_unless(caller.gave_up, 60.0)
            return super().gradient(request, caller)

    job = msgspec.structs.replace(JOB, code="fractional", deadline=Deadline(3.0))
    happened = live(job, tmp_path, [Away(name=name) for name in "abc"])
    errors = [r.error for r in of(records.Aggregated, happened)]
    assert errors == [0.0, 1.0, 0.0]
    one, two, three = (r.loss for r in of(records.Evaluated, happened))
    assert one == two != three


def test_too_few_workers_are_waited_for_and_then_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("melisma.algorithms.coded.WAIT_S", 0.3)
    monkeypatch.setattr("melisma.algorithms.coded.POLL_S", 0.1)
    job = msgspec.structs.replace(JOB, stragglers=2)
    with pytest.raises(Exception, match="2 stragglers are to be tolerated"):
        live(job, tmp_path, [Learner(name="a"), Learner(name="b")])


def test_what_is_only_simulated_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="shared channels are only simulated"):
        live(msgspec.structs.replace(JOB, channels=2), tmp_path, [])


@pytest.mark.slow
@pytest.mark.parametrize("slower", [30.0, float("inf")])
def test_stragglers_can_be_tried_out(tmp_path: Path, slower: float) -> None:
    straggling = StragglingTable(number=1, slower=slower)
    job = msgspec.structs.replace(JOB, straggling=straggling)
    happened = live(job, tmp_path, workers())
    assert_exact(job, tmp_path, happened)
    if slower == float("inf"):
        # Whoever straggles answers nothing: it is dropped, or, while it is still busy
        # with the cycle before, not asked.
        came = Counter(record.cycle for record in of(records.Uploaded, happened))
        assert max(came.values()) < len(workers())
