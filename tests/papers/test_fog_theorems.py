"""The theorems, held against the optimiser, simulation or enumeration."""

from itertools import permutations
from math import comb, log, sqrt

import numpy as np
import pytest
from papers.fog_theorems import (
    expected_violations,
    hierarchy,
    hierarchy_optimum,
    loss_bound,
    offloading_value,
    sampled_violations,
    unconstrained,
    waiting,
    waiting_capacity,
)
from tests.fog.movements import optimum, some

from melisma.errors import ConfigError
from melisma.fog import Links, Movement, check, cost, move
from melisma.fog.topologies import scale_free
from melisma.maths.arrays import Floats


def descent(
    seed: int, slots: int, period: int, step: float
) -> list[tuple[float, float]]:
    """Loss of each device and its bound at each step of federated descent.

    Devices have losses ½(w − a)ᵀH(w − a), so that ∇L_i − ∇L does not depend on w.
    """
    rng = np.random.default_rng(seed)
    n, H = 4, rng.uniform(0.1, 1.0, 3)
    a = rng.normal(0.0, 0.3, (n, 3))
    best, beta = a.mean(axis=0), float(H.max())
    delta = np.linalg.norm(H * (a - best), axis=1)
    w, v = np.tile(rng.normal(0.0, 2.0, 3), (n, 1)), np.zeros(3)
    steepest, near = 0.0, np.inf
    rows = []
    for t in range(1, slots + 1):
        if t % period == 1:
            v = w[0]
            near = min(near, 1.0 / max(float(((v - best) ** 2).sum()), 1e-30))
        w, v = w - step * H * (w - a), v - step * H * (v - best)
        reach = np.vstack([w, v]) - best
        steepest = max(steepest, float(np.linalg.norm(H * reach, axis=1).max()))
        loss = 0.5 * (H * (w - best) ** 2).sum(axis=1)
        rows.append((t, near, loss))
        if t % period == 0:
            w = np.tile(w.mean(axis=0), (n, 1))
    pairs = []
    for t, omega, loss in rows:
        for i in range(n):
            limit = loss_bound(
                slot=t,
                period=period,
                step=step,
                lipschitz=steepest,
                smooth=beta,
                divergence=float(delta[i]),
                mean_divergence=float(delta.mean()),
                nearness=omega,
            )
            pairs.append((float(loss[i]), limit))
    return pairs


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("step", [0.1, 1.0])
def test_1_no_device_loses_more_than_the_bound(seed: int, step: float) -> None:
    pairs = descent(seed, slots=60, period=6, step=step)
    assert all(loss <= limit for loss, limit in pairs)


def test_1_the_bound_is_the_root_that_its_proof_asks_for() -> None:
    # At t = Kτ there is no g: ε₀ alone, with y(ε) = 1/(a − ρKh/ε²) = ε.
    t, tau, eta, rho, beta, delta, omega = 30, 10, 0.05, 3.0, 2.0, 0.7, 0.4
    e0 = loss_bound(
        slot=t,
        period=tau,
        step=eta,
        lipschitz=rho,
        smooth=beta,
        divergence=1.0,
        mean_divergence=delta,
        nearness=omega,
    )
    h = delta / beta * ((eta * beta + 1) ** tau - 1) - eta * delta * tau
    a = t * omega * eta * (1 - beta * eta / 2)
    assert 1.0 / (a - rho / e0**2 * 3 * h) == pytest.approx(e0)


def test_1_a_step_beyond_one_over_beta_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"give a step of at most 0\.5"):
        loss_bound(
            slot=1,
            period=1,
            step=0.6,
            lipschitz=1.0,
            smooth=2.0,
            divergence=1.0,
            mean_divergence=1.0,
            nearness=1.0,
        )


@pytest.mark.parametrize("rate", [0.5, 2.0, 30.0])
@pytest.mark.parametrize("wait", [0.1, 1.0, 4.0])
def test_2_the_capacity_solves_the_queues_equation(rate: float, wait: float) -> None:
    C = waiting_capacity(rate, wait)
    phi = wait * rate / (1 + wait * rate)
    assert log(phi) == pytest.approx(-rate * (1 - phi) / C)
    assert waiting(rate, C) == pytest.approx(wait)


def test_2_samples_wait_as_long_as_asked_in_a_simulated_queue() -> None:
    # Lindley: W ← max(0, W + service − 1/C), 500 queues, 3,000 samples after 1,000.
    rng = np.random.default_rng(0)
    rate, wait = 3.0, 1.0
    between = 1.0 / waiting_capacity(rate, wait)
    W, total = np.zeros(500), np.zeros(500)
    for sample in range(4000):
        total += W if sample >= 1000 else 0.0
        W = np.maximum(0.0, W + rng.exponential(1.0 / rate, 500) - between)
    mean = total / 3000
    error = mean.std(ddof=1) / np.sqrt(500)
    assert error < 0.02
    assert abs(mean.mean() - wait) < 4 * error


def test_2_a_queue_that_gets_more_than_it_serves_waits_for_ever() -> None:
    assert waiting(2.0, 2.0) == np.inf


@pytest.mark.parametrize("seed", range(20))
def test_3_the_cheapest_way_is_the_optimum_without_capacities(seed: int) -> None:
    problem = some(seed)
    free = Movement(
        data=problem.data,
        process_cost=problem.process_cost,
        links=problem.links,
        link_cost=problem.link_cost,
        discard_cost=problem.discard_cost,
    )
    flows = unconstrained(free)
    assert check(free, flows) == []
    best = optimum(free)
    assert cost(free, flows).total == pytest.approx(best, abs=1e-9)
    assert move(free).costs.total == pytest.approx(best, rel=1e-6, abs=1e-7)


Rest = tuple[int, float, float, float, float]  # n, D, c, c_s + c_t, γ


def hierarchy_cost(r: float, s: float, rest: Rest) -> float:
    n, D, c, server, gamma = rest
    here, there = max(1.0 - r - s, 1e-12) * D, max(s, 1e-12) * n * D
    errors = n * gamma / sqrt(here) + gamma / sqrt(there)
    return n * here * c + there * server + errors


@pytest.mark.parametrize("D", [3.0, 20.0, 60.0, 500.0])
@pytest.mark.parametrize("server", [0.05, 0.3, 0.9])
def test_4_no_other_parts_cost_less(D: float, server: float) -> None:
    rest = (6, D, 0.8, server, 40.0)
    best = hierarchy_cost(*hierarchy_optimum(*rest), rest)
    grid = np.geomspace(1e-4, 1.0, 301)
    others = [
        hierarchy_cost(1 - q - s, s, rest) for q in grid for s in grid if q + s <= 1
    ]
    assert best <= min(others) * (1.0 + 1e-9)
    assert best == pytest.approx(min(others), rel=5e-3)


def test_4_the_closed_form_is_right_for_much_data_and_not_for_little() -> None:
    much, little = (6, 500.0, 0.8, 0.3, 40.0), (6, 3.0, 0.8, 0.3, 40.0)
    assert hierarchy(*much) == hierarchy_optimum(*much)
    r, s = hierarchy(*little)
    assert r == 0.0
    assert 0.0 <= s <= 1.0
    least = hierarchy_cost(*hierarchy_optimum(*little), little)
    assert hierarchy_cost(r, s, little) > 1.01 * least


def test_4_the_optimiser_finds_the_closed_form_in_a_hierarchy() -> None:
    # Server: device 6. With g₀ = 1 sample each load is one less: G + 1 = (γ/2c)^⅔.
    n, D, c, c_server, c_send, gamma = 6, 60.0, 0.8, 0.1, 0.2, 40.0
    data = np.full((5, n + 1), D)
    data[:, n] = 0.0
    process = np.full((5, n + 1), c)
    process[:, n] = c_server
    links = Links.always(n + 1, 5, range(n), [n] * n)
    problem = Movement(
        data=data,
        process_cost=process,
        links=links,
        link_cost=np.array(c_send),
        gamma=np.array(gamma),
    )
    plan = move(problem, gap=1e-9)
    r, s = hierarchy(n, D, c, c_server + c_send, gamma)
    assert plan.flows.kept[2, 0] + 1 == pytest.approx((1 - r - s) * D, rel=1e-3)
    assert problem.arrivals(plan.flows.sent)[2, n] + 1 == pytest.approx(
        s * n * D, rel=1e-3
    )


@pytest.mark.parametrize("k", range(1, 16))
def test_5_the_printed_sum_is_the_short_form(k: int) -> None:
    # (15) for one degree k and C = 1.
    terms = sum(
        comb(k, i) * (-1) ** i * (k + 3) / ((i + 2) * (i + 3)) for i in range(k)
    )
    printed = 0.5 - (-1) ** k / (k + 2) - terms
    assert offloading_value([0.0] * k + [1.0], 1.0) == pytest.approx(printed, abs=1e-9)


def test_5_devices_save_what_it_says() -> None:
    rng = np.random.default_rng(3)
    neighbours = [0.1, 0.4, 0.0, 0.3, 0.0, 0.0, 0.2]
    k = rng.choice(7, 200_000, p=neighbours)
    costs = rng.uniform(0.0, 4.0, (200_000, 7))
    costs[np.arange(7) > k[:, None]] = np.inf
    saved = costs[:, 0] - costs.min(axis=1)
    error = float(saved.std() / np.sqrt(saved.size))
    assert abs(offloading_value(neighbours, 4.0) - saved.mean()) < 4 * error


def loads(order: tuple[int, ...], neighbours: list[list[int]]) -> Floats:
    """Samples of each device, order being the ranks of their costs."""
    load = np.zeros(len(order))
    for i, near in enumerate(neighbours):
        load[min([i, *near], key=lambda j: order[j])] += 1.0
    return load


def test_6_the_number_is_that_of_all_orders_of_costs() -> None:
    # A path 0 – 1 – 2 – 3 with one sample each: 24 orders, all as likely.
    neighbours = [[1], [0, 2], [1, 3], [2]]
    source = np.array([0, 1, 1, 2, 2, 3])
    target = np.array([1, 0, 2, 1, 3, 2])

    def below(x: float) -> float:
        return min(x / 4.0, 1.0)

    exact = np.mean(
        [
            sum(below(x) for x in loads(order, neighbours))
            for order in permutations(range(4))
        ]
    )
    rng = np.random.default_rng(1)
    mean, error = sampled_violations(4, source, target, 1.0, below, rng, draws=4000)
    # Loads add up to 4 whatever the order: below(x) = x/4 has no variance at all.
    assert mean == pytest.approx(float(exact)) == 1.0
    assert error == pytest.approx(0.0, abs=1e-12)

    def square(x: float) -> float:
        return min(x / 4.0, 1.0) ** 2

    exact = np.mean(
        [
            sum(square(x) for x in loads(order, neighbours))
            for order in permutations(range(4))
        ]
    )
    mean, error = sampled_violations(4, source, target, 1.0, square, rng, draws=4000)
    assert 0.0 < error < 0.01
    assert abs(mean - float(exact)) < 4 * error


def test_6_the_formula_takes_the_mean_load_of_a_degree() -> None:
    # A ring: each of 8 keeps 1/3 and gets 1/3 from both sides, D in all.
    i = np.arange(8)
    source, target = np.tile(i, 2), np.append((i + 1) % 8, (i - 1) % 8)
    degree = np.full(8, 2)
    assert expected_violations(degree, source, target, 5.0, lambda x: x / 20) == (
        pytest.approx(2.0)
    )
    assert expected_violations(degree, source, target, 5.0, lambda x: x > 6) == 0.0


def test_6_the_formula_is_not_the_number() -> None:
    links = scale_free(400, 1, np.random.default_rng(0))
    degree = np.bincount(links.source, minlength=400)

    def below(x: float) -> float:
        return min(x / 240.0, 1.0)

    formula = expected_violations(degree, links.source, links.target, 60.0, below)
    rng = np.random.default_rng(1)
    number, error = sampled_violations(
        400, links.source, links.target, 60.0, below, rng, draws=300
    )
    assert formula > number + 10 * error
