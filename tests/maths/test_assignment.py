"""Tasks to workers: against every way to share a few out."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from melisma.errors import InfeasibleError
from melisma.maths.arrays import Floats, Ints
from melisma.maths.assignment import cheapest, soonest, within


def ways(most: Ints, number: int) -> list[Ints]:
    ranges = [range(int(m) + 1) for m in most]
    return [np.array(w) for w in product(*ranges) if sum(w) == number]


def ends(tasks: Ints, fixed: Floats, each: Floats) -> float:
    return float(np.where(tasks > 0, fixed + each * tasks, 0.0).max())


def instance(seed: int) -> tuple[Floats, Floats, Ints, int]:
    rng = np.random.default_rng(seed)
    workers = int(rng.integers(1, 5))
    most = rng.integers(0, 5, workers)
    fixed, each = rng.uniform(0, 3, workers), rng.uniform(0.1, 3, workers)
    if seed % 3 == 0:  # ties
        fixed, each = np.round(fixed), np.ceil(each)
    return fixed, each, most, int(rng.integers(0, most.sum() + 1))


@pytest.mark.parametrize("seed", range(300))
def test_no_other_way_is_done_sooner_or_costs_less(seed: int) -> None:
    fixed, each, most, number = instance(seed)
    others = ways(most, number)
    first = soonest(fixed, each, most, number)
    assert first.sum() == number
    assert ((first >= 0) & (first <= most)).all()
    assert ends(first, fixed, each) == min(ends(w, fixed, each) for w in others)
    least = cheapest(each, most, number)
    assert least.sum() == number
    assert ((least >= 0) & (least <= most)).all()
    assert least @ each == pytest.approx(min(float(w @ each) for w in others))


@pytest.mark.parametrize("seed", range(100))
def test_what_fits_does_and_one_more_does_not(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fixed, each = rng.uniform(0, 3, 50), rng.uniform(0.01, 3, 50)
    most = rng.integers(0, 400, 50)
    # Times at which somebody is just done, as rounding has it.
    at = int(rng.integers(50))
    time = float(fixed[at] + each[at] * rng.integers(1, 30))
    tasks = within(time, fixed, each, most)
    assert (fixed + each * tasks)[tasks > 0].max(initial=0.0) <= time
    more = tasks < most
    assert ((fixed + each * (tasks + 1))[more] > time).all()


@pytest.mark.parametrize("seed", range(50))
def test_several_deadlines_together_are_as_each_alone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fixed, each, cost = rng.uniform(0.1, 3, (3, 20))
    most = rng.integers(0, 400, 20)
    times = rng.uniform(20, 60, 5)
    together = within(times[:, None], fixed, each, most)
    number = int(together.sum(axis=1).min())
    tasks = cheapest(cost, together, number)
    for time, row in zip(times.tolist(), tasks, strict=True):
        alone = cheapest(cost, within(time, fixed, each, most), number)
        assert row.tolist() == alone.tolist()
    with pytest.raises(InfeasibleError, match=f"that may do {number} together"):
        cheapest(cost, together, number + 1)


def test_many_tasks_and_workers_are_as_optimal_as_lower_bounds_allow() -> None:
    rng = np.random.default_rng(0)
    fixed, each = rng.uniform(1, 10, 1000), rng.uniform(1, 10, 1000)
    most, number = np.full(1000, 10**6), 10**6
    tasks = soonest(fixed, each, most, number)
    end = ends(tasks, fixed, each)
    # By any earlier time there is not room for all.
    assert within(np.nextafter(end, 0.0), fixed, each, most).sum() < number
    assert tasks.sum() == number


@pytest.mark.parametrize(
    "solve",
    [
        lambda most: soonest(np.ones(3), np.ones(3), most, 7),
        lambda most: cheapest(np.ones(3), most, 7),
    ],
)
def test_too_many_tasks_are_refused(solve: Callable[[Ints], Ints]) -> None:
    with pytest.raises(InfeasibleError, match="7 tasks for 3 workers that may do 6"):
        solve(np.array([1, 2, 3]))


def test_no_task_takes_no_time() -> None:
    one = np.ones(2)
    assert soonest(one, one, np.array([3, 3]), 0).tolist() == [0, 0]
    assert cheapest(one, np.array([3, 3]), 0).tolist() == [0, 0]
