"""Theorem 1 and Lemma 4 of the two-stage paper, on random problems."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from papers.tsdcfl_theory import (
    TheoryStudy,
    claims_of_theory,
    delayed_squares,
    descended,
    descent_bound,
    drift_constant,
    drift_excess,
    late_answers,
    printed_descent_bound,
    regression,
    run_theory,
    table_of_theory,
)
from papers.tsdcfl_transmission import TransmissionStudy

from melisma.errors import ConfigError
from melisma.maths.arrays import Floats
from melisma.transmission import Decisions, Observed, Queues, Setting
from melisma.transmission.rules import after


def problem(seed: int) -> dict[str, Any]:
    """A random quadratic, with noise, and a step and delay that the bound allows."""
    rng = np.random.default_rng(seed)
    lam = 10.0 ** rng.uniform(-2.0, 3.0) * rng.uniform(0.0, 1.0, 4)
    delay, x = int(rng.integers(0, 6)), rng.uniform(0.05, 1.0)
    while x + 2.0 * (x * delay) ** 2 > 1.0:
        x *= 0.9
    return {
        "curvature": lam,
        "start": rng.standard_normal(4),
        "noise": rng.uniform(0.0, 2.0) * lam**2,
        "step": x / lam.max(),
        "delay": delay,
    }


def means(squares: Floats) -> tuple[Floats, Floats]:
    P = np.arange(1.0, squares.size + 1)
    return P, np.cumsum(squares) / P


@pytest.mark.parametrize("seed", range(40))
def test_the_corrected_bound_holds_on_random_quadratics(seed: int) -> None:
    random = problem(seed)
    P, measured = means(delayed_squares(**random, steps=200))
    lam, x = random["curvature"], random["start"]
    bound = descent_bound(
        steps=P,
        step=random["step"],
        smooth=float(lam.max()),
        gap=0.5 * float(lam @ x**2),
        spread=float(random["noise"].sum()),
        partitions=1,
        delay=random["delay"],
    )
    assert (measured <= bound * (1.0 + 1e-9)).all()


def test_the_exact_squares_are_those_of_many_runs() -> None:
    random = problem(3)
    rng, runs = np.random.default_rng(0), 20_000
    old = [np.tile(random["start"], (runs, 1))] * (random["delay"] + 1)
    measured = []
    for _ in range(30):
        measured.append(((random["curvature"] * old[0]) ** 2).sum(axis=1).mean())
        noise = np.sqrt(random["noise"]) * rng.standard_normal((runs, 4))
        moved = old[0] - random["step"] * (random["curvature"] * old[-1] + noise)
        old = [moved, *old[:-1]]
    assert measured == pytest.approx(
        delayed_squares(**random, steps=30).tolist(), rel=0.03
    )


def test_the_printed_bound_fails_with_a_step_that_it_does_not_rule_out() -> None:
    one = np.ones(1)
    P, measured = means(
        delayed_squares(one, one, 0.0 * one, step=2.2, delay=0, steps=60)
    )
    known: dict[str, Any] = {"steps": P, "step": 2.2, "smooth": 1.0, "gap": 0.5}
    known |= {"spread": 0.0, "partitions": 1}
    printed = printed_descent_bound(**known, workers=1, coefficients=1.0)
    assert measured[-1] > 1e3 * printed[-1]
    with pytest.raises(ConfigError, match="give a shorter step"):
        descent_bound(**known)


def test_the_printed_bound_fails_with_late_answers_that_its_proof_allows() -> None:
    late = late_answers(TheoryStudy())
    assert late["late/allowed"][0] <= 1.0
    assert late["late/mean"][-1] > 1e3 * late["late/printed"][-1]


def test_the_printed_noise_depends_on_the_unit_of_the_model() -> None:
    # w in other units: L times 100, η a hundredth, ζ² times 100, and so ‖∇F‖².
    def both(scale: float) -> list[float]:
        known: dict[str, Any] = {
            "steps": np.array([1e12]),
            "step": 0.05 / scale,
            "smooth": scale,
            "gap": 1.0,
            "spread": scale,
            "partitions": 2,
            "delay": 5,
        }
        printed = printed_descent_bound(**known, workers=3, coefficients=2.0)
        return [float(one[0]) / scale for one in (descent_bound(**known), printed)]

    (ours, printed), (scaled, printed_scaled) = both(1.0), both(100.0)
    assert ours == pytest.approx(scaled)
    assert printed > 1.2 * printed_scaled


def test_the_corrected_noise_is_that_of_a_step_and_of_the_delay() -> None:
    L, step, K, spread, delay, A = 3.0, 0.01, 5, 7.0, 4, 1.5
    at_last = descent_bound(
        steps=np.array([np.inf]),
        step=step,
        smooth=L,
        gap=1.0,
        spread=spread,
        partitions=K,
        delay=delay,
        weight=A,
    )
    decoded = A**2 * spread / K  # of a decoded gradient
    # Lη²/2 of it in a step, η/2 of 2A²L²η²τ of it by the delay; both over η/2.
    assert at_last == pytest.approx(
        L * step * decoded + 2 * (A * L * step) ** 2 * delay * decoded
    )


def test_the_spread_is_that_of_the_gradients_of_samples() -> None:
    study = TheoryStudy(iterations=1)
    X, Y = regression(study)
    each = -X[:, :, None] * Y[:, None, :]  # at the start, w = 0
    apart = ((each - each.mean(axis=0)) ** 2).sum(axis=(1, 2)).mean()
    found = descended((study, 0.5, 0))
    # ζ² of a partition: K of them make the mean of all samples of an iteration.
    expected = found["partitions"] * apart / study.samples
    assert found["spread"] == pytest.approx(float(expected))
    assert descended((study, study.too_long, 0))["spread"] == 0.0


def slot(
    setting: Setting, seed: int, *, full: bool = False
) -> tuple[Queues, Observed, Decisions]:
    """Any queues and decisions, many of them as large as they can be.

    ``full``: all of them, in the dark.
    """
    rng = np.random.default_rng(seed)

    def upto(most: Floats) -> Floats:
        some = rng.choice([0.0, rng.uniform(), 1.0], setting.workers)
        return np.asarray((1.0 if full else some) * most)

    data, battery = upto(setting.most_data_mbit), upto(setting.most_battery_j)
    work, fairness = upto(10.0 * setting.work_gcycles), upto(setting.most_fairness_mbit)
    seen = Observed(
        rate_mbps=upto(setting.rate_mbps),
        arrival_mbit=upto(setting.arrival_mbit),
        harvest_j=upto(setting.harvest_j) * (not full),
        work_gcycles=upto(setting.work_gcycles),
    )
    f = np.minimum(upto(setting.compute_gcycles), work)
    v = upto(np.full(setting.workers, setting.slot_s))
    spent = setting.power_w * v + setting.compute_j_per_gcycle * f
    queues = Queues(
        data_mbit=data,
        fairness_mbit=fairness,
        battery_j=np.maximum(battery, spent),
        work_gcycles=work,
        server_gcycles=rng.uniform(0.0, 20.0, 1),
    )
    done = Decisions(
        auxiliary_mbit=upto(setting.arrival_mbit),
        admitted_mbit=upto(seen.arrival_mbit),
        stored_j=upto(seen.harvest_j),
        computed_gcycles=f,
        airtime_s=v,
        sent_mbit=np.minimum(data, seen.rate_mbps * v),
    )
    return queues, seen, done


@pytest.mark.slow
def test_the_corrected_constant_of_lemma_4_holds_in_any_slot() -> None:
    setting = replace(TransmissionStudy().setting(20.0), energy_weight=np.ones(()))
    crowded = replace(setting, arrival_mbit=np.full(6, 30.0))
    # Energy, and what the server receives, beyond all else.
    hungry = replace(
        setting,
        power_w=30 * setting.power_w,
        compute_j_per_gcycle=30 * setting.compute_j_per_gcycle,
    )
    heavy = replace(
        setting, server_gcycles_per_mbit=30 * setting.server_gcycles_per_mbit
    )
    passed = {True: 0, False: 0}
    for seed in range(400):
        for some in (setting, crowded, hungry, heavy):
            queues, seen, done = slot(some, seed, full=seed == 0)
            grown = drift_excess(
                some, queues, after(some, queues, seen, done), seen, done
            )
            for printed in passed:
                passed[printed] += float(grown) > drift_constant(some, printed=printed)
    assert passed[False] == 0
    assert passed[True] > 20


@pytest.mark.slow
def test_every_claim_of_the_theory_has_a_number() -> None:
    data = run_theory(TheoryStudy(iterations=20, seeds=2, slots=200))
    found = {claim.what: claim.verdict.value for claim in claims_of_theory(data)}
    corrected = "Mean ‖∇F‖² over the corrected bound of Theorem 1, any P, Lη ≤ 1"
    assert found[corrected] == "holds"
    assert found["Mean ‖∇F‖² over the printed bound, Lη ≤ 1"] == "holds"
    assert len(table_of_theory(data)) == 7
