"""Coverage: no block of the model starves, by a price on each.

With a price λ on each block's samples an option has a bonus λ·s for each of its, and
learners are independent again. Prices and a mixture of picks come from the same small
linear program, which grows by one pick at a time (Dantzig and Wolfe): its bound holds
for any prices. A plan is rounded from it: each learner follows one pick of the
mixture, evenly spread, and then samples are shared out anew on the rays so chosen, in
whole numbers over classes of learners that are alike. Where that has few variables,
the window itself goes to HiGHS.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from melisma.errors import InfeasibleError, SolverError
from melisma.maths.arrays import Bools, Floats, Ints
from melisma.maths.rays import Pick, Rays
from melisma.maths.search import last_true
from melisma.schemes.menus import search
from melisma.schemes.menus.exact import shared, whole
from melisma.schemes.menus.search import Found, Prices
from melisma.schemes.menus.windows import Plan, Windows, free

#: A share of samples that is so little short of the least is rounding.
SHORT = 1e-9
#: Picks of a linear program, and ways to round its mixture.
PICKS, WAYS = 60, 4
#: To what share of the value the linear program is solved.
PRECISE = 1e-6
#: Learners that prices are guessed from, and how many of these are tried on all.
SAMPLED, RECENT = 512, 8
#: Windows solved, but where they are small.
WINDOWS = 6
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
    few = windows.sampled(SAMPLED)
    factor = windows.problem.samples / few.problem.samples

    def price(first: int, last: int) -> Prices:
        return _mixed(few.relaxed(first, last), few, rho).scaled(factor)

    most = WINDOWS if windows.value.size * (windows.width + 1) > SMALL else None
    found = search.best(windows, first, top, known, price, partial(_solved, rho), most)
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
    prices: Prices  #: those of the bound
    tried: list[tuple[float, Floats]]  #: prices of samples and of blocks, on the way

    def scaled(self, factor: float) -> Prices:
        """Return the prices for so many times as many samples."""
        return self.prices._replace(offset=self.prices.offset * factor)


def _mixed(
    rays: Rays,
    windows: Windows,
    rho: Floats,
    *,
    worth: bool = True,
    tried: Sequence[tuple[float, Floats]] = (),
) -> Mixture:
    """Mix picks for the most value; for the least shortage where nothing has worth.

    ``tried`` are prices near the best.
    """
    blocks = windows.menu.blocks
    assert blocks is not None
    D, levels = rays.total, len(rays.slope) // len(blocks)
    base = rays if worth else replace(rays, slope=_flat(rays.slope))
    master = _Master([], [], D, rho, 1e3 if worth else 1.0)

    def pick_at(price: float, lambdas: Floats) -> float:
        """Add the pick of some prices; return their bound."""
        bonus = np.tile(blocks @ lambdas, levels)
        pick = replace(base, slope=base.slope + bonus[:, None]).best(price)
        height = pick.bound(price, D) - float(lambdas @ rho) * D
        gain = float(base.at(pick.ray)[0] @ pick.size)
        master.add(pick._replace(gain=gain), blocks)
        return height

    master.add(base.furthest(), blocks)
    master.add(base.shortest(), blocks)
    least, at = np.inf, (0.0, np.zeros(rho.size))
    path: list[tuple[float, Floats]] = []
    for price, lambdas in tried:
        pick_at(price, lambdas)
    for _ in range(PICKS):
        value, weights, short, price, lambdas = master.solved()
        path.append((price, lambdas))
        height = pick_at(*path[-1])
        if height < least:
            least, at = height, path[-1]
        if least <= value + PRECISE * max(abs(value), 1.0):
            break
        if not worth and (short <= SHORT or least < -SHORT):
            break  # it covers, or nothing does
    prices = Prices(at[0], blocks @ at[1], float(at[1] @ rho) * D)
    return Mixture(least, short, master.picks[: weights.size], weights, prices, path)


@dataclass(frozen=True, slots=True)
class _Master:
    """The linear program: mix picks so that samples and coverage add up."""

    picks: list[Pick]
    shares: list[Floats]
    total: int
    rho: Floats
    penalty: float  #: of a block's whole share, beside the largest value

    def add(self, pick: Pick, blocks: Floats) -> None:
        """Add a pick, with the samples that train each block."""
        M = len(blocks)
        each = np.bincount(pick.ray % M, weights=pick.size, minlength=M)
        self.picks.append(pick)
        self.shares.append(each @ blocks / self.total)

    def solved(self) -> tuple[float, Floats, float, float, Floats]:
        """Return value, weights, shortage, and the prices of samples and of blocks."""
        from scipy.optimize import linprog

        gains = np.array([pick.gain for pick in self.picks])
        totals = np.array([pick.total for pick in self.picks]) / self.total
        B, n, scale = self.rho.size, gains.size, float(np.abs(gains).max()) or 1.0
        answer = linprog(
            np.concatenate([-gains / scale, np.full(B, self.penalty)]),
            A_ub=np.hstack([-np.array(self.shares).T, -np.eye(B)]),
            b_ub=-self.rho,
            A_eq=np.hstack([np.vstack([np.ones(n), totals]), np.zeros((2, B))]),
            b_eq=[1.0, 1.0],
            method="highs",
        )
        if not answer.success:
            raise SolverError(f"HiGHS stopped on prices of blocks: {answer.message}")
        assert answer.fun is not None
        price = -float(answer.eqlin.marginals[1]) * scale / self.total
        blocks = -np.minimum(answer.ineqlin.marginals, 0.0) * scale / self.total
        x: Floats = np.asarray(answer.x)
        return -answer.fun * scale, x[:n], float(x[n:].sum()), price, blocks


def _flat(slope: Floats) -> Floats:
    return np.where(np.isfinite(slope), 0.0, slope)


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
    few = windows.sampled(SAMPLED)
    some = few.rays(a, free(few.menu.options))
    tried = _mixed(some, few, rho).tried[-RECENT:] if some.reachable else []
    mixture = _mixed(rays, windows, rho, tried=tried)
    if mixture.bound <= value:
        return Found(None, mixture.bound)
    plans = _rounded(rays, windows, a, rho, mixture)
    margin = rays.reach.max() / rays.total
    for more in (1.0, 4.0, 16.0):
        if plans:
            break
        safer = np.where(rho > 0, np.minimum(rho + more * margin, 1.0), 0.0)
        plans = _rounded(
            rays, windows, a, rho, _mixed(rays, windows, safer, tried=mixture.tried)
        )
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
