"""Aggregation by coverage, held against plain loops over entries."""

import random

import pytest
import torch
from torch import nn

from melisma.learning.aggregation import CoordinateMedian, WeightedMean, aggregate
from melisma.learning.parameters import Parameters
from melisma.learning.settings import Rule
from melisma.learning.submodels.coverage import CoveredMean, by_entry, mean_by_entry
from melisma.learning.submodels.part import Part, everything

SHAPES = {"w": (5, 4), "b": (3,), "k": (2, 3, 2), "s": (1,)}


def drawn(seed: int) -> Parameters:
    rng = torch.Generator().manual_seed(seed)
    return {n: torch.randn(shape, generator=rng) for n, shape in SHAPES.items()}


def part(seed: int) -> Part:
    """Some rows and columns of some tensors."""
    rng = random.Random(seed)
    places = {
        name: tuple(
            torch.tensor(sorted(rng.sample(range(n), rng.randint(1, n)))) for n in shape
        )
        for name, shape in SHAPES.items()
        if rng.random() < 0.8
    } or everything(drawn(0))
    return Part(f"drawn {seed}", nn.Module(), places, places, SHAPES)


def stacks(seed: int) -> list[tuple[Part | None, Parameters, list[float]]]:
    """Updates of some parts, three at a time, and of everything."""
    rng = random.Random(seed)
    parts = [part(10 * seed + k) for k in range(3)]
    found = []
    for k, one in enumerate([*parts, None, parts[0]]):
        if one is None and seed % 2:
            continue
        updates = [drawn(1000 * seed + 10 * k + i) for i in range(3)]
        taken = updates if one is None else [one.kept(u) for u in updates]
        stack = {n: torch.stack([u[n] for u in taken]) for n in taken[0]}
        found.append((one, stack, [float(rng.randint(0, 9)) for _ in range(3)]))
    return found


def by_loops(
    before: Parameters, seed: int, most_share: float = 1.0
) -> dict[str, list[float]]:
    """Every entry by itself: those who have it, each by its place in their tensor."""
    means: dict[str, list[float]] = {}
    for name, shape in SHAPES.items():
        means[name] = []
        for flat in range(before[name].numel()):
            rest = flat
            index: list[int] = []
            for n in reversed(shape):
                index.insert(0, rest % n)
                rest //= n
            those: list[tuple[float, float]] = []
            for one, stack, weights in stacks(seed):
                for row, w in enumerate(weights):
                    w = w**3 if most_share < 1 else w  # one outweighs the others
                    at = list(index)
                    if one is not None:
                        if name not in one.up:
                            continue
                        axes = [places.tolist() for places in one.up[name]]
                        pairs = list(zip(axes, index, strict=True))
                        if any(i not in axis for axis, i in pairs):
                            continue
                        at = [axis.index(i) for axis, i in pairs]
                    those += [(w, float(stack[name][(row, *at)]))] if w else []
            those.sort()
            if len(those) > 2 and most_share < 1:
                w, value = those.pop()
                others = sum(w for w, _ in those)
                those.append((min(w, others * most_share / (1 - most_share)), value))
            weight = sum(w for w, _ in those)
            entry = float(before[name][tuple(index)])
            mean = sum(w * value for w, value in those)
            means[name].append(mean / weight if weight else entry)
    return means


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("most_share", [1.0, 0.5])
def test_each_entry_is_the_mean_of_those_who_trained_it(
    seed: int, most_share: float
) -> None:
    before = drawn(-1)
    mean = CoveredMean(before, lambda: aggregate(Rule.MEAN, 0.0, most_share))
    for one, stack, weights in stacks(seed):
        weights = [w**3 for w in weights] if most_share < 1 else weights
        assert mean.add(stack, weights, one) == []
    found, expected = mean.result(), by_loops(before, seed, most_share)
    for name, values in found.items():
        torch.testing.assert_close(
            values.flatten(), torch.tensor(expected[name]), atol=1e-5, rtol=1e-5
        )


@pytest.mark.parametrize("seed", range(5))
def test_where_all_train_all_it_is_the_weighted_mean_bit_for_bit(seed: int) -> None:
    before, plain = drawn(-1), WeightedMean()
    whole, parts = (CoveredMean(before, WeightedMean) for _ in range(2))
    places = everything(before)
    every = Part("width 1", nn.Module(), places, places, SHAPES)
    for k in range(4):
        stack = {
            n: torch.stack([drawn(10 * k + i)[n] for i in range(5)]) for n in SHAPES
        }
        weights = [float(random.Random(seed + i).randint(1, 99)) for i in range(5)]
        plain.add(stack, weights)
        whole.add(stack, weights)
        parts.add(stack, weights, every)
    for name, expected in plain.result().items():
        assert torch.equal(whole.result()[name], expected)
        assert torch.equal(parts.result()[name], expected)


def test_what_nobody_trained_stays_even_where_moments_would_move_it() -> None:
    before, one = drawn(-1), part(3)
    mean = CoveredMean(before, WeightedMean)
    mean.add({n: t[None] for n, t in one.kept(drawn(1)).items()}, [2.0], one)
    moved = mean.settled({name: t + 1 for name, t in before.items()})
    mask = one.mask(before)
    assert 0 < sum(int(m.sum()) for m in mask.values()) < 36
    for name, t in mean.result().items():
        assert torch.equal(t[~mask[name]], before[name][~mask[name]])
        assert torch.equal(moved[name], before[name] + mask[name].float())


def test_an_update_that_is_not_finite_is_refused_and_nothing_of_it_counts() -> None:
    before, one = drawn(-1), part(3)
    mean = CoveredMean(before, WeightedMean)
    stack = {n: torch.stack([t, t]) for n, t in one.kept(drawn(1)).items()}
    next(iter(stack.values()))[1] = float("nan")
    assert mean.add(stack, [1.0, 5.0], one) == [1]
    whole = one.spread(one.kept(drawn(1)), before)
    for name, t in mean.result().items():
        torch.testing.assert_close(t, whole[name])


def test_without_any_weight_there_is_no_mean() -> None:
    one = part(3)
    mean = CoveredMean(drawn(-1), WeightedMean)
    mean.add({n: t[None] for n, t in one.kept(drawn(1)).items()}, [0.0], one)
    with pytest.raises(ValueError, match="no update with any weight"):
        mean.result()


def test_robust_rules_take_no_parts() -> None:
    with pytest.raises(TypeError, match="only be averaged"):
        CoveredMean(drawn(-1), CoordinateMedian).add({}, [], part(3))


def test_lengths_are_averaged_over_those_who_trained_an_entry() -> None:
    like, one, other = drawn(-1), part(1), part(2)
    weights = {None: 0.0, one: 2.0, other: 3.0}
    found = mean_by_entry({one: 2.0 * 5, other: 3.0 * 7}, weights, like)
    both = by_entry(weights, like)
    for name, t in found.items():
        assert isinstance(t, torch.Tensor)
        mine, theirs = one.mask(like)[name], other.mask(like)[name]
        expected = torch.ones_like(t)
        expected[mine] = 5.0
        expected[theirs] = 7.0
        expected[mine & theirs] = (10 + 21) / 5
        torch.testing.assert_close(t, expected)
        assert torch.equal(both[name], 2.0 * mine + 3.0 * theirs)
