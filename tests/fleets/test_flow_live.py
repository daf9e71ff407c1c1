"""Asynchronous training with real learners: nobody waits for anybody."""

from collections import Counter
from pathlib import Path

import pytest
import torch
from tests.fleets.learners import Steady, changed, live, of

from melisma.errors import TrainingError
from melisma.fleets.messages import TrainRequest, Update
from melisma.jobs.asynchronous_checks import ASYNCHRONOUS
from melisma.jobs.asynchronous_table import AsynchronousTable
from melisma.jobs.building import task_of
from melisma.learner.source import Caller
from melisma.learner.throttle import sleep_unless
from melisma.learning.parameters import load, parameters_of
from melisma.runs import records
from melisma.runs.files import MODEL
from melisma.runs.records import Record
from melisma.units import Deadline

pytestmark = [pytest.mark.slow, pytest.mark.alone]

JOB = changed(
    scheme="async:fedbuff",
    samples=150,
    steps=1,
    cycles=3,
    deadline=Deadline(20.0),
    asynchronous=AsynchronousTable(updates=6),
)


class Slow(Steady):
    """Takes a second for every order."""

    def train(self, request: TrainRequest, caller: Caller) -> Update:
        sleep_unless(caller.gave_up, 1.0)
        return super().train(request, caller)


@pytest.mark.parametrize("scheme", ASYNCHRONOUS)
def test_who_is_fast_does_not_wait_for_who_is_slow(scheme: str, tmp_path: Path) -> None:
    job = changed(JOB, scheme=scheme, cycles=6)
    learners = [Steady(name="a"), Steady(name="b"), Slow(name="c")]
    happened = live(job, tmp_path, learners)
    assert [r.cycle for r in of(records.Evaluated, happened)] == [1, 2, 3, 4, 5, 6]
    assert [r.learners for r in of(records.Aggregated, happened)] == [6] * 6
    times = Counter(r.learner for r in of(records.Uploaded, happened))
    assert min(times["a"], times["b"]) > times["c"]
    assert sum(times.values()) == 36
    assert not of(records.Dropped, happened)
    # Batches are others in every order, of the same model too.
    losses = [r.loss for r in of(records.Trained, happened) if r.learner == "a"]
    assert len(set(losses)) > len(losses) / 2


class Kept(Steady):
    """Keeps its updates."""

    sent: list[Update]

    def train(self, request: TrainRequest, caller: Caller) -> Update:
        update = super().train(request, caller)
        self.sent = [*getattr(self, "sent", []), update]
        return update


def test_of_one_learner_every_update_is_mixed_in_as_it_comes(tmp_path: Path) -> None:
    job = changed(JOB, scheme="async:fedasync", cycles=2)
    one = Kept(name="a")
    live(job, tmp_path, [one])
    model = parameters_of(task_of(job).model)
    for update in one.sent[:12]:  # it was at work on another when the run ended
        model = {n: 0.4 * t + 0.6 * update.parameters[n] for n, t in model.items()}
    for n, tensor in load(tmp_path / MODEL).items():
        torch.testing.assert_close(tensor, model[n], atol=1e-6, rtol=1e-5)


class Failing(Steady):
    """Fails at every other order."""

    asked = 0

    def train(self, request: TrainRequest, caller: Caller) -> Update:
        self.asked += 1
        if self.asked % 2:
            raise TrainingError("out of luck")
        return super().train(request, caller)


def test_who_fails_costs_its_own_updates_alone(tmp_path: Path) -> None:
    happened = live(JOB, tmp_path, [Steady(name="a"), Failing(name="b")])
    assert [r.cycle for r in of(records.Evaluated, happened)] == [1, 2, 3]
    assert {r.learner for r in of(records.Dropped, happened)} == {"b"}
    counted = [r.learners for r in of(records.Aggregated, happened)]
    assert all(n >= 4 for n in counted)


class Killed(BaseException):
    """As if the process were."""


def test_a_killed_orchestrator_goes_on(tmp_path: Path) -> None:
    def kill(record: Record) -> None:
        if isinstance(record, records.Uploaded) and record.cycle == 2:
            raise Killed

    learners = [Steady(name="a"), Slow(name="b")]
    with pytest.raises(Killed):
        live(JOB, tmp_path, learners, kill)
    happened = live(JOB, tmp_path, [Steady(name="a"), Slow(name="b")])
    assert [r.cycle for r in of(records.Evaluated, happened)] == [1, 2, 3]
