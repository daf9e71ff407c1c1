"""Problems with a menu that tests share, and the best plan by trying all of them."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from tests.schemes.oracle import splits, steps
from tests.schemes.problems import small

from melisma.maths.arrays import Floats, Ints
from melisma.system import DelayLaw, Problem
from melisma.system.menu import Menu
from melisma.system.problem import MenuAllocation


def with_menu(
    problem: Problem, options: int, rng: np.random.Generator, **more: Any
) -> Menu:
    """Options that are cheaper and worth less, or dearer and worth more."""
    shape = (problem.learners, options)
    factor = rng.choice([0.25, 0.5, 0.75, 1.0, 1.5], (3, *shape))
    factor[:, :, 0] = 1.0
    law = DelayLaw(
        step_s=problem.step_s[:, None] * factor[0],
        sample_s=problem.sample_s[:, None] * factor[1],
        fixed_s=problem.fixed_s[:, None] * factor[2],
    )
    size = shape if rng.random() < 0.5 else options
    value = rng.choice([0.25, 0.4, 0.7, 0.9, 1.0, 1.3], size)
    value[..., 0] = 1.0
    return Menu(law=law, value=value, **more)


def small_menus(seed: int, count: int) -> Iterator[tuple[Problem, Menu, Floats]]:
    """Up to 4 learners and 4 options; a third may not take some, half have blocks.

    The last is the least coverage; without blocks it is empty.
    """
    rng = np.random.default_rng(seed)
    for problem in small(seed, count):
        options = int(rng.integers(1, 6 if problem.learners < 4 else 4))
        allowed = blocks = None
        if rng.random() < 0.3:
            allowed = rng.random((problem.learners, options)) < 0.7
            allowed[:, 0] |= ~allowed.any(axis=1)
        if rng.random() < 0.5:
            blocks = rng.choice([0.0, 0.5, 1.0], (options, int(rng.integers(1, 4))))
            blocks[0] = 1.0
        rho = np.empty(0)
        if blocks is not None:
            rho = rng.choice([0.0, 0.25, 0.5, 0.8], blocks.shape[1])
        menu = with_menu(problem, options, rng, allowed=allowed, blocks=blocks)
        yield problem, menu, rho


def most_steps(problem: Problem, menu: Menu) -> Ints:
    """Most steps by learner, option and samples, in exact fractions."""
    tables = []
    for m in range(menu.options):
        law = menu.law_of(np.full(menu.learners, m))
        tables.append(
            steps(
                Problem.of(
                    law,
                    samples=problem.samples,
                    deadline_s=problem.deadline_s,
                    steps_at_most=problem.steps_at_most,
                )
            )
        )
    return np.stack(tables, axis=1)


def most_value(
    problem: Problem, menu: Menu, staleness: int, rho: Floats
) -> float | None:
    """Value of the best plan; None if there is none."""
    K, D = problem.learners, problem.samples
    d = splits(D, K)
    d = d[((d >= problem.low) & (d <= problem.high)).all(axis=1)]
    f, who, best = most_steps(problem, menu), np.arange(K), None
    for chosen in product(*(np.flatnonzero(row) for row in menu.may)):
        m = np.array(chosen)
        most = f[who, m, d]
        least = most.min(axis=1)
        ok = least >= 1
        if menu.blocks is not None:
            ok &= (d @ menu.blocks[m] / D >= rho - 1e-9).all(axis=1)
        tau = np.minimum(most, (least + staleness)[:, None])
        value = (menu.value[who, m] * tau * d).sum(axis=1)[ok]
        if value.size and (best is None or value.max() > best):
            best = float(value.max())
    return best


def check(
    problem: Problem, menu: Menu, found: MenuAllocation, staleness: int, rho: Floats
) -> None:
    """Assert that a plan is one, and that it says what it is worth."""
    d, tau, m = found.samples, found.steps, found.options
    assert d.sum() == problem.samples
    assert (problem.low <= d).all()
    assert (d <= problem.high).all()
    assert menu.may[np.arange(d.size), m].all()
    assert (menu.law_of(m).seconds(d, tau) <= problem.deadline_s).all()
    assert tau.min() >= 1
    assert np.ptp(tau) <= staleness
    assert found.value == menu.worth(found.samples, found.steps, m)
    assert found.bound >= found.value
    assert (menu.coverage(d, m) >= rho - 1e-9).all()
