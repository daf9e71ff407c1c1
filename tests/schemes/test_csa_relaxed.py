from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
from tests.schemes.problems import heterogeneous, twins

from melisma.errors import InfeasibleError, SolverError
from melisma.schemes.csa import csa_strict
from melisma.schemes.csa_relaxed import csa_relaxed
from melisma.system import cell, max_staleness


def test_twins_share_equally() -> None:
    # 50 samples each: τ·50 ms + 50 ms ≤ 1 s, so τ = 19.
    allocation = csa_relaxed(twins())
    assert allocation.samples.tolist() == [50, 50]
    assert allocation.steps.tolist() == [19, 19]


@pytest.mark.parametrize("most", [None, 3300])
@pytest.mark.parametrize("seed", range(5))
def test_all_samples_are_within_bounds_and_time(seed: int, most: int | None) -> None:
    problem = heterogeneous(seed, most=most)
    allocation = csa_relaxed(problem)
    d = allocation.samples
    assert d.sum() == problem.samples
    assert ((problem.low <= d) & (d <= problem.high)).all()
    assert (allocation.steps == problem.steps_within(d)).all()


@pytest.mark.parametrize("most", [None, 3300])
@pytest.mark.parametrize("seed", range(5))
def test_the_exact_solution_is_never_staler(seed: int, most: int | None) -> None:
    problem = heterogeneous(seed, most=most)
    exact, relaxed = csa_strict(problem).steps, csa_relaxed(problem).steps
    assert max_staleness(exact) <= max_staleness(relaxed)


def test_a_solver_that_stops_early_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("melisma.schemes.csa_relaxed")
    monkeypatch.setattr(module, "ITERATIONS", 1)
    with pytest.raises(SolverError, match=r"SLSQP stopped after 1 iterations on 20"):
        csa_relaxed(heterogeneous(0))


def test_samples_that_cannot_even_arrive_are_named() -> None:
    # 100 samples at 1 ms each, two at a time: 50 ms.
    with pytest.raises(InfeasibleError, match=r"even for 0 steps .* 40 do;"):
        csa_relaxed(replace(twins(), deadline_s=0.02))


@pytest.mark.paper
@pytest.mark.parametrize("deadline_s", [7.5, 15.0])
@pytest.mark.parametrize("K", [5, 10, 14, 18, 20])
def test_floored_it_has_no_staleness(K: int, deadline_s: float) -> None:
    assert np.ptp(csa_relaxed(cell(K, deadline_s)).steps) == 0
