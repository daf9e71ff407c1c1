"""Coverage: no block of the model starves, by a price on each.

With a price λ on each block's samples an option has a bonus λ·s for each of its, and
learners are independent again. Prices and a mixture of picks come from the same small
linear program, which grows by one pick at a time (Dantzig and Wolfe): its bound holds
for any prices. A plan is rounded from it: each learner follows one pick of the
mixture, evenly spread, and then samples are shared out anew on the rays so chosen, in
whole numbers over classes of learners that are alike. Where that has few variables,
the window itself goes to HiGHS.
"""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog

from melisma.errors import InfeasibleError, SolverError
from melisma.maths.arrays import Bools, Floats, Ints
from melisma.maths.rays import ROUNDING, Pick, Rays
from melisma.maths.search import last_true
from melisma.schemes.menus import search
from melisma.schemes.menus.exact import shared, whole
from melisma.schemes.menus.search import Found
from melisma.schemes.menus.windows import Plan, Windows, free

#: A share of samples that is so little short of the least is rounding.
SHORT = 1e-9
#: Picks of a linear program, and ways to round its mixture.
PICKS, WAYS = 150, 8
#: Rays of all learners up to which a window goes to HiGHS.
SMALL = 160


def covered(windows: Windows, plan: Plan, rho: Floats) -> bool:
    """Return whether each block has its share of the samples."""
    shares = windows.menu.coverage(plan.samples, plan.options)
    return bool((shares >= rho - SHORT).all())


def best(
    windows: Windows, first: int, near: int, known: Plan | None, rho: Floats
) -> Found:
    """Return the best plan that covers all blocks; ``near`` is a window like its own.

    Raises InfeasibleError if none does.
    """
    top = _top(windows, first, near, rho)
    rays = windows.rays(min(near, top), free(windows.menu.options))
    mixture = _mixed(rays, windows, rho)
    solve = partial(_solved, rho)
    most = 40 if windows.menu.value.size < 10_000 else 4
    found = search.best(
        windows,
        first,
        top,
        known,
        solve,
        bonus=mixture.bonus,
        offset=mixture.offset,
        most=most,
    )
    if found.plan is None:
        raise SolverError(
            f"no plan was found that gives each block its share of {rho.max():g}, nor "
            "a proof that there is none: lower 'least_coverage' a little"
        )
    return found


class Mixture(NamedTuple):
    """The answer of a linear program over picks."""

    bound: float  #: no plan is worth more
    short: float  #: shares of samples that blocks lack, all together
    picks: list[Pick]
    weights: Floats
    bonus: Floats  #: of a sample by each option, at the best prices
    offset: float  #: Σ λ·ρ·D


def _mixed(rays: Rays, windows: Windows, rho: Floats, *, worth: bool = True) -> Mixture:
    """Mix picks for the most value; for the least shortage where nothing has worth."""
    blocks = windows.menu.blocks
    assert blocks is not None
    D, M = windows.problem.samples, windows.menu.options
    levels = len(rays.slope) // M
    base = rays if worth else replace(rays, slope=_flat(rays.slope))
    picks = [base.furthest(), base.shortest()]
    scale = max(abs(pick.gain) for pick in picks) or 1.0
    columns = [_column(pick, blocks) for pick in picks]
    least, bonus, offset, weights, short = np.inf, free(M), 0.0, free(2), np.inf
    for _ in range(PICKS):
        gains, totals, shares = (np.array(part) for part in zip(*columns, strict=True))
        penalty = 1e3 if worth else 1.0
        answer = linprog(
            np.concatenate([-gains / scale, np.full(rho.size, penalty)]),
            A_ub=np.hstack([-shares.T / D, -np.eye(rho.size)]),
            b_ub=-rho,
            A_eq=np.hstack(
                [np.vstack([np.ones(gains.size), totals / D]), np.zeros((2, rho.size))]
            ),
            b_eq=[1.0, 1.0],
            method="highs",
        )
        if not answer.success:
            raise SolverError(f"HiGHS stopped on prices of blocks: {answer.message}")
        weights, short = answer.x[: gains.size], float(answer.x[gains.size :].sum())
        price = -answer.eqlin.marginals[1] * scale / D
        prices = -np.minimum(answer.ineqlin.marginals, 0.0) * scale / D
        own = blocks @ prices
        priced = replace(base, slope=base.slope + np.tile(own, levels)[:, None])
        pick = priced.best(price)
        height = pick.bound(price, D) - float(prices @ rho) * D
        if height < least:
            least, bonus, offset = height, own, float(prices @ rho) * D
        if least <= -answer.fun * scale + ROUNDING * 100 * scale:
            break
        if not worth and (short <= SHORT or least < -SHORT):
            break  # it covers, or nothing does
        slope, _ = base.at(pick.ray)
        picks.append(pick._replace(gain=float(slope @ pick.size)))
        columns.append(_column(picks[-1], blocks))
    return Mixture(least, short, picks[: weights.size], weights, bonus, offset)


def _flat(slope: Floats) -> Floats:
    return np.where(np.isfinite(slope), 0.0, slope)


def _column(pick: Pick, blocks: Floats) -> tuple[float, float, Floats]:
    each = np.bincount(
        pick.ray % len(blocks), weights=pick.size, minlength=len(blocks)
    )
    return pick.gain, pick.total, each @ blocks


def _top(windows: Windows, first: int, near: int, rho: Floats) -> int:
    """Return the last window that may cover all blocks, samples taken as divisible."""
    alike = replace(windows, width=0)

    def covers(a: int) -> bool:
        rays = alike.rays(a, free(windows.menu.options))
        if not rays.reachable:
            return False
        mixture = _mixed(rays, alike, rho, worth=False)
        # The bound is on −Σ shortage: below 0, every plan falls short.
        return mixture.bound >= -SHORT

    top = last_true(covers, first, max(first, 2**52), guess=near)
    if top < first:
        raise _uncovered(windows, first, rho)
    return top


def _uncovered(windows: Windows, first: int, rho: Floats) -> InfeasibleError:
    """Say which block cannot have its share, and which share it can have."""
    menu, D = windows.menu, windows.problem.samples
    assert menu.blocks is not None
    rays = replace(windows, width=0).rays(first, free(menu.options))
    for block, share in enumerate(menu.blocks.T):
        flat = _flat(rays.slope) + share[:, None]
        most = min(replace(rays, slope=flat).relax().bound / D, 1.0)
        if most < rho[block] - SHORT:
            return InfeasibleError(
                f"block {block} can be trained on {most:.4g} of all samples at most, "
                f"less than the least coverage of {rho[block]:g}: lower it to that, "
                "extend the deadline or allow learners options that train the block"
            )
    return InfeasibleError(
        f"the {rho.size} blocks cannot all have their least coverage, up to "
        f"{rho.max():g} of the samples, at once: lower it, extend the deadline or "
        "allow learners options that train more blocks"
    )


def _solved(rho: Floats, windows: Windows, a: int, value: float) -> Found:
    """Solve one window."""
    rays = windows.rays(a, free(windows.menu.options))
    if not rays.reachable:
        return Found(None, -np.inf)
    if rays.slope.size <= SMALL:
        return whole(windows, rays, a, rho)
    mixture = _mixed(rays, windows, rho)
    plans = _rounded(rays, windows, a, rho, mixture)
    margin = rays.reach.max() / rays.total
    for more in (1.0, 4.0, 16.0):
        if plans:
            break
        safer = np.where(rho > 0, np.minimum(rho + more * margin, 1.0), 0.0)
        plans = _rounded(rays, windows, a, rho, _mixed(rays, windows, safer))
    plan = max(plans, key=lambda plan: plan.value, default=None)
    return Found(plan, mixture.bound)


def _rounded(
    rays: Rays, windows: Windows, a: int, rho: Floats, mixture: Mixture
) -> list[Plan]:
    """Return plans in which each learner follows one of the picks."""
    plans = []
    ends = np.cumsum(mixture.weights) / mixture.weights.sum()
    turn = np.arange(rays.low.size) * ((5**0.5 - 1) / 2)  # evenly spread, any stretch
    rank = np.argsort(np.argsort(rays.reach.max(axis=0), kind="stable"))
    for way in range(WAYS):
        place = (turn[rank] + way / WAYS) % 1.0
        which = np.minimum(np.searchsorted(ends, place, side="right"), ends.size - 1)
        plan = shared(windows, rays, a, _followed(mixture.picks, which), rho)
        if plan is not None and covered(windows, plan, rho):
            plans.append(plan)
    return plans


def _followed(picks: list[Pick], which: Ints) -> Ints:
    ray = np.empty(which.size, dtype=np.int64)
    for i in np.unique(which):
        mine: Bools = which == i
        ray[mine] = picks[i].ray[mine]
    return ray
