"""Live learners that lie about their work, and those that do not."""

from pathlib import Path

import msgspec
import pytest
import torch
from tests.fleets.learners import Steady, changed, live, of, slow

from melisma.fleets import audit
from melisma.fleets.messages import Speeds, TrainRequest, Update
from melisma.jobs.schema import TrainingTable
from melisma.learner.learner import Learner
from melisma.learner.source import Caller
from melisma.learning.checks import FALSE_FROM
from melisma.learning.parameters import Parameters
from melisma.learning.settings import Schedule
from melisma.runs import records
from melisma.units import Deadline

#: Every update is redone.
JOB = changed(checks=1.0, cycles=3)


@pytest.mark.slow
def test_honest_learners_are_not_accused(tmp_path: Path) -> None:
    happened = live(JOB, tmp_path, [Steady(name=name) for name in ("a", "b")])
    checked = of(records.Checked, happened)
    assert len(checked) == 6
    assert max(record.distance for record in checked) < FALSE_FROM / 100
    assert not of(records.Dropped, happened)


class Lazy(Steady):
    """Sends the model back as it came."""

    def _model(self, update: Update, sent: Parameters) -> Parameters:
        return sent

    def train(self, request: TrainRequest, caller: Caller) -> Update:
        sent = caller.source.parameters(request.task, request.cycle)
        update = super().train(request, caller)
        return msgspec.structs.replace(update, parameters=self._model(update, sent))


class Noisy(Lazy):
    """Sends the model back with noise on it."""

    def _model(self, update: Update, sent: Parameters) -> Parameters:
        return {name: t + 0.01 * torch.randn_like(t) for name, t in sent.items()}


class Skimping(Steady):
    """Trains on a tenth of its shards and claims all."""

    def train(self, request: TrainRequest, caller: Caller) -> Update:
        tenth = request.keys[: max(1, len(request.keys) // 10)]
        samples = len(tenth) * request.samples // len(request.keys)
        few = msgspec.structs.replace(request, keys=tenth, samples=samples)
        update = super().train(few, caller)
        batches = request.steps * -(-request.samples // 32)
        return msgspec.structs.replace(
            update, samples=request.samples, batches=batches, halted=False
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "liar",
    [Lazy, *(pytest.param(liar, marks=pytest.mark.slow) for liar in (Noisy, Skimping))],
)
def test_liars_are_refused_and_expelled(tmp_path: Path, liar: type[Steady]) -> None:
    job = changed(JOB, samples=1000, deadline=Deadline(30.0))
    happened = live(job, tmp_path, [Steady(name="a"), liar(name="b")])
    dropped = of(records.Dropped, happened)
    assert {(r.learner, r.offence) for r in dropped} == {("b", True)}
    assert all("not what its work leads to" in r.reason for r in dropped)
    assert [r.learner for r in of(records.Expelled, happened)] == ["b"]
    assert [r.learners for r in of(records.Aggregated, happened)] == [1, 1, 1]


@pytest.mark.slow
def test_a_task_of_ones_own_is_redone_by_its_own_loss_and_optimiser(
    tmp_path: Path,
) -> None:
    task = "tests.launch.regression:line"
    training = TrainingTable(optimiser="AdamW", schedule=Schedule.COSINE)
    job = changed(JOB, task=task, training=training, samples=200, shard=10)
    learners = [Steady(name="a", allowed=[task]), Lazy(name="b", allowed=[task])]
    happened = live(job, tmp_path, learners)
    honest = [r.distance for r in of(records.Checked, happened) if r.learner == "a"]
    assert len(honest) == 3
    assert max(honest) < FALSE_FROM / 100
    assert [r.learner for r in of(records.Expelled, happened)] == ["b"]


def test_a_claim_beyond_the_batches_done_is_refused_without_redoing(
    tmp_path: Path,
) -> None:
    class Inflating(Steady):
        def train(self, request: TrainRequest, caller: Caller) -> Update:
            return msgspec.structs.replace(super().train(request, caller), batches=1)

    job = changed(JOB, checks=1e-9, cycles=1)
    happened = live(job, tmp_path, [Steady(name="a"), Inflating(name="b")])
    (dropped,) = of(records.Dropped, happened)
    assert dropped.reason == "300 samples claimed where 32 were seen"


@pytest.mark.long
@pytest.mark.slow
def test_work_that_was_halted_is_redone_as_far_as_it_went(tmp_path: Path) -> None:
    class Boastful(Learner):
        def speeds(self, task: str, drifted: bool) -> Speeds:
            return Speeds(step_s=1e-5, sample_s=1e-6, fixed_s=0.01)

    late = Boastful(name="a", background=slow(150.0))
    job = changed(JOB, cycles=1, deadline=Deadline(8.0), samples=2000)
    happened = live(job, tmp_path, [late])
    (halted,) = of(records.Halted, happened)
    (checked,) = of(records.Checked, happened)
    assert halted.samples < 2000
    assert checked.distance < FALSE_FROM / 100


class Tireless(Steady):
    """Claims all passes that its claimed speed lets it do, at once."""

    def speeds(self, task: str, drifted: bool) -> Speeds:
        return Speeds(step_s=1e-9, sample_s=0.0, fixed_s=0.0)

    def train(self, request: TrainRequest, caller: Caller) -> Update:
        assert request.steps > 1000
        update = super().train(msgspec.structs.replace(request, steps=1), caller)
        batches = request.steps * -(-request.samples // 32)
        return msgspec.structs.replace(update, batches=batches, halted=False)


def test_work_that_takes_too_long_to_redo_is_not_judged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "LONGEST_REDO", 0.1)
    few = {"samples": 100, "epochs_at_most": 10**6}
    job = changed(JOB, scheme="csa", cycles=1, deadline=Deadline(5.0), **few)
    happened = live(job, tmp_path, [Tireless(name="a")])
    assert len(of(records.Evaluated, happened)) == 1
    assert not of(records.Checked, happened)
    assert "an update of a takes too long to redo: not checked" in caplog.messages


def test_too_few_samples_to_compare_are_no_error(tmp_path: Path) -> None:
    job = changed(JOB, cycles=1, shard=1, samples=2, deadline=Deadline(2.0))
    happened = live(job, tmp_path, [Steady(name="a"), Steady(name="b")])
    assert len(of(records.Checked, happened)) == 2
