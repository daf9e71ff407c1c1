"""Moving data without knowing the future, and the paper's settings."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fog.movements import disturbed, pair, some

from melisma.errors import ConfigError
from melisma.fog import (
    Links,
    Movement,
    alone,
    averages,
    carried_out,
    check,
    cost,
    estimated,
    known,
    move,
    rolling,
)
from melisma.fog.forecasts import average
from melisma.fog.online import Alone, Course, Known, Rolling, Windows
from melisma.fog.settings import draw, run


def steady(slots: int) -> Movement:
    """A world that does not change: device 0 should send all to device 1."""
    return Movement(
        data=np.array(10.0),
        process_cost=np.tile([5.0, 1.0], (slots, 1)),
        links=Links.always(2, slots, [0], [1]),
        link_cost=np.array(1.0),
        discard_cost=np.array(3.0),
    )


def test_the_first_window_works_alone_and_the_others_by_the_one_before() -> None:
    flows = estimated(steady(6), 3)
    assert flows.kept[:, 0] == pytest.approx([10, 10, 0, 0, 0, 0], abs=1e-3)
    assert flows.sent == pytest.approx([0, 0, 10, 10, 10, 10], abs=1e-3)


def test_shares_of_a_plan_are_carried_out_on_the_data_that_come() -> None:
    # Window 2 expects 10 samples and sends all: of 4 it sends 4, of 30 it sends 30.
    problem = replace(steady(4), data=np.array([[10.0, 0], [10, 0], [4, 0], [30, 0]]))
    assert estimated(problem, 2).sent == pytest.approx([0, 0, 4, 30], abs=1e-2)


def test_who_has_no_room_refuses_and_refused_data_is_kept_or_discarded() -> None:
    # Slot 2 would send 10, but device 1 has room for 6 in slot 3: 4 come back. Keeping
    # them at 5 is dearer than discarding at 3.
    capacity = np.full((4, 2), 20.0)
    capacity[3, 1] = 6.0
    flows = estimated(replace(steady(4), capacity=capacity), 2)
    assert flows.sent[2] == pytest.approx(6.0, abs=1e-3)
    assert flows.discarded[2, 0] == pytest.approx(4.0, abs=1e-3)
    cheap = replace(steady(4), capacity=capacity, discard_cost=np.array(5.5))
    assert estimated(cheap, 2).kept[2, 0] == pytest.approx(4.0, abs=1e-3)


def test_what_was_sent_goes_before_the_receivers_own() -> None:
    capacity = np.full((4, 2), 20.0)
    capacity[3, 1] = 12.0
    flows = estimated(replace(steady(4), capacity=capacity), 2)
    assert flows.sent[2] == pytest.approx(10.0, abs=1e-3)
    assert flows.kept[3, 1] == pytest.approx(2.0, abs=1e-3)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.booleans(), st.integers(1, 4))
def test_whatever_was_believed_constraints_hold(
    seed: int, gamma: bool, windows: int
) -> None:
    problem = some(seed, gamma=gamma)
    windows = min(windows, problem.slots)
    best = move(problem).bound
    for flows in (
        estimated(problem, windows),
        rolling(problem, windows, known),
        rolling(problem, windows, averages),
    ):
        assert check(problem, flows) == []
        assert cost(problem, flows).total >= best * (1.0 - 1e-9) - 1e-9


def test_a_slot_with_hardly_any_room_is_solved_too() -> None:
    # What arrives in a slot leaves a device room for 7e-7 samples beside data of 10.
    problem = some(6924, gamma=True)
    for seed in range(20):
        same = disturbed(problem, seed)
        assert check(same, rolling(same, 3, known)) == []


@pytest.mark.parametrize("gamma", [0.0, 20.0])
def test_rolling_over_all_that_is_to_come_is_the_optimum(gamma: float) -> None:
    problem = draw(
        np.random.default_rng(4),
        devices=5,
        slots=8,
        samples=2400,
        steady=False,
        capacities=True,
    )
    problem = replace(problem, gamma=np.array(gamma))
    rolled = cost(problem, rolling(problem, 8, known)).total
    assert rolled == pytest.approx(move(problem).costs.total, rel=2e-5)


def test_looking_ahead_pays() -> None:
    problem = draw(
        np.random.default_rng(4),
        devices=6,
        slots=12,
        samples=4000,
        steady=False,
        capacities=True,
    )
    near, far = (cost(problem, rolling(problem, h, known)).total for h in (1, 3))
    assert far < near
    assert far < cost(problem, alone(problem)).total


def test_averages_count_slots_without_a_link_as_without_capacity() -> None:
    links = Links.of(2, 4, [0, 1], [0, 0], [1, 1])
    problem = pair(
        data=np.array([[1.0, 0], [3, 0], [5, 0], [7, 0]]),
        process_cost=np.array(1.0),
        links=links,
        link_cost=np.array([2.0, 4.0]),
        link_capacity=np.array([10.0, 20.0]),
    )
    mean = average(problem, 0, 4, 2)
    assert mean.data.tolist() == [[4, 0], [4, 0]]
    assert mean.link_cost.tolist() == [3.0, 3.0]
    assert mean.link_capacity.tolist() == [7.5, 7.5]


@pytest.mark.parametrize("windows", [0, 5])
def test_windows_fit_into_the_slots(windows: int) -> None:
    with pytest.raises(ConfigError, match="give 1 to 4"):
        estimated(steady(4), windows)


def test_a_horizon_has_a_slot() -> None:
    with pytest.raises(ConfigError, match="horizon of 0 slots"):
        rolling(steady(4), 0, known)


def unit(setting: str, seed: int, *, steady: bool = True) -> float:
    problem, flows = run(
        setting, np.random.default_rng(seed), slots=40, samples=24_000, steady=steady
    )
    assert check(problem, flows) == []
    return cost(problem, flows).total / float(problem.data.sum())


def test_moving_saves_and_averages_are_nearly_as_good_where_costs_last() -> None:
    # The first of ten windows works alone: B + (A − B)/10 about, far from A.
    A, B, C, D = (unit(setting, 0) for setting in "ABCD")
    assert B < C < B + 0.2 * (A - B)
    assert B < D


def test_averages_are_worth_nothing_where_costs_do_not_last() -> None:
    A, B, C = (unit(setting, 0, steady=False) for setting in "ABC")
    assert B < A < C


def test_a_seed_draws_the_same_for_all_settings() -> None:
    one, other = (run(name, np.random.default_rng(3), slots=20)[0] for name in "AD")
    assert (one.data == other.data).all()
    assert (one.link_cost == other.link_cost).all()
    assert np.isinf(one.capacity).all()
    assert np.isfinite(other.capacity).all()


def test_an_unknown_setting_is_named() -> None:
    with pytest.raises(ConfigError, match="unknown setting 'E'"):
        run("E", np.random.default_rng(0))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.booleans())
def test_whole_samples_keep_the_constraints(seed: int, gamma: bool) -> None:
    problem = some(seed, gamma=gamma)
    problem = replace(problem, data=problem.data.round())
    for planner in (Alone(), Known(), Windows(1), Rolling(2, averages)):
        flows = carried_out(problem, planner, whole=True)
        assert not check(problem, flows)
        for amounts in (flows.kept, flows.sent, flows.discarded):
            assert (amounts == amounts.round()).all()


@pytest.mark.parametrize("seed", range(5))
def test_whole_samples_cost_as_much_where_nothing_is_limited(seed: int) -> None:
    problem = draw(np.random.default_rng(seed), slots=20, samples=12_000)
    whole = cost(problem, carried_out(problem, Known(), whole=True))
    assert whole.total == pytest.approx(move(problem).costs.total, rel=1e-4)


def test_a_known_plan_is_made_anew_when_somebody_is_gone() -> None:
    problem = steady(6)
    course, planner = Course(problem, whole=True), Known()
    for t in range(6):
        if t == 3:
            course.problem = problem.without(np.array([1]), 3)
        course.follow(t, planner(course.problem, t, course.arrived))
    flows = course.flows()
    assert flows.sent.tolist() == [10, 10, 10, 0, 0, 0]
    # Alone, device 0 would pay 5 to process what it costs 3 to discard.
    assert flows.discarded[:, 0].tolist() == [0, 0, 0, 10, 10, 10]
    assert flows.kept[:, 1].tolist() == [10, 10, 10, 0, 0, 0]
