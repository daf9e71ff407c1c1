"""What is learned from times, and the plans that are made of it."""

from itertools import product
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from melisma.coding import History, choose, foreseen, iterate_in_stages, two_stage
from melisma.coding.choice import SCENARIOS, timed
from melisma.coding.prediction import most_stragglers
from melisma.coding.two_stage import Helpers
from melisma.errors import ConfigError
from melisma.maths.arrays import Floats

SPEEDS = np.array([1.0, 2.0, 4.0]) / 7.0
EVEN = np.full(3, 1.0 / 3.0)


@given(
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=7).map(np.array),
    st.sampled_from([0.5, 0.9, 0.95, 0.99]),
)
def test_stragglers_are_counted_as_by_enumeration(p: Floats, sure: float) -> None:
    at_most = np.zeros(p.size + 1)
    for late in product([0, 1], repeat=p.size):
        chance = float(np.prod(np.where(late, p, 1.0 - p)))
        at_most[sum(late) :] += chance
    s = most_stragglers(p, sure)
    assert at_most[s] >= sure - 1e-9
    assert s == 0 or at_most[s - 1] < sure + 1e-9


def test_the_usual_speed_is_that_of_fine_iterations() -> None:
    history = History(3)
    rng = np.random.default_rng(0)
    for i in range(200):
        seconds = EVEN / SPEEDS * np.exp(0.05 * rng.standard_normal(3))
        seconds[1] *= 8.0 if i % 4 == 0 else 1.0
        history.see(EVEN, seconds, np.inf)
    # A mean over about 10 iterations with a spread of 5 %: 1.7 % (one sigma).
    assert history.usual == pytest.approx(SPEEDS, rel=0.06)
    assert history.spread == pytest.approx(0.05, rel=0.2)
    assert np.median(history.slowdowns) == pytest.approx(8.0, rel=0.1)


def chain(rng: np.random.Generator, count: int, fall: float, stay: float) -> Floats:
    """A worker's states: 1 straggling."""
    states = np.zeros(count)
    for i in range(1, count):
        states[i] = rng.random() < (stay if states[i - 1] else fall)
    return states


@pytest.mark.parametrize("cut", [False, True], ids=["all seen", "ends before the late"])
def test_transitions_are_learned(cut: bool) -> None:
    # 2,000 iterations, 333 of them straggling: the chance to stay is known to within
    # 0.027 (one sigma), that to fall to within 0.007.
    history = History(1, [1.0])
    rng = np.random.default_rng(1)
    for late in chain(rng, 2000, fall=0.1, stay=0.5):
        seconds = np.exp(0.05 * rng.standard_normal(1)) * (8.0 if late else 1.0)
        history.see(np.ones(1), seconds, 1.25 if cut else np.inf)
    history.see(np.ones(1), np.ones(1), np.inf)
    assert history.straggling[0] == pytest.approx(0.1, abs=0.025)
    history.see(np.ones(1), np.full(1, 8.0), np.inf)
    assert history.straggling[0] == pytest.approx(0.5, abs=0.09)


def test_who_is_cut_off_early_counts_little() -> None:
    # Nothing is said by an iteration that ends when one worker in two has answered.
    history = History(1, [1.0])
    for _ in range(20):
        history.see(np.ones(1), np.full(1, 8.0), 0.5)
    # The chain goes on by itself, 0.1 to fall and 0.5 to rise: 1/6 in the long run.
    assert history.straggling[0] == pytest.approx(1.0 / 6.0, abs=0.001)
    assert history.slowdowns == []
    history.see(np.ones(1), np.ones(1), np.inf)
    assert history.straggling[0] == pytest.approx(0.1, abs=0.005)


def test_a_first_answer_by_a_straggler_is_put_right() -> None:
    history = History(1)
    history.see(np.ones(1), np.full(1, 8.0), np.inf)
    history.see(np.ones(1), np.ones(1), np.inf)
    assert history.usual[0] == 1.0


def test_persistent_stragglers_are_expected_to_be_slow_and_get_less() -> None:
    history = History(3, SPEEDS)
    for _ in range(30):
        history.see(EVEN, EVEN / SPEEDS * np.array([8.0, 1.0, 1.0]), np.inf)
    assert history.straggling[0] > 0.9
    assert history.stragglers() == 1
    assert history.speeds[0] < 0.25 * SPEEDS[0]
    assert history.speeds[1:] == pytest.approx(SPEEDS[1:], rel=0.05)


def test_a_straggler_that_recovers_is_seen_to() -> None:
    history = History(3, SPEEDS)
    for _ in range(30):
        history.see(EVEN, np.where([True, False, False], np.inf, EVEN / SPEEDS), 9.0)
    assert history.speeds[0] == pytest.approx(0.1 * SPEEDS[0])
    history.see(EVEN, EVEN / SPEEDS, np.inf)
    assert history.straggling[0] < 0.5
    assert history.speeds == pytest.approx(SPEEDS)


def test_who_has_no_work_may_change_unseen() -> None:
    history = History(1, [1.0])
    history.see(np.ones(1), np.full(1, 8.0), np.inf)
    # From straggling: PRIOR and nothing else, 0.5 to stay, then 0.5·0.5 + 0.5·p.
    once = history.straggling[0]
    history.see(np.zeros(1), np.full(1, np.inf), 1.0)
    fall = (0.2 + 1.0) / 3.0
    assert once == pytest.approx(0.5)
    assert history.straggling[0] == pytest.approx(0.5 * 0.5 + 0.5 * fall)


def test_workers_nobody_has_seen_have_no_speed() -> None:
    history = History(2)
    history.see(np.array([1.0, 0.0]), np.array([2.0, np.inf]), 2.0)
    with pytest.raises(ConfigError, match=r"no speeds of workers \[1\]"):
        _ = history.speeds


def test_who_has_never_answered_was_slower_than_its_share_by_the_end() -> None:
    history, share = History(2), np.array([0.5, 0.5])
    for end_s in (2.0, 4.0, 3.0):
        history.see(share, np.array([1.0, np.inf]), end_s)
    assert history.speeds.tolist() == [0.5, 0.5 / 4.0]
    drawn = history.scenarios(400, np.random.default_rng(0))
    assert np.median(drawn[:, 1]) == pytest.approx(8.0, rel=0.02)
    history.see(share, np.array([1.0, 5.0]), 5.0)  # no straggler: this is its speed
    assert history.speeds.tolist() == [0.5, 0.1]
    assert history.slowdowns == []


def test_each_may_have_had_another_time_to_answer() -> None:
    # Both take 3 s for what takes 1 s; the second had begun 2 s before the end.
    history = History(2, [0.5, 0.5])
    history.see(np.array([0.5, 0.5]), np.array([3.0, 3.0]), np.array([4.0, 2.0]))
    assert history.slowdowns == [3.0, np.inf]


def test_scenarios_are_drawn_from_what_was_seen() -> None:
    history = History(3, SPEEDS)
    rng = np.random.default_rng(0)
    for i in range(100):
        late = np.where(np.arange(3) == i % 6, 8.0, 1.0)
        history.see(EVEN, EVEN / SPEEDS * late, np.inf)
    drawn = history.scenarios(4000, rng) * SPEEDS
    straggled = drawn > 2.0
    # P(late) of about 1/6 in 4,000 drawings: ± 0.006 (one sigma).
    assert straggled.mean(axis=0) == pytest.approx(history.straggling, abs=0.025)
    assert np.median(drawn[straggled]) == pytest.approx(8.0, rel=0.1)
    assert np.median(drawn[~straggled]) == pytest.approx(1.0, rel=0.01)


def scenarios(late: float, factor: float, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    seconds = np.exp(0.05 * rng.standard_normal((16, 4))) * 4.0
    return np.where(rng.random((16, 4)) < late, seconds * factor, seconds)


@pytest.mark.slow
@pytest.mark.parametrize("helpers", get_args(Helpers))
@pytest.mark.parametrize("factor", [3.0, 8.0])
def test_the_time_for_stage_two_is_nearly_the_best(
    helpers: Helpers, factor: float
) -> None:
    drawn = scenarios(0.15, factor)
    scheme = two_stage(workers=4, stragglers=1, helpers=helpers)
    plan = timed(scheme, drawn)

    def mean_s(t: float) -> float:
        return float(
            np.mean([iterate_in_stages(scheme, t, row).duration_s for row in drawn])
        )

    assert plan.expected_s == pytest.approx(mean_s(plan.t_comp_s))
    assert plan.expected_s <= 1.01 * min(mean_s(t) for t in np.linspace(0.0, 6.0, 121))


@pytest.mark.slow
@pytest.mark.parametrize(("late", "winners"), [(0.3, [0, 1]), (0.15, [1, 2, 3])])
def test_those_who_start_are_the_best_of_the_fastest_and_of_the_slowest(
    late: float, winners: list[int]
) -> None:
    speeds = np.array([2.0, 3.0, 6.0, 4.0]) / 15.0
    drawn = scenarios(late, 3.0, seed=1) / 4.0 / speeds
    plan = choose(drawn, stragglers=1, speeds=speeds, helpers="reserved")
    starts = [[2], [2, 3], [2, 3, 1], [0], [0, 1], [0, 1, 3]]
    expected = [
        timed(
            two_stage(
                workers=4, stragglers=1, speeds=speeds, helpers="reserved", first=first
            ),
            drawn,
        ).expected_s
        for first in starts
    ]
    assert plan.expected_s == min(expected)
    best = starts[int(np.argmin(expected))]
    assert np.flatnonzero(plan.scheme.loads).tolist() == sorted(best) == winners


def test_those_who_are_to_start_start_and_the_time_is_chosen_for_them() -> None:
    drawn = scenarios(0.15, 8.0)
    plan = choose(drawn, stragglers=1, speeds=np.ones(4), helpers="ring", first=[1, 3])
    assert np.flatnonzero(plan.scheme.loads).tolist() == [1, 3]
    scheme = two_stage(workers=4, stragglers=1, helpers="ring", first=[1, 3])
    assert plan.expected_s == timed(scheme, drawn).expected_s


@pytest.mark.slow
def test_helping_is_planned_to_be_faster_than_waiting_to_help() -> None:
    drawn = scenarios(0.15, 8.0)
    plans = {
        helpers: choose(
            drawn,
            stragglers=1,
            speeds=np.ones(4),
            helpers=helpers,
        )
        for helpers in get_args(Helpers)
    }
    for waiting in ("reserved", "ring"):
        assert plans["finished"].expected_s < 0.8 * plans[waiting].expected_s


def test_scenarios_that_end_in_nothing_are_dear_but_not_endless() -> None:
    drawn = scenarios(0.4, np.inf)
    assert np.isinf(drawn).all(axis=1).any() or np.isinf(drawn).sum(axis=1).max() >= 2
    plan = choose(drawn, stragglers=1, speeds=np.ones(4))
    assert np.isfinite(plan.expected_s)


def test_nothing_is_planned_for_the_dead() -> None:
    with pytest.raises(ConfigError, match="every worker is dead in every scenario"):
        choose(np.full((2, 3), np.inf), stragglers=1, speeds=np.ones(3))
    with pytest.raises(ConfigError, match=r"scenarios of shape \(3,\)"):
        choose(np.ones(3), stragglers=1, speeds=np.ones(3))


@pytest.mark.parametrize(
    ("given", "helpers", "trusting"),
    [(None, "finished", True), (1, "finished", False), (None, "ring", False)],
)
def test_what_is_foreseen_is_chosen_by_what_was_seen(
    given: int | None, helpers: Helpers, trusting: bool
) -> None:
    history = History(3)
    for late in range(3):  # each straggles once
        seconds = EVEN / SPEEDS
        seconds[late] *= 8.0
        history.see(EVEN, seconds, np.inf)
    plan = foreseen(
        history, np.random.default_rng(1), stragglers=given, helpers=helpers
    )
    chosen = choose(
        history.scenarios(SCENARIOS, np.random.default_rng(1)),
        stragglers=history.stragglers() if given is None else given,
        speeds=history.speeds,
        helpers=helpers,
        trusting=trusting,
    )
    assert plan.scheme.loads.tolist() == chosen.scheme.loads.tolist()
    assert plan.scheme.stragglers == chosen.scheme.stragglers
    assert plan.scheme.trusting == trusting
    assert (plan.t_comp_s, plan.expected_s) == (chosen.t_comp_s, chosen.expected_s)


def test_no_more_are_foreseen_to_straggle_than_could_be_tolerated() -> None:
    plan = foreseen(History(3, SPEEDS), np.random.default_rng(0), stragglers=7)
    assert plan.scheme.stragglers == 2
