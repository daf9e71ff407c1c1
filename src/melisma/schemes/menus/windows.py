"""A window of steps as rays: option and steps are a ray, samples go along it."""

from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from melisma.maths.arrays import Bools, Floats, Ints
from melisma.maths.rays import Rays
from melisma.system.menu import Menu
from melisma.system.problem import Problem

#: A relaxed window is given this much more, for what rounding may take from it.
SLACK = 1.0 + 1e-12


class Plan(NamedTuple):
    """Samples, steps and option of each learner, and what they are worth."""

    value: float
    samples: Ints
    steps: Ints
    options: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """The windows [a, a + width] of a problem with a menu; tables options × learners."""

    problem: Problem
    menu: Menu
    width: int
    law: Problem = field(init=False)  #: option 0 of all learners, then option 1, …

    def __post_init__(self) -> None:
        problem, law = self.problem, self.menu.law
        flat = Problem(
            step_s=law.step_s.T.ravel(),
            sample_s=law.sample_s.T.ravel(),
            fixed_s=law.fixed_s.T.ravel(),
            samples=problem.samples,
            deadline_s=problem.deadline_s,
            most=np.tile(problem.high, self.menu.options),
        )
        object.__setattr__(self, "law", flat)

    @property
    def low(self) -> Floats:
        """Least samples of each learner."""
        return self.problem.low.astype(np.float64)

    def reach(self, steps: int) -> Ints:
        """Most samples by each option with so many steps; 0: it may not be taken."""
        h = self.law.samples_within(steps).reshape(self.menu.options, -1)
        return np.where(self.menu.may.T & (h >= self.problem.low), h, 0)

    def fits(self, steps: int) -> bool:
        """Return whether all samples fit with so many steps of everyone."""
        most = self.reach(steps).max(axis=0)
        return bool((most > 0).all() and most.sum() >= self.problem.samples)

    def rays(self, a: int, bonus: Floats) -> Rays:
        """Rays of the window from a: an option's levels follow each other.

        ``bonus`` is what a sample is worth by its option alone.
        """
        worth = self.menu.value.T
        levels = [
            (worth * tau + bonus[:, None], self.reach(tau))
            for tau in range(a, a + self.width + 1)
        ]
        return self._rays([slope for slope, _ in levels], [h for _, h in levels])

    def of_ray(self, a: int, ray: Ints) -> tuple[Ints, Ints]:
        """Return option and steps of each learner's ray."""
        level, option = np.divmod(ray, self.menu.options)
        return option, a + level

    def relaxed(self, first: int, last: int, bonus: Floats) -> Rays:
        """Rays above those of all windows from ``first`` to ``last``.

        With real d and τ from ``first`` to b = last + width an option is worth
        v·min(b·d, (T − C⁰ − C¹·d)/C²), which is concave in d: no answer is above the
        rays to where b steps are just done, and to the most samples.
        """
        b, low, shape = last + self.width, self.low, self.menu.value.T.shape
        c2, c1, c0 = (
            c.reshape(shape)
            for c in (self.law.step_s, self.law.sample_s, self.law.fixed_s)
        )
        room, most = self.problem.deadline_s - c0, self.reach(first)
        kink = np.minimum(np.maximum(room / (c1 + b * c2), low), most)

        def slope(d: Floats) -> Floats:
            steps = np.minimum((room / np.maximum(d, 1.0) - c1) / c2, float(b))
            worth: Floats = self.menu.value.T * np.maximum(steps, first) * SLACK
            return worth + bonus[:, None]

        ends = most.astype(np.float64)
        return self._rays([slope(kink), slope(ends)], [kink, ends], most > 0)

    def _rays(
        self,
        slopes: list[Floats],
        reaches: list[Floats] | list[Ints],
        open_: Bools | None = None,
    ) -> Rays:
        low = self.low
        slope, reach = np.concatenate(slopes), np.concatenate(reaches).astype(float)
        taken = reach > 0 if open_ is None else np.tile(open_, (len(slopes), 1))
        return Rays(
            slope=np.where(taken, slope, -np.inf),
            reach=np.where(taken, reach, low),
            low=low,
            total=self.problem.samples,
        )

    def plan(self, a: int, ray: Ints, samples: Ints) -> Plan:
        """Return a plan of a window, and what it is worth."""
        option, steps = self.of_ray(a, ray)
        value = self.menu.value[np.arange(option.size), option]
        return Plan(float((value * steps) @ samples), samples, steps, option)


free = partial(np.zeros, dtype=np.float64)  #: no bonus for any of so many options
