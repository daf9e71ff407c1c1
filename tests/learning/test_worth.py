"""What options are worth: in order, within (0, 1], and as theory has it."""

import copy

import numpy as np
import pytest
import torch
from tests.jobs.small import small
from torch import nn

from melisma.jobs.building import task_of
from melisma.learning.codecs import Feedback, codec_of
from melisma.learning.parameters import parameters_of, trained
from melisma.learning.submodels.making import Made
from melisma.learning.way import Way
from melisma.learning.wire import Wire
from melisma.learning.worth import worths

TASK = task_of(small())


def values(
    *ways: tuple[str, str], seed: int = 0, model: nn.Module = TASK.model
) -> list[float]:
    each = [Way(Wire.of(*way)) for way in ways]
    return worths(each, model, TASK.taken.train, TASK.training, seed)


UPS = ["fp32", "bf16", "int8", "int4", "top-k 10 %", "top-k 1 %", "random-k 0.1 %"]


@pytest.mark.parametrize("seed", range(3))
def test_who_sends_less_is_worth_no_more(seed: int) -> None:
    found = values(*(("fp32", up) for up in UPS), seed=seed)
    assert found == sorted(found, reverse=True)
    assert found[0] == pytest.approx(1.0, abs=1e-9)
    assert all(0 < value <= 1 for value in found)
    # An eighth of the bytes is worth nearly all, and a hundredth a good part.
    assert found[UPS.index("int4")] > 0.9
    assert 0.2 < found[UPS.index("top-k 1 %")] < 0.8


def test_a_model_that_arrives_coarse_is_worth_less() -> None:
    fine, coarse = values(("fp32", "int8"), ("int4", "int8"))
    assert 0.5 < coarse < fine


def test_the_model_stays_as_it_is_and_values_are_the_same_again() -> None:
    model, state = copy.deepcopy(TASK.model), torch.get_rng_state()
    before = parameters_of(model)
    first, second = (values(("fp32", "int4"), model=model) for _ in range(2))
    assert first == second
    assert all(t.equal(before[n]) for n, t in parameters_of(model).items())
    assert torch.get_rng_state().equal(state)


@pytest.mark.parametrize("written", ["int8", "int4", "top-k 5 %"])
def test_of_one_change_it_is_what_theory_says(written: str) -> None:
    """1/(1 + ω) with the ω measured here, or δ; by plain sums over the values."""
    codec, like = codec_of(written), parameters_of(TASK.model)
    x = {n: torch.randn_like(like[n]).pow(3) for n in trained(TASK.model)}
    y = codec.decode(Feedback(codec).encode(x, 1), x)
    pairs = np.concatenate(
        [np.stack([x[n].flatten().numpy(), y[n].flatten().numpy()], axis=1) for n in x]
    ).astype(float)
    a, b = pairs.T
    cosine = (a @ b) ** 2 / ((a @ a) * (b @ b))
    error = ((a - b) @ (a - b)) / (a @ a)
    expected = 1 / (1 + error) if codec.unbiased else 1 - error
    assert cosine == pytest.approx(expected, abs=2e-3)


@pytest.mark.slow
def test_a_part_is_worth_what_it_moves_of_the_model() -> None:
    written = ["width 1", "width 0.8", "width 0.5", "freeze 0.4"]
    made = Made(written, TASK.model, TASK.data.train, TASK.training)
    plain, small = Wire(), Wire.of("int8", "top-k 5 %")
    ways = [Way(plain, made.parts[name]) for name in written]
    ways += [Way(small, way.part) for way in ways]
    before = [parameters_of(part.model) for part in made.parts.values()]
    found = worths(ways, TASK.model, TASK.taken.train, TASK.training, 0)
    assert found[0] == pytest.approx(1.0, abs=1e-6)
    assert found[0] > found[1] > found[2] > 0.05
    # The first layer has most weights, and most of the gradient.
    assert 0.01 < found[3] < 0.9
    assert all(coarse < fine for fine, coarse in zip(found[:4], found[4:], strict=True))
    # Learners begin with the parts as they were made.
    for old, part in zip(before, made.parts.values(), strict=True):
        assert all(t.equal(old[n]) for n, t in parameters_of(part.model).items())
