"""Asynchronous training with real learners: nobody waits for anybody."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.fleets.learners import Steady, changed, live, of
from tests.fleets.test_wire_live import Cheat

from melisma.errors import TrainingError
from melisma.fleets.live_flow import ORDERS
from melisma.fleets.messages import TrainRequest, Update
from melisma.jobs.asynchronous_checks import ASYNCHRONOUS
from melisma.jobs.asynchronous_table import AsynchronousTable
from melisma.jobs.building import task_of
from melisma.jobs.schema import TrainingTable
from melisma.jobs.wire_table import WireTable
from melisma.launch.api import simulate
from melisma.learner.source import Caller
from melisma.learner.throttle import sleep_unless
from melisma.learning.codecs import codec_of
from melisma.learning.parameters import Parameters, load, norm_of, parameters_of
from melisma.runs import records
from melisma.runs.files import CHECKPOINT, MODEL
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
    """Keeps its orders and updates."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name)
        self.asked: list[TrainRequest] = []
        self.sent: list[Update] = []

    def train(self, request: TrainRequest, caller: Caller) -> Update:
        self.asked.append(request)
        self.sent.append(super().train(request, caller))
        return self.sent[-1]


def test_of_one_learner_every_update_is_mixed_in_as_it_comes(tmp_path: Path) -> None:
    job = changed(JOB, scheme="async:fedasync", cycles=2)
    one = Kept(name="a")
    live(job, tmp_path, [one])
    model = parameters_of(task_of(job).model)
    for update in one.sent[:12]:  # it was at work on another when the run ended
        model = {n: 0.4 * t + 0.6 * update.parameters[n] for n, t in model.items()}
    for n, tensor in load(tmp_path / MODEL).items():
        torch.testing.assert_close(tensor, model[n], atol=1e-6, rtol=1e-5)


WIRED = changed(
    JOB,
    scheme="async:fedasync",
    cycles=2,
    wire=WireTable(down="int8", up="top-k 5 %"),
    training=TrainingTable(batch=150),  # all of an order in one
)


def along(model: Parameters, updates: Sequence[Update]) -> Parameters:
    """Return a model after updates of one learner, each of what the last one made."""
    codec = codec_of(WIRED.wire.up)
    for update in updates:
        assert update.packed is not None
        sent = codec.decode(update.packed.encoded, model)
        model = {n: t + 0.6 * sent[n] for n, t in model.items()}
    return model


def apart(one: Parameters, other: Parameters) -> float:
    return norm_of({n: one[n] - t for n, t in other.items()})


def test_codecs_lead_where_they_do_in_a_simulation(tmp_path: Path) -> None:
    one = Kept(name="x")
    happened = live(WIRED, tmp_path, [one])
    assert not of(records.Dropped, happened)
    start, ended = parameters_of(task_of(WIRED).model), load(tmp_path / MODEL)
    assert apart(ended, along(start, one.sent[:12])) < 1e-5
    # In the simulation of its only learner, everything is drawn by the same seeds.
    simulated = simulate(WIRED, runs=tmp_path / "simulated")
    assert simulated.folder is not None
    assert apart(ended, load(simulated.folder / MODEL)) < 1e-3 * apart(ended, start)


def test_a_resumed_run_goes_on_with_its_numbers_and_with_what_is_owed(
    tmp_path: Path,
) -> None:
    one = Kept(name="x")

    def kill(record: Record) -> None:
        if isinstance(record, records.Uploaded) and record.cycle == 2:
            raise Killed

    with pytest.raises(Killed):
        live(WIRED, tmp_path, [one], kill)
    counted, given = one.sent[:6], int(load(tmp_path / CHECKPOINT)[ORDERS])
    assert given == 7  # the learner was at work on the next, at the checkpoint
    done = len(one.sent)
    live(WIRED, tmp_path, [one])
    again = one.sent[done:]
    assert [update.cycle for update in again[:6]] == list(range(given + 1, given + 7))
    assert [request.anew for request in one.asked] == [
        n == 0 for n in range(len(one.asked))
    ]
    start = parameters_of(task_of(WIRED).model)
    expected = along(start, [*counted, *again[:6]])
    assert apart(load(tmp_path / MODEL), expected) < 1e-5


def test_nothing_is_owed_to_a_new_run(tmp_path: Path) -> None:
    one, job = Kept(name="x"), changed(WIRED, cycles=1)
    for folder in ("first", "second"):
        live(job, tmp_path / folder, [Steady(name="a"), one])
    # Its first order is the second of the run, both times.
    before, again = (u for u in one.sent if u.cycle == 2)
    assert before.packed is not None
    assert again.packed is not None
    sent = before.packed.encoded.payload
    assert np.array_equal(sent, again.packed.encoded.payload)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"codec": "top-k 6 %"}, "came in place of top-k 5 %"),
        ({"seed": 1}, "draws of another seed"),
        ({"payload": np.zeros(1, np.uint8)}, "other than the"),
    ],
)
def test_what_no_codec_made_is_an_offence(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    job = changed(WIRED, cycles=1)
    happened = live(job, tmp_path, [Steady(name="a"), Cheat("b", **changes)])
    lost = of(records.Dropped, happened)
    assert {(r.learner, r.offence) for r in lost} == {("b", True)}
    assert all(reason in r.reason for r in lost)


class Killed(BaseException):
    """As if the process were."""


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


def test_a_killed_orchestrator_goes_on(tmp_path: Path) -> None:
    def kill(record: Record) -> None:
        if isinstance(record, records.Uploaded) and record.cycle == 2:
            raise Killed

    learners = [Steady(name="a"), Slow(name="b")]
    with pytest.raises(Killed):
        live(JOB, tmp_path, learners, kill)
    happened = live(JOB, tmp_path, [Steady(name="a"), Slow(name="b")])
    assert [r.cycle for r in of(records.Evaluated, happened)] == [1, 2, 3]
