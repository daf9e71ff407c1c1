"""The decisions of a slot, each against an oracle."""

from dataclasses import replace
from math import log
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import linprog, minimize_scalar
from tests.transmission.settings import random_setting, random_slot, seeds

from melisma.transmission.queues import Observed, Queues, Setting
from melisma.transmission.rules import (
    admission,
    auxiliary,
    computing,
    knapsack,
    step,
    storage,
    weight,
)


def best(found: Any) -> float:
    """The maximum that a linear program of the negated gain found."""
    assert found.status == 0
    return float(-found.fun)


@given(seeds)
def test_the_auxiliary_is_what_a_bounded_search_finds(seed: int) -> None:
    setting, queues, _ = random_slot(np.random.default_rng(seed))
    V, y = setting.utility_weight, auxiliary(setting, queues)
    for m in range(setting.workers):
        lam, H = setting.fairness_per_mbit[m], queues.fairness_mbit[m]

        def loss(y: float, lam: float = lam, H: float = H) -> float:
            return float(H * y - V * np.log2(1 + lam * y))

        most = setting.arrival_mbit[m]
        found = minimize_scalar(loss, bounds=(0, most), options={"xatol": 1e-10})
        assert 0 <= y[m] <= most
        assert loss(y[m]) <= found.fun + 1e-9 * (1 + abs(found.fun))


@given(seeds)
def test_admission_and_storage_are_the_better_of_nothing_and_all(seed: int) -> None:
    setting, queues, observed = random_slot(np.random.default_rng(seed))
    d, stored = admission(queues, observed), storage(setting, queues, observed)
    room = queues.data_mbit - queues.fairness_mbit
    over = queues.battery_j - setting.target_j
    for m in range(setting.workers):
        D, harvest = observed.arrival_mbit[m], observed.harvest_j[m]
        assert d[m] in (0.0, D)
        assert stored[m] in (0.0, harvest)
        assert room[m] * d[m] == min(room[m] * some for some in (0.0, D))
        assert over[m] * stored[m] == min(over[m] * some for some in (0.0, harvest))


@given(seeds)
def test_no_amount_of_computing_that_the_battery_affords_is_better(seed: int) -> None:
    setting, queues, _ = random_slot(np.random.default_rng(seed))
    f = computing(setting, queues)
    for m in range(setting.workers):
        R, delta = queues.work_gcycles[m], setting.compute_j_per_gcycle[m]
        most = min(setting.compute_gcycles[m], R, queues.battery_j[m] / delta)
        lack = setting.target_j[m] - queues.battery_j[m]
        cost = setting.energy_weight[m] * lack * delta - R
        tried = np.linspace(0.0, most, 101)
        assert 0 <= f[m] <= most * (1 + 1e-12)
        assert cost * f[m] <= (cost * tried).min() + 1e-9 * abs(cost)


@given(seeds)
def test_computing_and_sending_together_solve_the_slots_linear_program(
    seed: int,
) -> None:
    # Decided one after the other, they share a battery: with θ that costs nothing.
    setting, queues, observed = random_slot(np.random.default_rng(seed))
    n, T = setting.workers, setting.slot_s
    p, delta = setting.power_w, setting.compute_j_per_gcycle
    lack = setting.energy_weight * (setting.target_j - queues.battery_j)
    saved = queues.data_mbit - setting.server_gcycles_per_mbit * queues.server_gcycles
    gain = np.concatenate(
        [observed.rate_mbps * saved - lack * p, queues.work_gcycles - lack * delta]
    )
    most_v = np.minimum(T, queues.data_mbit / observed.rate_mbps)
    most_f = np.minimum(setting.compute_gcycles, queues.work_gcycles)
    found = linprog(
        -gain,
        A_ub=np.vstack(
            [
                np.concatenate([np.ones(n), np.zeros(n)]),
                np.hstack([np.diag(p), np.diag(delta)]),
            ]
        ),
        b_ub=np.concatenate([[T * setting.channels], queues.battery_j]),
        bounds=[(0, most) for most in np.concatenate([most_v, most_f])],
    )
    _, done = step(setting, queues, observed)
    reached = gain @ np.concatenate([done.airtime_s, done.computed_gcycles])
    assert reached == pytest.approx(best(found), rel=1e-7, abs=1e-7)
    assert done.airtime_s.sum() <= T * setting.channels * (1 + 1e-12)


@given(seeds)
def test_the_greedy_knapsack_is_the_linear_programs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 8))
    weight, most = rng.normal(size=n), rng.uniform(0, 1, n)
    total = rng.uniform(0, n)
    v = knapsack(weight, most, total)
    found = linprog(
        -weight, A_ub=np.ones((1, n)), b_ub=[total], bounds=[(0, m) for m in most]
    )
    assert weight @ v == pytest.approx(best(found), abs=1e-8)
    assert (v >= 0).all()
    assert (v <= most).all()
    assert v.sum() <= total + 1e-12


def test_a_slot_by_hand() -> None:
    # One worker, β = p = 1 and T = 1: H_max = 1/ln 2 + 4, Q_max = 1/ln 2 + 8, and
    # θ = 2·Q_max + 1 + 0.5. With E = θ the weight is r·(Q − ξR_s) = 2·(3 − 0.5·2).
    setting = Setting(
        rate_mbps=np.array([2.0]),
        arrival_mbit=np.array([4.0]),
        harvest_j=np.array([1.0]),
        work_gcycles=np.array([1.0]),
        compute_gcycles=np.array([0.5]),
        power_w=np.array([1.0]),
        compute_j_per_gcycle=np.array([1.0]),
        server_gcycles_per_mbit=np.array([0.5]),
        server_gcycles=1.5,
        channels=1,
        utility_weight=1.0,
        fairness_per_mbit=np.array([1.0]),
    )
    theta = 2 * (1 / log(2) + 8) + 1.5
    queues = Queues(
        data_mbit=np.array([3.0]),
        fairness_mbit=np.array([1.0]),
        battery_j=np.array([theta]),
        work_gcycles=np.array([5.0]),
        server_gcycles=np.array([2.0]),
    )
    observed = Observed(
        rate_mbps=np.array([2.0]),
        arrival_mbit=np.array([4.0]),
        harvest_j=np.array([1.0]),
        work_gcycles=np.array([1.0]),
    )
    assert weight(setting, queues, observed) == pytest.approx(4.0)
    later, done = step(setting, queues, observed)
    assert done.auxiliary_mbit == pytest.approx(1 / log(2) - 1)
    assert done.admitted_mbit == 0.0  # Q ≥ H
    assert done.stored_j == 0.0  # E ≥ θ
    assert done.computed_gcycles == 0.5
    assert done.airtime_s == 1.0
    assert done.sent_mbit == 2.0
    assert later.data_mbit == 1.0
    assert later.fairness_mbit == pytest.approx(1 / log(2))
    assert later.battery_j == pytest.approx(theta - 1.5)
    assert later.work_gcycles == 5.5
    assert later.server_gcycles == 0.5 + 0.5 * 2.0


def test_without_a_rate_nothing_is_sent_and_free_computing_needs_no_battery() -> None:
    setting = replace(
        random_setting(np.random.default_rng(0), workers=2),
        compute_j_per_gcycle=np.array([0.0, 1.0]),
    )
    queues = replace(
        Queues.empty(2),
        data_mbit=np.ones(2),
        battery_j=setting.most_battery_j * [1.0, 0.0],  # the first would burn energy
        work_gcycles=np.full(2, 1e6),
    )
    none = np.zeros(2)
    observed = Observed(
        rate_mbps=none, arrival_mbit=none, harvest_j=none, work_gcycles=none
    )
    _, done = step(setting, queues, observed)
    assert done.airtime_s.tolist() == [0.0, 0.0]
    assert done.computed_gcycles.tolist() == [setting.compute_gcycles[0], 0.0]


@settings(max_examples=200, deadline=None)
@given(seeds)
def test_who_sends_has_energy_for_the_whole_slot(seed: int) -> None:
    # That is what θ is for: the battery's own limit on v never binds.
    setting, queues, observed = random_slot(np.random.default_rng(seed))
    sends = weight(setting, queues, observed) > 0
    reserve = (
        setting.power_w * setting.slot_s
        + setting.compute_gcycles * setting.compute_j_per_gcycle
    )
    assert (queues.battery_j[sends] >= reserve[sends] * (1 - 1e-12)).all()
