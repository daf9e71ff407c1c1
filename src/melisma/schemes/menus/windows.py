"""A window of steps as rays: option and steps are a ray, samples go along it."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from melisma.maths.arrays import Bools, Floats, Ints
from melisma.maths.rays import Rays
from melisma.system.menu import Menu
from melisma.system.problem import Problem

#: A relaxed window is given this much more, for what rounding may take from it.
SLACK = 1.0 + 1e-12
#: Learners that a price is guessed from, and that are gone through at once.
SAMPLED, CHUNK = 2048, 2048


class Plan(NamedTuple):
    """Samples, steps and option of each learner, and what they are worth."""

    value: float
    samples: Ints
    steps: Ints
    options: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """The windows [a, a + width] of a problem with a menu.

    Tables are options × learners.
    """

    problem: Problem
    menu: Menu
    width: int
    law: Problem = field(init=False)  #: option 0 of all learners, then option 1, …
    value: Floats = field(init=False)  #: v
    may: Bools = field(init=False)  #: which options may be taken
    low: Floats = field(init=False)  #: least samples of each learner
    high: Floats = field(init=False)  #: most

    def __post_init__(self) -> None:
        problem, law = self.problem, self.menu.law
        flat = Problem(
            step_s=law.step_s.T.ravel(),
            sample_s=law.sample_s.T.ravel(),
            fixed_s=law.fixed_s.T.ravel(),
            samples=problem.samples,
            deadline_s=problem.deadline_s,
            most=np.tile(problem.high, self.menu.options),
            steps_at_most=problem.steps_at_most,
        )
        fields = {
            "law": flat,
            "value": np.ascontiguousarray(self.menu.value.T),
            "may": np.ascontiguousarray(self.menu.may.T),
            "low": problem.low.astype(np.float64),
            "high": problem.high.astype(np.float64),
        }
        for name, own in fields.items():
            object.__setattr__(self, name, own)

    def reach(self, steps: int) -> Ints:
        """Most samples by each option with so many steps; 0: it may not be taken."""
        h = self.law.samples_within(steps).reshape(self.menu.options, -1)
        return np.where(self.may & (h >= self.problem.low), h, 0)

    def fits(self, steps: int) -> bool:
        """Return whether all samples fit with so many steps of everyone."""
        most = self.reach(steps).max(axis=0)
        return bool((most > 0).all() and most.sum() >= self.problem.samples)

    def rays(self, a: int, bonus: Floats) -> Rays:
        """Rays of the window from a: an option's levels follow each other.

        ``bonus`` is what a sample is worth by its option alone.
        """
        low, v, levels = self.low, self.value, range(a, a + self.width + 1)
        reach = np.concatenate([self.reach(tau) for tau in levels]).astype(np.float64)
        slope = np.concatenate([v * tau + bonus[:, None] for tau in levels])
        taken = reach > 0
        return Rays(
            slope=np.where(taken, slope, -np.inf),
            reach=np.where(taken, reach, low),
            low=low,
            total=self.problem.samples,
        )

    def of_ray(self, a: int, ray: Ints) -> tuple[Ints, Ints]:
        """Return option and steps of each learner's ray."""
        level, option = np.divmod(ray, self.menu.options)
        return option, a + level

    def sampled(self, learners: int = SAMPLED) -> "Windows":
        """Return the windows of every so manieth learner, with their part of D."""
        K = self.problem.learners
        some = np.zeros(K, dtype=bool)
        some[:: 1 + K // learners] = True
        problem = self.problem.of_some(some)
        share = self.problem.samples * int(some.sum()) // K
        total = min(max(share, int(problem.low.sum())), int(problem.high.sum()))
        return replace(
            self,
            problem=replace(problem, samples=total),
            menu=self.menu.only(some),
        )

    def bound(self, first: int, last: int, bonus: Floats, price: float) -> float:
        """Return a bound on the value of all windows from ``first`` to ``last``.

        With real τ, up to b = last + width, an option is worth at a price μ

            v·min(b·d, (T − C⁰ − C¹·d)/C²) + (bonus − μ)·d,

        which is concave in d, and linear but where b steps are just done: for whole d
        it is largest beside that, or at an end. Any μ makes Σ of the largest, + μ·D,
        a bound.
        """
        bound = price * self.problem.samples
        for start in range(0, self.low.size, CHUNK):
            part = slice(start, start + CHUNK)
            best = self._most_worth(first, last, bonus - price, part)
            bound += float(best.max(axis=0).sum())
        return bound

    def _most_worth(self, first: int, last: int, net: Floats, part: slice) -> Floats:
        """Most that each option can be worth to some learners; −∞: it cannot be."""
        low, (worth, kink, most, taken) = self.low[part], self._curve(first, last, part)
        best = np.full(kink.shape, -np.inf)
        whole = np.floor(kink)
        for d in (low, whole, np.minimum(whole + 1.0, most), np.floor(most)):
            np.maximum(best, worth(d) + net[:, None] * d, out=best)
        return np.where(taken, best, -np.inf)

    def relaxed(self, first: int, last: int) -> Rays:
        """Rays of which none of a range of windows passes the best mixture."""
        worth, kink, most, taken = self._curve(first, last, slice(None))
        reach = [np.where(taken, d, self.low) for d in (kink, most)]
        slope = [np.where(taken, worth(d) / d, -np.inf) for d in reach]
        return Rays(
            slope=np.concatenate(slope),
            reach=np.concatenate(reach),
            low=self.low,
            total=self.problem.samples,
        )

    def _curve(
        self, first: int, last: int, part: slice
    ) -> tuple[Callable[[Floats], Floats], Floats, Floats, Bools]:
        """Worth of d samples, d where b steps are just done, the most, who may."""
        b = min(last + self.width, self.problem.steps_at_most)
        low, v = self.low[part], self.value[:, part]
        law, shape = self.law, self.value.shape
        c2, c1, c0 = (
            c.reshape(shape)[:, part] for c in (law.step_s, law.sample_s, law.fixed_s)
        )
        room, per_s = self.problem.deadline_s - c0, v / c2 * SLACK
        most = np.minimum(room / (c1 + first * c2) * SLACK, self.high[part])
        kink = np.minimum(np.maximum(room / (c1 + b * c2), low), most)

        def worth(d: Floats) -> Floats:
            return np.minimum(per_s * (room - c1 * d), (b * SLACK) * v * d)

        return worth, kink, most, self.may[:, part] & (most >= low)

    def plan(self, a: int, ray: Ints, samples: Ints) -> Plan:
        """Return a plan of a window, and what it is worth."""
        option, steps = self.of_ray(a, ray)
        value = self.menu.value[np.arange(option.size), option]
        return Plan(float((value * steps) @ samples), samples, steps, option)


free = partial(np.zeros, dtype=np.float64)  #: no bonus for any of so many options
