import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.schemes.problems import heterogeneous, twins

from melisma.errors import ConfigError, InfeasibleError
from melisma.maths.arrays import Floats
from melisma.schemes.csa_kkt import (
    Multipliers,
    RelaxedOptimum,
    relaxed_optimum,
    theorem_1,
)
from melisma.schemes.csa_relaxed import _solve
from melisma.schemes.csa_sai import _suggestion
from melisma.system import Problem, cell

Complex = NDArray[np.complex128]


def bounded(seed: int, count: int) -> Iterator[Problem]:
    """Random learners, half of them with bounds that stop some on either side."""
    rng = np.random.default_rng(seed)
    for case in range(count):
        K = int(rng.integers(2, 9))
        D = int(rng.integers(20 * K, 200 * K))
        tight = (rng.uniform(0, 1, 2) < 0.6) & (case % 2 == 0)
        least = np.where(tight[0], rng.integers(1, D // K + 1, K), 1)
        most = np.where(tight[1], rng.integers(D // K, 2 * D // K, K) + 1, D)
        yield Problem(
            step_s=rng.uniform(1e-4, 4e-3, K),
            sample_s=rng.uniform(0.0, 2e-3, K),
            fixed_s=rng.uniform(0.0, 0.4, K),
            samples=D,
            deadline_s=float(rng.uniform(2.0, 20.0)),
            least=least,
            most=np.maximum(most, least),
        )


def solved(seed: int, count: int) -> Iterator[tuple[Problem, RelaxedOptimum]]:
    for problem in bounded(seed, count):
        try:
            yield problem, relaxed_optimum(problem)
        except InfeasibleError:
            continue


def lagrangian(problem: Problem, m: Multipliers, x: Complex) -> complex:
    """(19), written out from the constraints."""
    z, tau, d = x[0], *x[1:].reshape(2, -1)
    k, other = np.triu_indices(tau.size, 1)
    time = problem.step_s * tau * d + problem.sample_s * d + problem.fixed_s
    return complex(
        z
        + m.time @ (time - problem.deadline_s)
        - m.nonnegative @ tau
        + m.total * (d.sum() - problem.samples)
        + m.least @ (problem.low - d)
        + m.most @ (d - problem.high)
        + m.ahead @ (tau[k] - tau[other] - z)
        + m.behind @ (tau[other] - tau[k] - z)
    )


def gradient(problem: Problem, m: Multipliers, best: RelaxedOptimum) -> Floats:
    """By complex steps, which round nothing away."""
    x = np.r_[best.staleness, best.steps, best.samples].astype(np.complex128)
    steps = 1e-30j * np.eye(x.size)
    return np.array([lagrangian(problem, m, x + h).imag for h in steps]) / 1e-30


def test_twins_share_equally() -> None:
    # 50 samples each: τ·50 ms + 50 ms = 1 s, so τ = 19.
    best = relaxed_optimum(twins())
    assert best.samples == pytest.approx([50, 50])
    assert best.steps == pytest.approx([19, 19])
    assert best.staleness == 0


def test_a_bound_makes_the_other_late_by_a_known_multiplier() -> None:
    # The first may take 40, so it does 1000/40 − 1 = 24 steps, the other with 60
    # 1000/60 − 1 = 47/3: z = 25/3. A sample more goes to the other: dz = 1000/60².
    best = relaxed_optimum(replace(twins(), most=np.array([40, 100])))
    assert best.steps == pytest.approx([24, 47 / 3])
    assert best.staleness == pytest.approx(25 / 3)
    assert best.multipliers.total == pytest.approx(-1000 / 60**2)
    assert best.multipliers.ahead == pytest.approx([1.0])


def test_it_is_the_root_that_suggest_and_improve_starts_from() -> None:
    for problem, best in solved(0, 100):
        if best.steps.min() >= 1.0:  # suggest and improve asks for a step of each
            assert _suggestion(problem) == pytest.approx(best.samples, rel=1e-7)
    for K in (5, 14, 20, 200):
        problem = cell(K, 15.0, samples=3000 * K)
        suggested = _suggestion(problem)
        assert relaxed_optimum(problem).samples == pytest.approx(suggested, rel=1e-7)


def test_the_solution_is_feasible() -> None:
    for problem, best in solved(1, 100):
        d, tau = best.samples, best.steps
        assert d.sum() == pytest.approx(problem.samples, rel=1e-9)
        assert (problem.low <= d).all()
        assert (d <= problem.high).all()
        assert (tau >= 0).all()
        assert problem.seconds(d, tau) == pytest.approx(problem.deadline_s, rel=1e-9)


def test_the_multipliers_prove_it() -> None:
    forced = 0
    for problem, best in solved(2, 100):
        m = best.multipliers
        # Stationary.
        pulls = np.abs(m.time) * (problem.step_s * best.steps + problem.sample_s)
        scale = max(1.0, abs(m.total), pulls.max())
        assert np.abs(gradient(problem, m, best)).max() <= 1e-9 * scale
        # Nonnegative, and only where a constraint is met with equality.
        for values, slack in (
            (m.nonnegative, best.steps),
            (m.least, best.samples - problem.low),
            (m.most, problem.high - best.samples),
            *_pairs(best),
        ):
            assert (values >= 0).all()
            assert (values * slack).max() <= 1e-7 * max(1.0, float(slack.max()))
        forced += best.staleness > 0
    assert forced > 20


def _pairs(best: RelaxedOptimum) -> Iterator[tuple[Floats, Floats]]:
    k, other = np.triu_indices(best.steps.size, 1)
    apart = best.steps[k] - best.steps[other]
    yield best.multipliers.ahead, best.staleness - apart
    yield best.multipliers.behind, best.staleness + apart


def test_no_smaller_staleness_holds_all_samples() -> None:
    """The problem is not convex, so that multipliers alone prove no optimum."""
    for problem, best in solved(3, 100):
        if best.staleness == 0:
            continue
        z = 0.999 * best.staleness
        c2, c1 = problem.step_s, problem.sample_s
        room_s = problem.deadline_s - problem.fixed_s
        fewest = np.maximum((room_s / problem.high - c1) / c2, 0.0)
        highest = (room_s / problem.low - c1) / c2
        bottom = np.linspace(0.0, highest.min(), 4001)[:, None]
        bottom = bottom[bottom[:, 0] + z >= fewest.max()]
        most, least = (
            (room_s / (c1 + np.clip(tau, fewest, highest) * c2)).sum(axis=1)
            for tau in (bottom, bottom + z)
        )
        assert not ((least <= problem.samples) & (problem.samples <= most)).any()


@pytest.mark.parametrize("most", [None, 3300])
@pytest.mark.parametrize("seed", range(5))
def test_a_general_solver_finds_no_better_one(seed: int, most: int | None) -> None:
    problem = heterogeneous(seed, most=most)
    d = _solve(problem)
    room_s = problem.deadline_s - problem.fixed_s
    tau = (room_s / d - problem.sample_s) / problem.step_s
    assert relaxed_optimum(problem).staleness == pytest.approx(np.ptp(tau), abs=1e-5)


def test_the_multiplier_of_the_total_is_the_price_of_a_sample() -> None:
    priced = 0
    for problem, best in solved(4, 80):
        about = [replace(problem, samples=problem.samples + n) for n in (-1, 1)]
        try:
            fewer, more = (relaxed_optimum(p).staleness for p in about)
        except InfeasibleError:
            continue
        # z is convex in D between bends, so the slope lies between both differences.
        slopes = sorted((best.staleness - fewer, more - best.staleness))
        slack = 1e-9 * max(1.0, best.staleness)
        same_kind = np.sign(fewer) == np.sign(more) == np.sign(best.staleness)
        if same_kind:
            assert slopes[0] - slack <= -best.multipliers.total <= slopes[1] + slack
            priced += best.multipliers.total != 0
    assert priced > 10


def test_theorem_1_holds_as_corrected_and_not_as_printed() -> None:
    printed_wrong = 0
    for problem, best in solved(5, 100):
        m = best.multipliers
        tau, d = theorem_1(problem, m)
        told = m.time != 0
        assert tau[told] == pytest.approx(best.steps[told], rel=1e-6, abs=1e-6)
        assert d[told] == pytest.approx(best.samples[told], rel=1e-6)
        # (11) has +ν: wrong wherever the lower bound of a learner holds it.
        printed = replace(m, least=-m.least)
        at_least = told & (m.least > 0)
        off = np.abs(theorem_1(problem, printed)[0] - best.steps)[at_least]
        assert (off > 1e-3).all()
        printed_wrong += off.size
    assert printed_wrong > 10


def test_the_sign_of_alpha_is_wrong_as_printed() -> None:
    # All that can arrive: 1 s at 10 ms a sample is 100 each, so τ = 0 for both, and
    # α may be anything: with λ = (1 + 1)/(C² d) both pulls and α are in balance.
    base = replace(twins(), sample_s=np.full(2, 0.01), samples=200)
    lam = np.full(2, 2.0 / (1e-3 * 100))
    m = Multipliers(
        time=lam,
        total=float(-lam[0] * 0.01),
        nonnegative=np.full(2, 2.0),
        least=np.zeros(2),
        most=np.zeros(2),
        ahead=np.array([0.5]),
        behind=np.array([0.5]),
    )
    best = relaxed_optimum(base)
    assert gradient(base, m, best) == pytest.approx(np.zeros(5), abs=1e-9)
    assert theorem_1(base, m)[1] == pytest.approx([100, 100])
    printed = replace(m, nonnegative=-m.nonnegative)
    assert theorem_1(base, printed)[1] == pytest.approx([-100, -100])


def test_where_one_number_of_steps_fits_all_the_theorem_says_nothing() -> None:
    problem = cell(20, 7.5)
    best = relaxed_optimum(problem)
    assert best.staleness == 0
    assert not best.multipliers.time.any()
    assert best.multipliers.total == 0
    assert np.isnan(theorem_1(problem, best.multipliers)).all()


@pytest.mark.parametrize("K", [2, 4, 7])
def test_pulls_are_those_of_appendix_c_with_its_indices_mended(K: int) -> None:
    rng = np.random.default_rng(K)
    mu, mu_ = rng.uniform(size=(2, K * (K - 1) // 2))
    zeros = np.zeros(K)
    m = Multipliers(
        time=zeros,
        total=0.0,
        nonnegative=zeros,
        least=zeros,
        most=zeros,
        ahead=mu,
        behind=mu_,
    )

    def start(k: int) -> int:  # (27), with pairs and learners from 1
        return 1 + sum(K - i for i in range(1, k))

    def side(values: Floats, k: int) -> float:  # (26), (29)
        own = sum(values[j - 1] for j in range(start(k), start(k + 1)))
        others = sum(values[start(j) + (k - j) - 1 - 1] for j in range(1, k))
        return float(own - others)

    expected = [side(mu, k) - side(mu_, k) for k in range(1, K + 1)]
    assert m.pull() == pytest.approx(expected)


def test_a_learner_alone_has_no_staleness() -> None:
    with pytest.raises(ConfigError, match="two or more"):
        relaxed_optimum(cell(1, 500.0))


def test_samples_that_cannot_even_arrive_are_named() -> None:
    with pytest.raises(InfeasibleError, match=r"even for 0 steps .* 40 do;"):
        relaxed_optimum(replace(twins(), deadline_s=0.02))


def test_the_page_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).parents[2] / "docs" / "schemes.md"
    text = page.read_text(encoding="utf-8").partition("with its multipliers")[2]
    code, printed = re.findall(r"```(?:python)?\n(.*?)```", text, flags=re.DOTALL)[:2]
    exec(code, {})
    assert capsys.readouterr().out == printed
