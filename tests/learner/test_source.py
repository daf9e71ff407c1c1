"""A learner needs a source and nothing else: here it is made of dictionaries."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pytest
import torch

from melisma.errors import CallTimeout, TrainingError
from melisma.fleets.batches import batch_order, batches_of
from melisma.fleets.messages import (
    GradientRequest,
    TaskSpec,
    TrainRequest,
    Update,
    Vector,
)
from melisma.learner.learner import Learner
from melisma.learner.source import Caller, never
from melisma.learning import models
from melisma.learning.data import load
from melisma.learning.gradients import gradient_sum
from melisma.learning.losses import loss_of, numbers
from melisma.learning.parameters import Parameters, parameters_of
from melisma.learning.samples import Arrays, Samples, joined
from melisma.learning.settings import Late, Training
from melisma.learning.shards import Shard, ShardStore
from melisma.learning.training import train
from melisma.maths.arrays import Bytes

SPEC = TaskSpec(
    task="t",
    model="TwoNN",
    seed=3,
    training=Training(rate=0.1, batch=20),
    shard=50,
    federated=False,
    private=False,
)
STORE = ShardStore(load("mnist-5k").train, 50)
KEYS = STORE.first(4)


@dataclass
class Dictionaries:
    """Models by cycle, and shards by key."""

    models: dict[int, Parameters]
    data: dict[str, Shard]
    fetched: list[object] = field(default_factory=list)

    def parameters(
        self, task: str, cycle: int, within_s: float | None = None
    ) -> Parameters:
        self.fetched.append(cycle)
        return self.models[cycle]

    def frozen(self, task: str, within_s: float | None = None) -> Parameters:
        self.fetched.append("frozen")
        return {}

    def shards(
        self, task: str, keys: list[str], within_s: float | None = None
    ) -> list[Shard]:
        self.fetched += keys
        return [self.data[key] for key in keys]

    def filler(self, task: str, size: int) -> Bytes:
        self.fetched.append("filler")
        return np.zeros(size, dtype=np.uint8)


def source() -> Dictionaries:
    model = parameters_of(models.build("TwoNN", 7))
    return Dictionaries({1: model}, dict(zip(KEYS, STORE.take(KEYS), strict=True)))


def request(late: Late = Late.WAIT, first: int = 0) -> TrainRequest:
    return TrainRequest(
        task="t",
        cycle=1,
        keys=KEYS,
        samples=200,
        steps=2,
        deadline_s=30.0,
        late=late,
        first=first,
    )


def learner() -> Learner:
    made = Learner(name="a")
    made.prepare(SPEC)
    return made


def examples(keys: list[str]) -> Samples:
    """Shards as the model takes them."""
    return Arrays(numbers(joined(STORE.take(keys))))


def expected(first: int = 0) -> Parameters:
    """The same training by plain code."""
    model = models.build("TwoNN", 7)
    rng = batch_order(SPEC.seed, 1, "a")
    plan = batches_of(request(first=first), SPEC.training, rng)
    train(model, examples(KEYS), plan, SPEC.training)
    return parameters_of(model)


def assert_same(one: Parameters, other: Parameters) -> None:
    assert all(torch.equal(one[name], other[name]) for name in other)


def test_a_learner_trains_from_dictionaries() -> None:
    plain = source()
    update = learner().train(request(), Caller(plain))
    assert (update.cycle, update.samples, update.batches) == (1, 200, 20)
    assert not update.halted
    assert_same(update.parameters, expected())
    assert plain.fetched == [1, *KEYS]


def test_a_probe_is_the_beginning_of_the_training() -> None:
    plain, probed = source(), learner()
    probed.measure("t", KEYS, Caller(plain))
    part = msgspec.structs.replace(request(), keys=KEYS[:1], samples=50)
    speeds = probed.probe(part, Caller(plain))
    assert speeds.step_s > 0
    update = probed.train(request(first=50), Caller(plain))
    assert (update.samples, update.batches) == (200, 22)
    assert_same(update.parameters, expected(first=50))


def test_a_learner_halts_when_nobody_waits_any_more() -> None:
    asked = 0

    def after_three_batches() -> bool:
        nonlocal asked
        asked += 1
        return asked > 4  # once before it begins

    update = learner().train(request(), Caller(source(), after_three_batches))
    assert (update.batches, update.samples, update.halted) == (3, 60, True)


@pytest.mark.parametrize("deadline_s", [1e-300, 1e-3])
def test_who_has_nothing_at_the_deadline_sends_its_first_batch(
    deadline_s: float,
) -> None:
    # However short it is: an orchestrator cannot keep a device busy with counting.
    carry = msgspec.structs.replace(request(Late.CARRY), deadline_s=deadline_s)
    update = learner().train(carry, Caller(source()))
    assert update.halted
    assert 1 <= update.batches < 20
    halt = msgspec.structs.replace(request(Late.HALT), deadline_s=deadline_s)
    assert learner().train(halt, Caller(source())).batches == 0


def test_a_source_that_is_too_slow_is_named() -> None:
    class Slow(Dictionaries):
        def parameters(
            self, task: str, cycle: int, within_s: float | None = None
        ) -> Parameters:
            raise CallTimeout(f"parameters: not fetched within {within_s} s")

    with pytest.raises(CallTimeout, match=r"within 30\.0 s"):
        learner().train(request(Late.HALT), Caller(Slow({}, {})))


def test_work_that_nobody_waits_for_does_not_end_newer_work() -> None:
    class Held(Dictionaries):
        """Gives its model once it is let go."""

        def parameters(
            self, task: str, cycle: int, within_s: float | None = None
        ) -> Parameters:
            fetching.set()
            assert let_go.wait(30.0)
            return super().parameters(task, cycle, within_s)

    fetching, let_go = threading.Event(), threading.Event()
    one, plain, work = learner(), source(), request(Late.HALT)
    held = Held(plain.models, plain.data)
    newer: Future[Update] = Future()
    thread = threading.Thread(
        target=lambda: newer.set_result(one.train(work, Caller(held)))
    )
    thread.start()
    assert fetching.wait(30.0)
    with pytest.raises(TrainingError, match="nobody waits for this work"):
        one.train(work, Caller(plain, lambda: True))
    let_go.set()
    thread.join()
    update = newer.result(30.0)
    assert (update.halted, update.samples) == (False, work.samples)


def gradients(slower: float, gave_up: Callable[[], bool] = never) -> Vector:
    work = GradientRequest(
        task="t",
        cycle=1,
        parts=[KEYS[:1], KEYS[1:3]],
        coefficients=[2.0, -1.0],
        wide=True,
        slower=slower,
    )
    return learner().gradient(work, Caller(source(), gave_up)).vector


def test_gradients_are_summed_from_dictionaries() -> None:
    model = models.build("TwoNN", 7)
    loss = loss_of(SPEC.training)
    first, _ = gradient_sum(model, examples(KEYS[:1]), loss)
    second, _ = gradient_sum(model, examples(KEYS[1:3]), loss)
    assert np.allclose(gradients(1.0), 2.0 * first - second)


def test_an_emulated_straggler_wakes_when_it_is_cancelled() -> None:
    cancelled = threading.Event()
    threading.Timer(0.3, cancelled.set).start()
    began = time.monotonic()
    with pytest.raises(TrainingError, match="gradient of cycle 1 was cancelled"):
        gradients(float("inf"), cancelled.is_set)
    assert time.monotonic() - began < 30.0  # not a day
