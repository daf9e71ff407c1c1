"""Iterations in virtual time, and the earliest moment of each."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.coding.codes import CODED, TESTBED, gradients, make, spans

from melisma.coding import (
    CODES,
    Arrivals,
    Code,
    fractional,
    genie_s,
    hetero,
    iterate,
    iterate_in_stages,
    recovered,
    two_stage,
    uncoded,
)
from melisma.coding.arrivals import enough
from melisma.errors import ConfigError
from melisma.maths.arrays import Floats


def epochs(count: int, late: int, factor: float, seed: int = 0) -> list[Floats]:
    """Seconds for all data of the testbed's workers; some are slower by a factor."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        whole_s = np.exp(0.05 * rng.standard_normal(6)) / TESTBED
        whole_s[rng.permutation(6)[:late]] *= factor
        found.append(whole_s)
    return found


def first_that_spans(code: Code, order: list[int]) -> int:
    """How many answers are enough: by rank, one prefix after the other."""
    alive = np.zeros(code.workers, dtype=np.bool_)
    for count, worker in enumerate(order, start=1):
        alive[worker] = True
        if spans(code, alive):
            return count
    return len(order) + 1


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(["uncoded", *CODED]),
    workers=st.integers(1, 9),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_the_earliest_moment_is_the_earliest(
    name: str, workers: int, seed: int, data: st.DataObject
) -> None:
    code = make(name, workers, data.draw(st.integers(0, workers - 1)), seed)
    order = data.draw(st.permutations(range(workers)))
    count = first_that_spans(code, order)
    assert enough(code, order) == count
    arrivals = Arrivals(code)
    said = [arrivals.add(worker) for worker in order]
    assert said == [i >= count for i in range(1, workers + 1)]
    assert code.error(arrivals.weights) < 1e-7


def test_fractional_answers_may_be_enough_long_before_all_but_s_have_come() -> None:
    code = fractional(workers=100, stragglers=9)
    order = [10 * i for i in range(10)] + [w for w in range(100) if w % 10]
    assert enough(code, order) == 10


def test_a_worker_needs_its_part_of_the_time_for_all() -> None:
    # 8 of 16 partitions at 10 s for all: 5 s, and 1 s to send; the other 8 at 4 s.
    code = uncoded(workers=2, partitions=16)
    outcome = iterate(code, [10.0, 4.0], [1.0, 0.5])
    assert outcome.answered_s.tolist() == [6.0, 2.5]
    assert outcome.duration_s == 6.0
    assert outcome.used.all()


def test_codes_with_more_partitions_take_no_longer() -> None:
    for K in (14, 28, 140):
        code = uncoded(workers=6, speeds=TESTBED, partitions=K)
        assert iterate(code, 1.0 / TESTBED).duration_s == pytest.approx(1.0)


def test_one_dead_worker_is_waited_for_by_uncoded_alone() -> None:
    whole_s = 1.0 / TESTBED
    whole_s[3] = np.inf
    outcome = iterate(uncoded(workers=6, speeds=TESTBED), whole_s)
    assert outcome.duration_s == np.inf
    assert not outcome.used.any()
    code = hetero(workers=6, stragglers=1, speeds=TESTBED)
    assert iterate(code, whole_s).duration_s == pytest.approx(2.0)


def test_two_stages_reuse_what_is_finished() -> None:
    # Speeds 1, 1, 2 of all data in 4 s: everybody needs 1 s, the last is dead. From
    # 1.2 s on two workers share its half: 1 s for a quarter of the data each.
    scheme = two_stage(workers=3, stragglers=1, speeds=[1, 1, 2], partitions=8)
    whole_s = np.array([4.0, 4.0, np.inf])
    outcome = iterate_in_stages(scheme, 1.2, whole_s)
    assert outcome.finished.tolist() == [True, True, False]
    assert outcome.duration_s == pytest.approx(2.2)
    assert outcome.second_s is not None
    assert outcome.second_s.tolist() == pytest.approx([2.2, 2.2, np.inf])


def test_who_is_only_a_little_late_is_not_waited_for_longer_than_needed() -> None:
    scheme = two_stage(workers=3, stragglers=1, speeds=[1, 1, 2], partitions=8)
    outcome = iterate_in_stages(scheme, 1.2, [4.0, 4.0, 2.6])
    assert outcome.duration_s == pytest.approx(1.3)
    assert outcome.used.all()


def test_no_coding_if_all_are_on_time() -> None:
    scheme = two_stage(workers=3, stragglers=1, speeds=[1, 1, 2], partitions=8)
    outcome = iterate_in_stages(scheme, 1.2, [4.0, 4.4, 2.0])
    assert outcome.rest is None
    assert outcome.duration_s == pytest.approx(1.1)


@pytest.mark.parametrize("late", [0, 1, 2])
@pytest.mark.parametrize("variant", [{}, {"coded": "ring"}, {"helpers": "reserved"}])
def test_the_gradient_is_that_of_all_data(late: int, variant: dict[str, Any]) -> None:
    scheme = two_stage(workers=6, stragglers=2, speeds=TESTBED, **variant)
    g = gradients(scheme)
    for whole_s in epochs(10, late, 8.0):
        outcome = iterate_in_stages(scheme, 1.1, whole_s)
        assert recovered(scheme, outcome, g) == pytest.approx(g.sum(axis=0))


@pytest.mark.parametrize("name", ["uncoded", *CODED])
def test_the_gradient_of_one_stage_is_that_of_all_data(name: str) -> None:
    code = make(name, 6, 2)
    g = gradients(code)
    for whole_s in epochs(5, 2, 8.0):
        outcome = iterate(code, whole_s)
        assert recovered(code, outcome, g) == pytest.approx(g.sum(axis=0))


@given(
    st.lists(
        st.tuples(st.floats(0.1, 50.0), st.floats(0.0, 5.0)), min_size=1, max_size=6
    )
)
def test_the_genies_share_is_feasible_and_none_is_better(
    pairs: list[tuple[float, float]],
) -> None:
    # At its time t all data is just done: Σ (t − upload)⁺ / whole = 1.
    whole_s, upload_s = np.array(pairs).T
    t = genie_s(whole_s, upload_s)
    done = (np.maximum(t - upload_s, 0.0) / whole_s).sum()
    assert done == pytest.approx(1.0)


def test_nobody_beats_the_genie() -> None:
    for whole_s in epochs(10, 1, 8.0):
        bound_s = genie_s(whole_s) * (1.0 - 1e-12)
        for name in CODES:
            code = CODES[name](workers=6, stragglers=1)
            if name != "two-stage":
                assert iterate(code, whole_s).duration_s >= bound_s
        scheme = two_stage(workers=6, stragglers=1, speeds=TESTBED)
        for t in (0.5, 1.0, 1.5):
            assert iterate_in_stages(scheme, t, whole_s).duration_s >= bound_s


def mean_s(durations: list[float]) -> float:
    return float(np.mean(durations))


@pytest.mark.parametrize("factor", [8.0, np.inf])
def test_helping_beats_coding_everything_on_the_papers_testbed(factor: float) -> None:
    # Expected: a quarter below heterogeneity-aware, half of fractional (equal loads).
    times = epochs(150, 1, factor)
    ours = two_stage(workers=6, stragglers=1, speeds=TESTBED)
    coded = hetero(workers=6, stragglers=1, speeds=TESTBED)
    equal = fractional(workers=6, stragglers=1)
    mean = mean_s([iterate_in_stages(ours, 1.12, t).duration_s for t in times])
    assert mean < 0.75 * mean_s([iterate(coded, t).duration_s for t in times])
    assert mean < 0.5 * mean_s([iterate(equal, t).duration_s for t in times])


@pytest.mark.parametrize("whole_s", [[1.0], [1.0, 0.0], [1.0, np.nan]])
def test_bad_times_are_refused(whole_s: list[float]) -> None:
    with pytest.raises(
        ConfigError, match=r"whole_s .*: give (one number or .2,|numbers above 0)"
    ):
        iterate(uncoded(workers=2), whole_s)
