import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from melisma.learning.aggregation import WeightedMean
from melisma.learning.parameters import Parameters


def stack_of(learners: int, seed: int = 0) -> Parameters:
    source = torch.Generator().manual_seed(seed)
    return {
        "weight": torch.randn(learners, 3, 2, generator=source),
        "bias": torch.randn(learners, 2, generator=source),
    }


@given(st.lists(st.integers(0, 60_000), min_size=2, max_size=9), st.integers(1, 8))
def test_any_way_of_streaming_gives_the_weighted_mean(
    weights: list[int], cut: int
) -> None:
    weights[0] += 1
    stack, mean = stack_of(len(weights)), WeightedMean()
    for part in (slice(None, cut), slice(cut, None)):
        mean.add({name: v[part] for name, v in stack.items()}, weights[part])
    expected = np.average(stack["weight"].double(), axis=0, weights=weights)
    np.testing.assert_allclose(mean.result()["weight"], expected, atol=1e-6)


def test_a_learner_that_is_not_finite_is_left_out_and_named() -> None:
    stack, mean = stack_of(3), WeightedMean()
    stack["bias"][1, 0] = torch.nan
    assert mean.add(stack, [1, 5, 1]) == [1]
    expected = (stack["weight"][0] + stack["weight"][2]) / 2
    torch.testing.assert_close(mean.result()["weight"], expected)


def test_infinity_of_no_weight_does_no_harm() -> None:
    stack, mean = stack_of(2), WeightedMean()
    stack["weight"][0] = torch.inf
    assert mean.add(stack, [0, 3]) == [0]
    torch.testing.assert_close(mean.result()["weight"], stack["weight"][1])


def test_memory_does_not_grow_with_the_learners() -> None:
    mean = WeightedMean()
    for seed in range(5):
        mean.add(stack_of(4, seed), [1, 1, 1, 1])
    held = sum(v.numel() * v.element_size() for v in mean._sum.values())
    assert held == 2 * 4 * (3 * 2 + 2)  # two models of float32


@pytest.mark.parametrize("weights", [[], [0, 0]])
def test_a_mean_of_nothing_is_an_error(weights: list[int]) -> None:
    mean = WeightedMean()
    mean.add(stack_of(len(weights)), weights)
    with pytest.raises(ValueError, match="no update with any weight"):
        mean.result()
