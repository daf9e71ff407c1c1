"""Workers with batteries on shared channels: each slot, and what lasts over many."""

from dataclasses import replace
from math import log
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import linprog
from tests.transmission.settings import seeds

from melisma.errors import ConfigError
from melisma.maths.arrays import Floats
from melisma.transmission import Observed, Power, Queues, Radios, Setting
from melisma.transmission.radios import Line, decide

#: The least rate, as a share of the greatest.
LEAST = 0.5


def random_power(rng: np.random.Generator, **changes: Any) -> Power:
    plain = Power(
        battery_j=float(rng.uniform(10, 40)),
        start_j=float(rng.uniform(0, 10)),
        harvest_w=float(rng.uniform(0.2, 4)),
        sending_w=float(rng.uniform(0.2, 2)),
        computing_w=float(rng.uniform(1, 8)),
        slot_s=float(rng.uniform(0.05, 0.3)),
        utility_weight=float(rng.uniform(0.005, 0.1)),
        fairness=float(rng.uniform(10, 200)),
        decoding_s=float(rng.choice([0.0, 0.05])),
    )
    return replace(plain, **changes)


def random_setting(power: Power, rng: np.random.Generator) -> Setting:
    M = int(rng.integers(1, 8))
    return power.setting(
        answer_s=rng.uniform(0.1, 3, M),
        share_s=rng.uniform(0.1, 3, M),
        channels=int(rng.integers(1, 4)),
    )


def bounds(power: Power, setting: Setting) -> dict[str, Any]:
    """What the queues cannot pass, from the power's numbers alone."""
    V, lam, T = power.utility_weight, power.fairness, power.slot_s
    owed = V * lam / log(2) + 2  # above Vλ/ln 2 nothing is asked for; y ≤ 2
    r, p = setting.rate_mbps, power.sending_w
    beta, xi = setting.energy_weight, power.decoding_s
    theta = r * (owed + 2) / (beta * p) + p * T + power.computing_w * T
    # Nobody sends while R_s is beyond the first part; one slot adds what it carries.
    stops = (
        ((owed + 2 + beta * power.most_harvest_j * p / (LEAST * r)) / xi).max()
        if xi
        else 0.0
    )
    L = min(setting.channels, setting.workers)
    return {"owed": owed, "theta": theta, "server": stops + L * T * xi * r.max()}


@given(seeds)
def test_the_battery_that_the_rules_ask_for_is_the_one_there_is(seed: int) -> None:
    rng = np.random.default_rng(seed)
    power = random_power(rng)
    setting = random_setting(power, rng)
    theta = bounds(power, setting)["theta"]
    assert setting.target_j == pytest.approx(theta)
    assert theta + power.most_harvest_j == pytest.approx(power.battery_j)


@given(seeds)
def test_an_answer_and_a_share_of_work_draw_the_battery_as_deep(seed: int) -> None:
    rng = np.random.default_rng(seed)
    power = random_power(rng)
    answer_s, share_s = rng.uniform(0.1, 3, (2, 4))
    setting = power.setting(answer_s=answer_s, share_s=share_s, channels=1)
    share = share_s / power.unit_s(answer_s, share_s)
    beta, p = setting.energy_weight, power.sending_w
    by_work = share / (beta * setting.compute_j_per_gcycle)
    assert by_work == pytest.approx(1 / answer_s / (beta * p))


@settings(max_examples=60)
@given(seeds)
def test_a_slot_is_the_optimum_of_its_linear_program(seed: int) -> None:
    rng = np.random.default_rng(seed)
    power = random_power(rng)
    setting = random_setting(power, rng)
    M, bound = setting.workers, bounds(power, setting)
    whole = np.floor(rng.uniform(0, 3, M))
    work = rng.uniform(0, 3, M) * (rng.random(M) < 0.7)
    queues = Queues(
        data_mbit=whole,
        fairness_mbit=rng.uniform(0, bound["owed"], M),
        battery_j=rng.uniform(0, power.battery_j, M),
        work_gcycles=work,
        server_gcycles=rng.uniform(0, 2, 1),
    )
    left = replace(
        queues,
        data_mbit=whole - (whole > 0) * rng.uniform(0, 1, M),
        work_gcycles=work * rng.uniform(0, 1, M),
    )
    most = setting.compute_gcycles * rng.uniform(0, 1, M)
    none, T = np.zeros(M), setting.slot_s
    r = setting.rate_mbps * rng.uniform(0.2, 1, M)
    observed = Observed(
        rate_mbps=r, arrival_mbit=none, harvest_j=none, work_gcycles=none
    )
    done = decide(setting, queues, left, observed, most)
    E, p, delta = queues.battery_j, power.sending_w, setting.compute_j_per_gcycle
    price = setting.energy_weight * (bound["theta"] - E)
    behind = power.decoding_s * queues.server_gcycles
    gain_v = r * (whole + queues.fairness_mbit - behind) - price * p
    gain_f = work - price * delta
    limits = [np.minimum(T, left.data_mbit / r), np.minimum(most, left.work_gcycles)]
    energy = np.hstack([p * np.eye(M), np.diag(delta)])
    air = np.hstack([np.ones(M), np.zeros(M)])
    found: Any = linprog(
        -np.concatenate([gain_v, gain_f]),
        A_ub=np.vstack([energy, air]),
        b_ub=np.concatenate([E, [T * setting.channels]]),
        bounds=list(zip(np.zeros(2 * M), np.concatenate(limits), strict=True)),
    )
    assert found.status == 0
    ours = gain_v @ done.airtime_s + gain_f @ done.computed_gcycles
    assert ours == pytest.approx(-found.fun, rel=1e-6, abs=1e-8)
    spent_j = p * done.airtime_s + delta * done.computed_gcycles
    assert (spent_j <= E * (1 + 1e-12) + 1e-12).all()


def cycles(radios: Radios, rng: np.random.Generator, many: int) -> list[Floats]:
    """Cycles of random work, of which some is not done when the next begins.

    Returns batteries, owed and waiting answers, and the server's queue, of each slot.
    """
    M, seen = radios.setting.workers, []
    for _ in range(many):
        radios.begin()
        for number in range(4 * M):
            radios.give(number % M, number, float(rng.uniform(0, 3)))
        for _ in range(int(rng.integers(1, 150))):
            rate = radios.setting.rate_mbps * rng.uniform(LEAST, 1, M)
            radios.slot(rate, rng.uniform(0, 1, M))
            q = radios.queues
            server = np.broadcast_to(q.server_gcycles, (M,))
            row = [q.battery_j, q.fairness_mbit, q.data_mbit, server]
            seen.append(np.stack(row))
    return seen


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(seeds)
def test_no_battery_and_no_queue_passes_its_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    power = random_power(rng)
    setting = random_setting(power, rng)
    radios = Radios(power, setting, np.ones(setting.workers), rng)
    battery, owed, waiting, server = np.stack(cycles(radios, rng, 8)).swapaxes(0, 1)
    bound = bounds(power, setting)
    assert battery.max() <= power.battery_j * (1 + 1e-12)
    assert owed.max() <= bound["owed"]
    assert waiting.max() <= 2
    assert server.max() <= bound["server"]


@pytest.mark.parametrize("harvest_w", [0.3, 2.0])
def test_energy_is_neither_made_nor_lost(harvest_w: float) -> None:
    # Nor is a battery overdrawn, which would make some.
    rng = np.random.default_rng(3)
    power = random_power(rng, harvest_w=harvest_w)
    setting = random_setting(power, rng)
    radios = Radios(power, setting, np.ones(setting.workers), rng)
    for _ in range(20):
        cycles(radios, rng, 1)
        account = radios.account
        spent_j = account.computing_j + account.sending_j
        end_j = account.battery_j + account.stored_j - spent_j
        assert radios.queues.battery_j == pytest.approx(end_j, abs=1e-9)
        assert (account.stored_j <= account.harvested_j + 1e-12).all()
    assert (account.computing_j > 0).any()
    assert (account.sending_j > 0).any()


def test_the_sun_comes_and_goes_unless_it_is_steady() -> None:
    def harvested_j(steady: bool) -> Floats:
        rng = np.random.default_rng(0)
        power = replace(random_power(rng, harvest_w=2.0), steady=steady)
        setting = random_setting(power, rng)
        radios = Radios(power, setting, np.ones(setting.workers), rng)
        sums = []
        for _ in range(200):
            radios.slot(setting.rate_mbps, np.ones(setting.workers))
            sums.append(radios.account.harvested_j.copy())
        return np.diff(sums, axis=0) / setting.harvest_j

    assert harvested_j(steady=True) == pytest.approx(1.0)
    varies = harvested_j(steady=False)
    assert varies.mean() == pytest.approx(0.5, abs=0.05)
    assert varies.std() == pytest.approx(12**-0.5, abs=0.05)


def one_worker(**changes: Any) -> Radios:
    # An answer takes 1 s, a share of work 1 s.
    power = replace(Power(battery_j=60, harvest_w=1, steady=True), **changes)
    one = np.ones(1)
    setting = power.setting(answer_s=one, share_s=one, channels=1)
    return Radios(power, setting, power.unit_s(one, one), np.random.default_rng(0))


def slots_until_sent(radios: Radios) -> int:
    radios.begin()
    radios.give(0, 7, 1.0)
    for slot in range(1, 10_000):
        if radios.slot(np.ones(1), np.ones(1)).sent == [7]:
            return slot
    raise AssertionError("nothing was sent")


def test_with_a_full_battery_an_answer_takes_its_time_and_no_more() -> None:
    assert slots_until_sent(one_worker()) == 20  # 10 slots to compute, 10 to send


def test_who_starts_empty_waits_for_the_sun() -> None:
    radios = one_worker(start_j=0.0)
    # Work of a share begins at θ less an answer's part of what is above the reserve
    # of a slot, 0.6 J: 1 of Q_max = Vλ/ln 2 + 4 parts, which 1 W takes so long to fill.
    theta_j = 60 - 0.1
    begins_s = theta_j - (theta_j - 0.6) / (0.02 * 100 / log(2) + 4)
    # From there on it spends on its 5 J of work what it harvests, and then sends.
    seconds = begins_s + 5 + 1
    assert slots_until_sent(radios) == pytest.approx(10 * seconds, abs=8)


def test_without_sun_an_empty_battery_sends_nothing() -> None:
    radios = one_worker(start_j=0.0, harvest_w=0.0)
    radios.give(0, 7, 1.0)
    for _ in range(300):
        assert radios.slot(np.ones(1), np.ones(1)).sent == []
    assert radios.queues.battery_j.tolist() == [0.0]


def test_a_battery_lasts_from_cycle_to_cycle() -> None:
    radios = one_worker(harvest_w=0.0)
    slots_until_sent(radios)
    # 1 s of computing at 5 W, and 1 s of sending at 1 W.
    assert radios.queues.battery_j == pytest.approx(60 - 6)
    radios.begin()
    assert radios.queues.battery_j == pytest.approx(60 - 6)


def first_uploads(**changes: Any) -> list[int]:
    """Who of two on one channel is first to send an answer, in each of 200 cycles."""
    power = replace(Power(battery_j=1e4, harvest_w=9, steady=True), **changes)
    both, rate = np.ones(2), np.array([1.0, 1.5])
    setting = power.setting(answer_s=1 / rate, share_s=0.1 * both, channels=1)
    radios = Radios(power, setting, 0.1 * both, np.random.default_rng(0))
    firsts = []
    for _ in range(200):
        radios.begin()
        for worker in (0, 1):
            radios.give(worker, worker, 0.1)
        while not (sent := radios.slot(rate, both).sent):
            pass
        firsts += sent
    return [firsts.count(0), firsts.count(1)]


def test_the_slower_of_two_is_first_as_often_as_fairness_asks() -> None:
    # The most of log(c̄₀) + log(c̄₁) gives each half of the time: 80 : 120 answers.
    slower, _ = first_uploads(utility_weight=0.1, fairness=1000.0)
    assert 60 <= slower <= 100
    less, _ = first_uploads(utility_weight=0.02, fairness=100.0)
    assert 0 < less < slower


def test_without_fairness_the_faster_of_two_is_first() -> None:
    slower, _ = first_uploads(fairness=1e-6)
    assert slower <= 2  # what the first slot asks for, when nothing is owed yet


def test_who_is_expelled_takes_its_battery_along() -> None:
    rng = np.random.default_rng(0)
    power = random_power(rng)
    times = rng.uniform(0.5, 1, 3)
    setting = power.setting(answer_s=times, share_s=times, channels=1)
    radios = Radios(power, setting, np.arange(1.0, 4.0), rng)
    cycles(radios, rng, 1)
    before = radios.queues.battery_j
    radios.expel(1)
    assert radios.queues.battery_j.tolist() == before[[0, 2]].tolist()
    assert radios.unit_s.tolist() == [1.0, 3.0]
    assert radios.setting.workers == 2
    cycles(radios, rng, 1)


def test_pieces_end_in_their_order() -> None:
    line = Line()
    line.add(1, 1.0)
    line.add(2, 0.5)
    assert line.pass_on(0.75) == []
    assert (line.whole, line.left) == (1.5, 0.75)
    assert line.pass_on(0.5) == [1]
    assert (line.whole, line.left) == (0.5, 0.25)
    assert line.pass_on(0.25) == [2]
    assert (line.whole, line.left) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"battery_j": 0.0}, "battery_j is 0: give a finite number above 0"),
        ({"harvest_w": float("nan")}, "harvest_w is nan"),
        ({"start_j": 60.0}, "holds|starts with 60"),
        ({"start_j": -1.0}, "starts with -1.0 J: give 0 J up to what it holds"),
    ],
)
def test_power_has_sense(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Power(**changes)


def test_a_battery_too_small_for_a_slot_is_refused() -> None:
    one = np.ones(1)
    with pytest.raises(ConfigError, match="larger battery, or shorter slots"):
        Power(battery_j=0.5).setting(answer_s=one, share_s=one, channels=1)
