import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import trim_mean

from melisma.errors import ConfigError
from melisma.learning.aggregation import (
    Aggregate,
    CappedMean,
    CoordinateMedian,
    TrimmedMean,
    WeightedMean,
    aggregate,
    clip,
)
from melisma.learning.parameters import Parameters, all_finite
from melisma.learning.settings import Rule
from melisma.maths.arrays import Floats


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


def halves(stack: Parameters, cut: int) -> tuple[Parameters, Parameters]:
    return (
        {name: values[:cut] for name, values in stack.items()},
        {name: values[cut:] for name, values in stack.items()},
    )


def result_of(total: Aggregate, stack: Parameters) -> Parameters:
    learners = len(stack["bias"])
    assert total.add(stack, [1] * learners) == []
    return total.result()


@pytest.mark.parametrize("rule", Rule)
def test_every_rule_starts_anew(rule: Rule) -> None:
    first, second = aggregate(rule, 0.1), aggregate(rule, 0.1)
    first.add(stack_of(2), [3, 4])
    assert first.weight == 7
    assert second.weight == 0


@given(st.integers(1, 12), st.integers(0, 5))
def test_the_median_is_numpys(learners: int, seed: int) -> None:
    stack = stack_of(learners, seed)
    found = result_of(CoordinateMedian(), stack)
    for name, values in stack.items():
        expected = np.median(values.double(), axis=0)
        np.testing.assert_allclose(found[name], expected, rtol=1e-6)


@given(st.integers(1, 120), st.integers(0, 49))
def test_the_trimmed_mean_is_the_mean_of_the_slice_of_the_sorted(
    learners: int, percent: int
) -> None:
    stack, cut = stack_of(learners), percent * learners // 100
    found = result_of(TrimmedMean(percent / 100), stack)
    for name, values in stack.items():
        rest = np.sort(values.double().numpy(), axis=0)[cut : learners - cut]
        np.testing.assert_allclose(found[name], rest.mean(axis=0), rtol=1e-5, atol=1e-7)


def test_as_many_are_trimmed_as_was_meant() -> None:
    # In binary 0.29·100 < 29: the 29th attacker of 100 would stay.
    stack = {"bias": torch.zeros(100, 1)}
    stack["bias"][:29] = 1e6
    assert result_of(TrimmedMean(0.29), stack)["bias"].item() == 0


@pytest.mark.parametrize("trim", [0.0, 0.1, 0.25, 0.49])
def test_the_trimmed_mean_is_scipys(trim: float) -> None:
    stack = stack_of(23)
    found = result_of(TrimmedMean(trim), stack)["weight"]
    expected = trim_mean(stack["weight"].double().numpy(), trim, axis=0)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("rule", [Rule.MEDIAN, Rule.TRIMMED])
@given(order=st.permutations(range(7)), cut=st.integers(0, 7))
def test_neither_order_nor_chunks_matter(
    rule: Rule, order: list[int], cut: int
) -> None:
    stack, total = stack_of(7), aggregate(rule, 0.2)
    for part in halves({n: values[order] for n, values in stack.items()}, cut):
        total.add(part, [1] * len(part["bias"]))
    expected = result_of(aggregate(rule, 0.2), stack)
    for name, value in total.result().items():
        assert torch.equal(value, expected[name])


@pytest.mark.parametrize("rule", [Rule.MEDIAN, Rule.TRIMMED])
@given(
    attackers=st.integers(1, 4),
    huge=st.floats(width=32, allow_nan=False, allow_infinity=False),
    seed=st.integers(0, 9),
)
def test_a_minority_cannot_leave_the_range_of_the_honest(
    rule: Rule, attackers: int, huge: float, seed: int
) -> None:
    honest, attack = stack_of(9 - attackers, seed), stack_of(attackers)
    total = aggregate(rule, 0.45)  # ⌊0.45·9⌋ = 4
    total.add(
        {name: torch.full_like(v, huge) for name, v in attack.items()},
        [9.0] * attackers,
    )
    total.add(honest, [1.0] * (9 - attackers))
    for name, value in total.result().items():
        assert (value >= honest[name].amin(0)).all()
        assert (value <= honest[name].amax(0)).all()


def test_one_attacker_does_move_the_mean() -> None:
    stack = stack_of(9)
    stack["bias"][0] = 1e30
    assert (result_of(WeightedMean(), stack)["bias"] > 1e28).all()


@pytest.mark.parametrize("rule", [Rule.MEDIAN, Rule.TRIMMED])
def test_who_is_not_finite_or_trained_nothing_has_no_vote(rule: Rule) -> None:
    stack, total = stack_of(5), aggregate(rule, 0.0)
    stack["bias"][1, 0] = torch.nan
    stack["weight"][3] = torch.inf
    assert total.add(stack, [2, 5, 0, 0, 3]) == [1, 3]
    assert total.weight == 5
    expected = (stack["weight"][0] + stack["weight"][4]) / 2
    torch.testing.assert_close(total.result()["weight"], expected)


@pytest.mark.parametrize("rule", [Rule.MEDIAN, Rule.TRIMMED])
def test_what_is_added_may_change_afterwards(rule: Rule) -> None:
    stack, total = stack_of(3), aggregate(rule, 0.0)
    expected = result_of(aggregate(rule, 0.0), stack_of(3))
    total.add(stack, [1, 1, 1])
    stack["bias"].fill_(7)
    assert torch.equal(total.result()["bias"], expected["bias"])


@pytest.mark.parametrize("rule", Rule)
@pytest.mark.parametrize("weights", [[], [0, 0]])
def test_nothing_aggregates_to_an_error(rule: Rule, weights: list[int]) -> None:
    total = aggregate(rule, 0.1)
    total.add(stack_of(len(weights)), weights)
    with pytest.raises(ValueError, match="no update with any weight"):
        total.result()


@pytest.mark.parametrize("trim", [-0.1, 0.5, float("nan")])
def test_a_trim_that_leaves_nothing_is_refused(trim: float) -> None:
    with pytest.raises(ConfigError, match=r"give a share from 0 to below 0\.5"):
        aggregate(Rule.TRIMMED, trim)


def moves(stack: Parameters, before: Parameters) -> Floats:
    flat = [(v.double() - before[n].double()).flatten(1) for n, v in stack.items()]
    return np.asarray(np.linalg.norm(torch.cat(flat, dim=1).numpy(), axis=1))


@given(st.floats(0.1, 10), st.floats(0.01, 1e6))
def test_nobody_moves_further_than_allowed(most: float, scale: float) -> None:
    before = {name: v[0] for name, v in stack_of(1, 7).items()}
    stack = {name: before[name] + scale * v for name, v in stack_of(5).items()}
    clipped, rows = clip(stack, before, most)
    assert rows == np.flatnonzero(moves(stack, before) > most).tolist()
    np.testing.assert_allclose(
        moves(clipped, before),
        np.minimum(moves(stack, before), most),
        rtol=1e-5,
        atol=1e-6,
    )


def test_clipping_keeps_the_direction() -> None:
    # (3, 4) is 5 long; 1 of it is (0.6, 0.8).
    before = {"bias": torch.tensor([1.0, 1.0])}
    stack = {"bias": torch.tensor([[4.0, 5.0]])}
    clipped, rows = clip(stack, before, 1.0)
    torch.testing.assert_close(clipped["bias"], torch.tensor([[1.6, 1.8]]))
    assert rows == [0]
    assert stack["bias"].tolist() == [[4.0, 5.0]]


@pytest.mark.parametrize("far", [1.0, 1e3])
def test_short_updates_come_back_bit_for_bit(far: float) -> None:
    before = {name: v[0] for name, v in stack_of(1, 7).items()}
    stack = {name: before[name] + 1e-3 * v for name, v in stack_of(4).items()}
    stack["bias"][2] += far - 1
    clipped, rows = clip(stack, before, 0.5)
    assert rows == ([2] if far > 1 else [])
    for name, values in stack.items():
        assert torch.equal(clipped[name][[0, 1, 3]], values[[0, 1, 3]])


def test_what_is_not_finite_is_left_to_be_refused() -> None:
    before = {name: v[0] for name, v in stack_of(1).items()}
    stack = stack_of(4)
    stack["bias"][0, 0] = torch.nan
    stack["bias"][1] = torch.inf
    stack["weight"][2] = 3e38  # finite, though its square is not in float32
    clipped, rows = clip(stack, before, 100.0)
    assert rows == [2]
    assert clipped["bias"][1].tolist() == [torch.inf] * 2
    assert WeightedMean().add(clipped, [1] * 4) == [0, 1]


@pytest.mark.parametrize("most", [0.0, -1.0, float("inf"), float("nan")])
def test_a_clip_is_a_positive_number(most: float) -> None:
    with pytest.raises(ConfigError, match="give a finite number above 0"):
        clip(stack_of(1), {name: v[0] for name, v in stack_of(1).items()}, most)


@pytest.mark.parametrize("huge", [3e38, -3e38, 1e37])
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_what_overflows_once_it_is_weighted_is_refused(
    huge: float, share: float
) -> None:
    stack, mean = stack_of(3), aggregate(Rule.MEAN, 0.1, share)
    stack["bias"][1, 0] = huge  # 1e37 of weight 50 is 5e38, above float32's 3.4e38
    assert mean.add(stack, [50, 50, 50]) == [1]
    expected = (stack["weight"][0] + stack["weight"][2]) / 2
    torch.testing.assert_close(mean.result()["weight"], expected)


@pytest.mark.parametrize("together", [True, False])
def test_updates_that_overflow_only_together_are_weighed_in_double(
    together: bool,
) -> None:
    stack, mean = {"bias": torch.full((4, 2), 2e38)}, WeightedMean()
    for part in [stack] if together else halves(stack, 1):
        assert mean.add(part, [1] * len(part["bias"])) == []
    torch.testing.assert_close(mean.result()["bias"], torch.full((2,), 2e38))


@pytest.mark.parametrize("rule", Rule)
def test_no_rule_makes_a_model_that_is_not_finite(rule: Rule) -> None:
    stack, total = {"bias": torch.full((3, 2), 3e38)}, aggregate(rule, 0.1, 0.5)
    total.add(stack, [1, 1, 1])
    assert all_finite(total.result())
    clipped, shortened = clip(stack, {"bias": torch.zeros(2)}, 1.0)
    assert shortened == [0, 1, 2]
    assert all_finite(clipped)


@given(st.permutations([(900, 1.0), (10, 0.0), (5, 0.0), (5, 0.0)]))
def test_nobody_outweighs_all_the_others(updates: list[tuple[int, float]]) -> None:
    # 900 of 920 would be 0.98 of the mean; at most as much as 20 of 40 is half.
    mean = CappedMean(0.5)
    for weight, value in updates:
        mean.add({"bias": torch.full((1, 1), value)}, [weight])
    assert mean.result()["bias"].item() == pytest.approx(0.5)
    assert mean.weight == 920


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 6))
def test_a_limit_that_nobody_reaches_changes_nothing(
    weights: list[int], cut: int
) -> None:
    if len(weights) > 2:
        weights = [min(weight, 1 + min(weights)) for weight in weights]
    stack, mean, capped = stack_of(len(weights)), WeightedMean(), CappedMean(0.999)
    for part, some in zip(
        halves(stack, cut), (weights[:cut], weights[cut:]), strict=True
    ):
        mean.add(part, some)
        capped.add(part, some)
    for name, value in mean.result().items():
        torch.testing.assert_close(capped.result()[name], value)


def test_a_limited_mean_of_nothing_is_an_error() -> None:
    mean = CappedMean(0.5)
    mean.add(stack_of(2), [0, 0])
    with pytest.raises(ValueError, match="no update with any weight"):
        mean.result()
