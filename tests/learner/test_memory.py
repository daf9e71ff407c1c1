"""Memory that does not suffice is told with what would fit, and the learner goes on."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from tests.fleets.learners import Steady, changed, live, of
from tests.learner.test_source import KEYS, SPEC, STORE, request, source
from torch import Tensor, nn

import melisma as mel
from melisma.errors import TrainingError
from melisma.fleets.messages import ShortOfMemory
from melisma.jobs.schema import Job, TrainingTable
from melisma.learner.learner import Learner
from melisma.learner.source import Caller
from melisma.learning.gradients import gradient_sum
from melisma.learning.losses import loss_of, numbers
from melisma.learning.memory import is_short, largest_batch
from melisma.learning.parameters import parameters_of, state_of
from melisma.learning.samples import Arrays, pairs
from melisma.learning.settings import Training
from melisma.runs.records import Dropped, Expelled, Uploaded

#: Bytes that no machine has: more than an address can be.
ABSURD = 1 << 56


class Greedy(nn.Module):
    """Needs more memory than there is for a batch of over 12 samples."""

    most = 12

    def __init__(self) -> None:
        super().__init__()
        self.only = nn.Linear(784, 10)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            torch.empty(1 if len(x) <= self.most else ABSURD, dtype=torch.uint8)
        outputs: Tensor = self.only(x.flatten(1))
        return outputs


class Hopeless(Greedy):
    """Needs it for a single sample."""

    most = 0


GREEDY = str(mel.Job(model=Greedy).model)
SHORT = "out of memory with 20 samples in a batch: [training] batch = 10 would fit"


def learner() -> Learner:
    made = Learner(name="a", allowed=[GREEDY])
    made.prepare(replace(SPEC, model=GREEDY))
    return made


def greedy_source() -> Any:
    found = source()
    found.models[1] = parameters_of(Greedy())
    return found


@pytest.mark.parametrize(
    ("error", "short"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_errors_of_every_device_are_recognised(error: Exception, short: bool) -> None:
    assert is_short(error) is short


def test_this_cpus_error_is_recognised() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(ABSURD, dtype=torch.uint8)
    assert is_short(caught.value)


@pytest.mark.parametrize(("kind", "fits"), [(Greedy, 10), (Hopeless, 0)])
def test_what_fits_is_found_and_the_model_is_left_as_it_was(
    kind: type[nn.Module], fits: int
) -> None:
    model, samples = kind(), pairs(torch.ones(50, 784), torch.zeros(50).long())
    before, drawn = state_of(model), torch.random.get_rng_state()
    assert largest_batch(model, samples, Training(batch=20)) == fits
    assert all(torch.equal(state_of(model)[n], v) for n, v in before.items())
    assert torch.equal(torch.random.get_rng_state(), drawn)


@pytest.mark.parametrize("what", ["measure", "train", "probe"])
def test_a_learner_says_what_would_fit_and_goes_on(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    one, caller = learner(), Caller(greedy_source())
    if what == "probe":  # of a learner that had more memory when it measured itself
        one._tasks["t"].training = replace_batch(10)
        one.measure("t", KEYS, caller)
        one._tasks["t"].training = replace_batch(20)
    words: tuple[Any, ...] = ("t", KEYS) if what == "measure" else (request(),)
    for _ in range(2):
        with pytest.raises(ShortOfMemory) as caught:
            getattr(one, what)(*words, caller)
        assert str(caught.value) == SHORT
    assert f"t: {SHORT}" in caplog.text
    small = replace(SPEC, model=GREEDY, training=replace_batch(10))
    one.prepare(small)
    assert one.train(request(), caller).samples == 200


def replace_batch(batch: int) -> Training:
    return Training(rate=0.1, batch=batch)


def test_a_model_too_large_for_one_sample_is_told_so() -> None:
    hopeless = str(mel.Job(model=Hopeless).model)
    one = Learner(name="a", allowed=[hopeless])
    one.prepare(replace(SPEC, model=hopeless))
    with pytest.raises(ShortOfMemory, match="with one alone: use a smaller model"):
        one.train(request(), Caller(greedy_source()))


def test_memory_that_goes_before_training_is_told_too() -> None:
    class Filling(type(greedy_source())):  # type: ignore[misc]
        def parameters(self, *_: object) -> Any:
            return torch.empty(ABSURD, dtype=torch.uint8)

    found = greedy_source()
    with pytest.raises(ShortOfMemory, match="before a batch was trained"):
        learner().train(request(), Caller(Filling(found.models, found.data)))


def test_a_sum_of_gradients_takes_fewer_samples_at_a_time() -> None:
    model, plain = Greedy(), nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    plain.load_state_dict({"1.weight": model.only.weight, "1.bias": model.only.bias})
    shard = Arrays(numbers(STORE.take(KEYS[:1])[0]))
    found, total = gradient_sum(model, shard, loss_of(Training()))
    expected, whole = gradient_sum(plain, shard, loss_of(Training()))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert total == pytest.approx(whole)


def job(**changes: Any) -> Job:
    return changed(model=GREEDY, training=TrainingTable(batch=20), **changes)


class Limited(Steady):
    """Has less memory than others, from the first cycle on or from its benchmark."""

    benchmarks = True

    def measure(self, name: str, keys: list[str], caller: Caller) -> None:
        training = self._tasks[name].training
        if self.benchmarks:
            self._tasks[name].training = replace_batch(10)
        super().measure(name, keys, caller)
        self._tasks[name].training = training


class Smaller(Limited):
    benchmarks = False


class Large(Steady):
    """Has enough."""

    def prepare(self, spec: Any) -> Any:
        answer = super().prepare(spec)
        self._tasks[spec.task].training = replace_batch(10)
        return answer


def given(kind: type[Learner], name: str) -> Learner:
    return kind(name=name, allowed=[GREEDY])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Limited, Smaller])
def test_a_run_goes_on_without_it_and_says_why(
    kind: type[Learner], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    learners = [given(Large, "large"), given(kind, "small")]
    happened = live(job(cycles=4), tmp_path, learners)
    dropped = of(Dropped, happened)
    assert {record.learner for record in dropped} == {"small"}
    assert all(record.reason.endswith(SHORT) for record in dropped)
    assert not any(record.offence for record in dropped)
    assert not of(Expelled, happened)
    assert len([r for r in of(Uploaded, happened) if r.learner == "large"]) == 4
    said = {r.name for r in caplog.records if SHORT in r.getMessage()}
    assert said == {"melisma.learner", "melisma.orchestrator"}
    if kind is Limited:  # asked in each cycle, though it never could; told once
        assert len(dropped) == 4
        told = [r for r in caplog.records if r.name == "melisma.orchestrator"]
        assert len([r for r in told if r.levelno == logging.WARNING]) == 1


def test_a_run_that_no_learner_has_the_memory_for_ends_with_what_would_fit(
    tmp_path: Path,
) -> None:
    with pytest.raises(TrainingError, match=r"none of 2 .* batch = 10 would fit"):
        live(job(), tmp_path, [given(Smaller, "a"), given(Smaller, "b")])
