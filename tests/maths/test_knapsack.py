from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from melisma.maths.arrays import Ints
from melisma.maths.knapsack import most_items, multiple_choice

Tables = tuple[Ints, Ints, int]


def tables(seed: int, items: int, options: int, *, most: int = 30) -> Tables:
    """Gains that rise by 1 to 3 and sizes that fall, some options twice."""
    rng = np.random.default_rng(seed)
    gain = np.cumsum(rng.integers(1, 4, (options, items)), axis=0)
    size = np.cumsum(rng.integers(1, most, (options, items)), axis=0)[::-1]
    row = np.sort(rng.integers(options, size=(options, items)), axis=0)
    gain, size = (np.take_along_axis(table, row, axis=0) for table in (gain, size))
    return gain, size, int(rng.integers(size[-1].sum(), size[0].sum() + 1))


def picked(table: Ints, pick: Ints) -> Ints:
    return table[pick, np.arange(pick.size)]


@given(
    cost=st.lists(st.integers(0, 20), min_size=1, max_size=10),
    budget=st.integers(0, 100),
)
def test_most_items_are_the_cheapest(cost: list[int], budget: int) -> None:
    chosen = most_items(np.array(cost), budget)
    rest = sorted(np.array(cost)[~chosen].tolist())
    paid = int(np.array(cost) @ chosen)
    assert paid <= budget
    assert not rest or paid + rest[0] > budget
    assert not chosen.any() or not rest or np.array(cost)[chosen].max() <= rest[0]


@pytest.mark.parametrize("options", [2, 3, 4])
@pytest.mark.parametrize("items", [1, 2, 3, 4, 5])
def test_no_choice_is_better(items: int, options: int) -> None:
    ways = list(product(range(options), repeat=items))
    for seed in range(30):
        gain, size, total = tables(seed, items, options)
        pick = multiple_choice(gain, size, total)
        assert picked(size, pick).sum() >= total
        open_ = [w for w in map(np.array, ways) if picked(size, w).sum() >= total]
        assert merit(picked(gain, pick)) == max(merit(picked(gain, w)) for w in open_)


def merit(gain: Ints) -> tuple[int, int]:
    apart = sum(abs(int(a) - int(b)) for a, b in combinations(gain, 2))
    return int(gain.sum()), -apart


@pytest.mark.parametrize("most", [3, 30, 3000])
@pytest.mark.parametrize("seed", range(8))
def test_no_choice_for_many_items_gains_more(seed: int, most: int) -> None:
    gain, size, total = tables(seed, items=40 + 20 * seed, options=5, most=most)
    pick = multiple_choice(gain, size, total)
    assert picked(size, pick).sum() >= total
    assert picked(gain, pick).sum() == most_gain(gain, size, total)


@pytest.mark.parametrize("seed", range(60))
def test_no_choice_for_items_of_two_kinds_gains_more(seed: int) -> None:
    # Alike, they make the same trade several times over.
    kind = np.random.default_rng(seed).integers(2, size=12)
    gain, size = (table[:, kind] for table in tables(seed, 2, 5, most=40)[:2])
    total = int(size.mean(axis=0).sum())
    pick = multiple_choice(gain, size, total)
    assert picked(gain, pick).sum() == most_gain(gain, size, total)


def most_gain(gain: Ints, size: Ints, total: int) -> int:
    """Largest Σ gain by HiGHS."""
    options, items = gain.shape
    answer = milp(
        -gain.ravel().astype(float),
        integrality=np.ones(gain.size, dtype=np.int64),
        bounds=Bounds(0, 1),
        constraints=[
            LinearConstraint(np.tile(np.eye(items), options), 1, 1),
            LinearConstraint(size.ravel(), lb=total),
        ],
        options={"mip_rel_gap": 0.0},
    )
    assert answer.success, answer.message
    return -round(answer.fun)


def test_items_alike_do_not_need_the_relaxed_bound() -> None:
    # A top costs 10 for 3, the options between 5 for 1 and 8 for 2. Of 10·m + 7 spare,
    # m tops and one gain of 5 is the best; the relaxed bound of 3·m + 2 is not reached.
    m = 10**5
    gain = np.repeat([[0], [1], [2], [3]], 2 * m, axis=1)
    size = np.repeat([[20], [15], [12], [10]], 2 * m, axis=1)
    pick = multiple_choice(gain, size, 20 * 2 * m - (10 * m + 7))
    assert picked(gain, pick).sum() == 3 * m + 1
