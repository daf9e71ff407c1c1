"""What is proven of the queues; utility against backlog, and other policies."""

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from papers.tsdcfl_transmission import TransmissionStudy, best_utility, printed
from tests.transmission.settings import random_setting, seeds

from melisma.errors import ConfigError
from melisma.transmission import Policy, Trace, greedy, jain, lyapunov, simulate
from melisma.transmission.slots import FADED


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(seeds)
def test_queues_stay_below_their_bounds_and_no_battery_is_overdrawn(seed: int) -> None:
    setting = random_setting(np.random.default_rng(seed))
    run = simulate(setting, 300, [seed])
    q, done = run.queues, run.done
    spent_j = (
        setting.power_w * done.airtime_s
        + setting.compute_j_per_gcycle * done.computed_gcycles
    )
    assert (q.fairness_mbit <= setting.most_fairness_mbit * (1 + 1e-12)).all()
    assert (q.data_mbit <= setting.most_data_mbit * (1 + 1e-12)).all()
    assert (q.data_mbit >= 0).all()
    assert (q.battery_j <= setting.most_battery_j).all()
    assert (spent_j <= q.battery_j * (1 + 1e-12)).all()
    # Nobody sends, and R_s does not grow, once ξR_s > Q + β(E − θ)p/r for everybody.
    xi, r = setting.server_gcycles_per_mbit, setting.rate_mbps
    excess = setting.energy_weight * setting.harvest_j * setting.power_w / (FADED * r)
    grows = min(setting.channels, setting.workers) * setting.slot_s * (xi * r).max()
    last = ((setting.most_data_mbit + excess) / xi).max()
    assert (q.server_gcycles <= (last + grows) * (1 + 1e-12)).all()


@pytest.mark.parametrize("policy", [lyapunov, greedy])
def test_what_is_admitted_is_sent_or_waits_and_so_is_energy(policy: Policy) -> None:
    setting = random_setting(np.random.default_rng(3), workers=4)
    run = simulate(setting, 400, [0, 1], policy)
    done = run.done
    spent_j = (
        setting.power_w * done.airtime_s
        + setting.compute_j_per_gcycle * done.computed_gcycles
    )
    waits = np.cumsum(done.admitted_mbit - done.sent_mbit, axis=0)
    held_j = np.cumsum(done.stored_j - spent_j, axis=0)
    worked = np.cumsum(run.observed.work_gcycles - done.computed_gcycles, axis=0)
    assert done.sent_mbit.sum() > 0
    assert run.queues.data_mbit[1:] == pytest.approx(waits[:-1], abs=1e-9)
    assert run.queues.battery_j[1:] == pytest.approx(held_j[:-1], abs=1e-9)
    assert run.queues.work_gcycles[1:] == pytest.approx(worked[:-1], abs=1e-9)
    assert (spent_j <= run.queues.battery_j * (1 + 1e-12)).all()
    assert (done.stored_j <= run.observed.harvest_j).all()
    airtime = done.airtime_s.sum(axis=-1)
    assert (airtime <= setting.slot_s * setting.channels * (1 + 1e-12)).all()


STUDY = TransmissionStudy()


@pytest.fixture(scope="module")
def by_weight() -> dict[float, Trace]:
    return {V: simulate(STUDY.setting(V), 6000, [0, 1]) for V in (1.0, 20.0, 80.0)}


@pytest.mark.slow
@pytest.mark.paper
def test_utility_and_backlog_grow_with_v(by_weight: dict[float, Trace]) -> None:
    # The spec prints utility 2.29, 2.62, 2.75 and backlog 12, 34, 291 for V = 1, 20,
    # 200, without its setting; the share of the last utility is 0.83, 0.95. Ours: 0.81
    # and 0.93 with backlogs of 12, 29, 228 (docs/papers/tsdcfl.md).
    utility = [run.since(3000).utility.mean() for run in by_weight.values()]
    backlog = [run.largest_backlog_mbit.max() for run in by_weight.values()]
    assert utility[0] < utility[1] < utility[2]
    assert 0.75 < utility[0] / utility[2] < 0.9
    assert 10 < backlog[0] < 13.5
    assert 25 < backlog[1] < 41
    assert 3 * 0.8 < backlog[2] / backlog[1] < 4


@pytest.mark.slow
def test_the_distance_from_hindsight_shrinks_like_one_over_v(
    by_weight: dict[float, Trace],
) -> None:
    late = {V: run.since(4000) for V, run in by_weight.items()}
    best = best_utility(late[20.0], seed=0)
    gaps = {V: best - run.utility[0] for V, run in late.items()}
    assert gaps[80.0] > 0
    assert gaps[1.0] > gaps[20.0]
    assert 3 < gaps[20.0] / gaps[80.0] < 5


@pytest.mark.slow
def test_log_utility_is_fairer_than_greedy_and_nobody_waits_forever(
    by_weight: dict[float, Trace],
) -> None:
    fair = by_weight[80.0].since(3000)
    eager = simulate(fair.setting, 6000, [0, 1], greedy).since(3000)
    assert (fair.utility > eager.utility).all()
    assert (jain(fair.throughput_mbit) > jain(eager.throughput_mbit) + 0.05).all()
    assert (fair.throughput_mbit.min(1) > 3 * eager.throughput_mbit.min(1)).all()
    assert (eager.largest_backlog_mbit > 10 * fair.largest_backlog_mbit).all()


def test_the_rules_as_printed_let_nothing_through() -> None:
    run = simulate(STUDY.setting(20.0), 500, [0, 1], printed)
    assert run.done.admitted_mbit.sum() > 0
    assert run.done.sent_mbit.sum() == 0
    assert run.queues.battery_j.max() == 0


def test_a_seed_brings_the_same_slots_whoever_runs_beside_it() -> None:
    alone = simulate(STUDY.setting(20.0), 50, [7])
    beside = simulate(STUDY.setting(20.0), 50, [3, 7])
    assert (alone.queues.battery_j[:, 0] == beside.queues.battery_j[:, 1]).all()
    assert (alone.done.airtime_s[:, 0] == beside.done.airtime_s[:, 1]).all()


def test_jains_index_is_one_for_equals_and_one_over_m_for_one() -> None:
    assert jain(np.array([[2.0, 2.0], [3.0, 0.0]])).tolist() == [1.0, 0.5]
    assert np.isnan(jain(np.zeros(3)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rate_mbps": np.array([[1.0]])}, r"rate_mbps has shape \(1, 1\): give one"),
        ({"power_w": 0.0}, r"power_w is 0: give finite numbers above 0"),
        ({"arrival_mbit": np.ones(4)}, r"arrival_mbit has shape \(4,\)"),
        ({"harvest_j": -1.0}, r"harvest_j is -1: .* at least 0"),
        ({"channels": 0}, r"channels is 0: give a whole number of at least 1"),
        (
            {"utility_weight": inf},
            r"utility_weight is inf: give a finite number above 0",
        ),
    ],
)
def test_a_setting_that_is_none_is_named(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        replace(STUDY.setting(1.0), **change)


def test_a_simulation_that_is_none_is_named() -> None:
    with pytest.raises(ConfigError, match="0 slots with 1 seeds"):
        simulate(STUDY.setting(1.0), 0, [0])
