import asyncio
import copy
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import torch
from tests.fleets.fleets import (
    carried_out,
    fleet_of,
    law,
    ran,
    small_data,
    small_model,
    task_of,
)

from melisma.errors import ConfigError
from melisma.fleets.protocols import Lost, Order, Report, Updates
from melisma.fleets.simulated import Conditions
from melisma.learning.parameters import parameters_of
from melisma.learning.settings import Late, Training
from melisma.learning.training import batch_plan, train
from melisma.runs.records import Expelled, Uploaded


def order(learner: int, samples: int, steps: int) -> Order:
    return Order(learner=learner, samples=samples, steps=steps, rows=np.arange(samples))


def only_report(conditions: Conditions, deadline_s: float, steps: int = 3) -> Report:
    # One learner, 10 samples in batches of 4, 4 and 2: download 10·0.1 + 1 = 2 s,
    # 10·0.2 = 2 s a step, upload 1 s.
    fleet = fleet_of(law([0.2], [0.1], [2.0]), conditions)
    (updates,) = carried_out(fleet, [order(0, 10, steps)], deadline_s)
    (report,) = updates.reports
    return report


def times(report: Report) -> list[float]:
    return [report.downloaded_s, report.trained_s, report.uploaded_s]


def test_a_cycle_takes_what_the_law_says() -> None:
    report = only_report(Conditions(), deadline_s=9.0)
    assert times(report) == pytest.approx([2.0, 8.0, 9.0])
    assert (report.samples, report.batches, report.halted) == (10, 9, False)


def test_a_late_learner_halts_before_a_batch_that_would_not_be_back_in_time() -> None:
    # 4.7 s are left to train in: two steps (4 s), and no batch of 0.8 s more.
    report = only_report(Conditions(), deadline_s=7.7)
    assert times(report) == pytest.approx([2.0, 6.0, 7.0])
    assert (report.samples, report.batches, report.halted) == (10, 6, True)


def test_a_learner_halted_in_its_first_step_has_seen_part_of_its_samples() -> None:
    report = only_report(Conditions(), deadline_s=4.7)  # 1.7 s: two batches of 4
    assert (report.samples, report.batches) == (8, 2)
    assert times(report) == pytest.approx([2.0, 3.6, 4.6])


def test_a_learner_that_cannot_train_at_all_sends_its_model_back() -> None:
    report = only_report(Conditions(), deadline_s=3.0)
    assert (report.samples, report.batches, report.halted) == (0, 0, True)


def test_and_is_lost_where_even_that_takes_too_long() -> None:
    fleet = fleet_of(law([0.2], [0.1], [2.0]))

    async def collect() -> list[Updates | Lost]:
        parameters = parameters_of(small_model())
        return [item async for item in fleet.train([order(0, 10, 3)], parameters, 2.5)]

    (lost,) = asyncio.run(collect())
    assert lost == Lost(learner=0, reason="not there by the deadline", after_s=2.5)
    assert fleet.now_s() == 2.5


def test_waited_for_a_late_learner_finishes_late() -> None:
    report = only_report(Conditions(late=Late.WAIT), deadline_s=7.7)
    assert report.uploaded_s == pytest.approx(9.0)
    assert not report.halted


def test_cut_off_a_late_learner_is_lost_at_the_deadline() -> None:
    fleet = fleet_of(law([0.1, 1.0], [0.0] * 2, [0.2] * 2), Conditions(late=Late.DROP))
    orders = [order(k, 8, 1) for k in range(2)]

    async def collect() -> list[Updates | Lost]:
        parameters = parameters_of(small_model())
        return [item async for item in fleet.train(orders, parameters, 5.0)]

    update, lost = asyncio.run(collect())
    assert isinstance(update, Updates)
    assert [report.learner for report in update.reports] == [0]
    assert lost == Lost(learner=1, reason="not there by the deadline", after_s=5.0)
    assert fleet.now_s() == 5.0  # nobody knew that it would not come


def test_in_federated_mode_learners_draw_from_their_own_rows() -> None:
    own = [np.arange(30), np.arange(30, 40)]
    fleet = fleet_of(law([0.1, 0.1], [0.0] * 2, [0.2] * 2), own_rows=own)
    for k, amount in ((0, 18), (1, 6), (1, 10)):
        drawn = fleet._plan(Order(learner=k, samples=amount, steps=1))
        rows = set(drawn[drawn >= 0].tolist())
        assert len(rows) == amount
        assert rows <= set(own[k].tolist())


def test_updates_come_in_the_order_of_their_arrival() -> None:
    fleet = fleet_of(law([0.3, 0.1, 0.2], [0.0] * 3, [0.1] * 3))
    updates = carried_out(fleet, [order(k, 8, 1) for k in range(3)], 10.0)
    arrived = [report for u in updates for report in u.reports]
    assert [r.learner for r in sorted(arrived, key=lambda r: r.uploaded_s)] == [1, 2, 0]
    assert fleet.now_s() == pytest.approx(0.3 * 8 + 0.1)


def test_what_a_learner_learns_is_what_it_would_learn_alone() -> None:
    fleet = fleet_of(law([0.1, 0.2], [0.0, 0.0], [0.1, 0.1]))
    orders = [order(0, 9, 2), order(1, 7, 1)]
    plans = copy.deepcopy(fleet._rng)
    plans.standard_normal((2, 2))  # the noise is drawn first
    alone = {}
    for k in (1, 0):  # in the order of arrival
        model, training = small_model(), Training(batch=4, rate=0.1)
        rows = np.arange(orders[k].samples)
        plan = batch_plan(rows, orders[k].steps, training, plans)
        train(model, small_data().train, plan, training)
        alone[k] = parameters_of(model)
    for updates in carried_out(fleet, orders, 10.0):
        for row, report in enumerate(updates.reports):
            for name, value in alone[report.learner].items():
                torch.testing.assert_close(updates.parameters[name][row], value)


def test_noise_spreads_times_around_the_law() -> None:
    K = 400
    fleet = fleet_of(
        law([0.1] * K, [0.1] * K, [0.2] * K), Conditions(noise=0.1, late=Late.WAIT)
    )
    reports = [
        report
        for updates in carried_out(fleet, [order(k, 4, 1) for k in range(K)], 10.0)
        for report in updates.reports
    ]
    network = np.log([r.downloaded_s / 0.5 for r in reports])
    compute = np.log([(r.trained_s - r.downloaded_s) / 0.4 for r in reports])
    for spread in (network, compute):
        assert spread.std() == pytest.approx(0.1, rel=0.15)
        assert abs(spread.mean()) < 0.02


def test_states_come_as_often_as_they_should_and_the_mean_is_known() -> None:
    K = 1000
    gamma = np.tile([0.7, 0.2, 0.1], (K, 1))
    states = law(np.tile([0.1, 0.2, 0.4], (K, 1)), np.zeros((K, 3)), np.zeros((K, 3)))
    fleet = fleet_of(states, Conditions(probability=gamma))
    reports = [
        report
        for updates in carried_out(fleet, [order(k, 4, 1) for k in range(K)], 10.0)
        for report in updates.reports
    ]
    speeds = np.round([report.trained_s / 4 for report in reports], 6)
    shares = [float((speeds == speed).mean()) for speed in (0.1, 0.2, 0.4)]
    assert shares == pytest.approx([0.7, 0.2, 0.1], abs=0.05)
    # 0.7·0.1 + 0.2·0.2 + 0.1·0.4
    assert asyncio.run(fleet.law()).step_s[0] == pytest.approx(0.15)


@pytest.mark.parametrize("noise", [-0.1, float("nan"), float("inf")])
def test_impossible_noise_is_named(noise: float) -> None:
    with pytest.raises(ConfigError, match=f"noise of {noise}"):
        Conditions(noise=noise)


def test_a_state_that_changes_on_the_way_is_paid_for_in_part() -> None:
    # 1 s a sample in the first state, 3 s in the second; it always changes.
    K = 300
    states = law([[1.0, 3.0]] * K, [[0.0, 0.0]] * K, [[0.0, 0.0]] * K)
    fleet = fleet_of(
        states,
        Conditions(
            probability=np.tile([0.5, 0.5], (K, 1)), changing=1.0, late=Late.WAIT
        ),
    )
    began = fleet.true_law().step_s
    orders = [order(k, 4, 1) for k in range(K)]
    reports = [r for u in carried_out(fleet, orders, 100.0) for r in u.reports]
    took = {r.learner: (r.trained_s - r.downloaded_s) / 4 for r in reports}
    seconds = np.array([took[k] for k in range(K)])
    assert set(began.tolist()) == {1.0, 3.0}
    assert ((seconds >= 1.0 - 1e-9) & (seconds <= 3.0 + 1e-9)).all()
    mixed = (seconds > 1.01) & (seconds < 2.99)
    assert 0.35 < mixed.mean() < 0.65  # half of the changes lead to the same state
    # What begins in a state is nearer to it: 1.5 and 2.5 on the mean.
    assert seconds[began == 1.0].mean() == pytest.approx(1.5, abs=0.15)
    assert seconds[began == 3.0].mean() == pytest.approx(2.5, abs=0.15)


def test_an_expelled_learner_takes_no_part_in_later_cycles() -> None:
    crew = fleet_of(law([0.1, 0.2, 0.3], [0.01] * 3, [0.2] * 3))
    crew.expel("learner-1", "it was wrong")
    asyncio.run(crew.ready())
    assert crew.learners == ["learner-0", "learner-2"]
    assert asyncio.run(crew.law()).step_s.tolist() == [0.1, 0.3]
    _, happened = ran(task_of("sync", 60.0), crew)
    assert {r.learner for r in happened if isinstance(r, Uploaded)} == {
        *("learner-0", "learner-2")
    }


def test_a_learner_whose_updates_are_not_finite_is_expelled() -> None:
    crew = fleet_of(law([0.1, 0.2], [0.01] * 2, [0.2] * 2))
    aggregated = crew._trained

    async def poisoned(*args: Any) -> AsyncIterator[Updates]:
        async for updates in aggregated(*args):
            for row, report in enumerate(updates.reports):
                if crew.learners[report.learner] == "learner-1":
                    for tensor in updates.parameters.values():
                        tensor[row] = torch.nan
            yield updates

    vars(crew)["_trained"] = poisoned
    _, happened = ran(task_of("sync", 60.0, cycles=5), crew)
    (expelled,) = [r for r in happened if isinstance(r, Expelled)]
    assert (expelled.learner, expelled.cycle) == ("learner-1", 3)
    assert {r.learner for r in happened if isinstance(r, Uploaded) and r.cycle > 3} == {
        "learner-0"
    }


def looked(times_s: list[float], deadline_s: float, every: int) -> int:
    """Batches after which a learner halts: by hand, batch by batch."""
    for done, time_s in enumerate(times_s, start=1):
        if (done - 1) % every == 0 and time_s > deadline_s:
            return done
    return len(times_s)


@pytest.mark.parametrize("seed", range(20))
def test_who_looks_at_the_clock_now_and_then_halts_late(seed: int) -> None:
    rng = np.random.default_rng(seed)
    d, steps, every = (int(n) for n in rng.integers(1, (40, 6, 8)))
    step_s, deadline_s = float(rng.uniform(0.05, 0.4)), float(rng.uniform(0.5, 12.0))
    fleet = fleet_of(
        law([step_s], [0.1], [2.0]), Conditions(late=Late.OVERRUN, look_every=every)
    )
    (updates,) = carried_out(fleet, [order(0, d, steps)], deadline_s)
    (report,) = updates.reports
    sizes = [min(4, d - first) for _ in range(steps) for first in range(0, d, 4)]
    times_s = (1.0 + 0.1 * d + step_s * np.cumsum(sizes)).tolist()
    batches = looked(times_s, deadline_s, every)
    assert report.batches == batches
    assert report.halted == (batches < len(sizes))
    assert report.trained_s == pytest.approx(times_s[batches - 1])
    assert report.uploaded_s == pytest.approx(report.trained_s + 1.0)  # late or not
    assert fleet.now_s() == pytest.approx(report.uploaded_s)
