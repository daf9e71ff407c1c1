"""What a scheme is given, and what it gives back."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from melisma.errors import ConfigError, InfeasibleError
from melisma.maths.arrays import Bools, Floats, Ints, counts
from melisma.system.energy import Spending
from melisma.system.law import DelayLaw
from melisma.system.menu import Menu

#: More local steps than any deadline allows: keeps counts inside exact floats.
STEPS_LIMIT = 2**52


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem(DelayLaw):
    """One global cycle to allocate, as the orchestrator sees it.

    Arrays run over learners k = 0 … K−1. ``least`` and ``most`` bound every learner's
    samples; each is one number for all or an array. Where there is a ``menu``, the law
    is that of its option 0, which a learner takes unless a scheme says otherwise.
    """

    samples: int  #: D, samples to train on in a cycle
    deadline_s: float  #: T, seconds in a cycle
    least: int | Ints = 1  #: d_l, least samples of a learner
    most: int | Ints | None = None  #: d_u, most samples of a learner; None: all
    menu: Menu | None = None  #: ways to take part; None: as now
    steps: int = 1  #: τ, where the scheme does not choose it; never above the next
    steps_at_most: int = STEPS_LIMIT  #: P, most steps of a learner
    spending: Spending | None = None  #: energy, money or carbon, where it counts

    def __post_init__(self) -> None:
        DelayLaw.__post_init__(self)
        K = self.step_s.size
        if self.step_s.ndim != 1 or K == 0:
            raise ConfigError(
                f"step_s has shape {self.step_s.shape}: a problem needs a list of at "
                "least one learner"
            )
        if not (np.isfinite(self.deadline_s) and self.deadline_s > 0):
            raise ConfigError(
                f"deadline of {self.deadline_s} s: give a finite time above 0 s"
            )
        if self.samples < 1:
            raise ConfigError(f"{self.samples} samples to train on: give at least 1")
        for name in ("steps", "steps_at_most"):
            counts(name, getattr(self, name), shape=(), least=1, most=STEPS_LIMIT)
        object.__setattr__(self, "steps", min(self.steps, self.steps_at_most))
        if self.spending is not None and self.spending.learners != K:
            raise ConfigError(
                f"spending of {self.spending.learners} learners, and times of {K}: "
                "give one value per learner in each"
            )
        counts("least", self.least, shape=(K,), least=1, each="learner")
        if self.most is not None:
            counts("most", self.most, shape=(K,), least=1, each="learner")
        if self.most is not None and np.any(np.less(self.most, self.least)):
            raise ConfigError(
                f"least of {self.least} is above most of {self.most} samples for some "
                "learner: no number is within both"
            )
        if self.menu is not None:
            self._check_menu(self.menu)

    def _check_menu(self, menu: Menu) -> None:
        """Raise ConfigError unless the menu's option 0 is this very problem."""
        if menu.learners != self.learners:
            raise ConfigError(
                f"a menu for {menu.learners} learners and a problem of "
                f"{self.learners}: give one for the same"
            )
        now = menu.law_of(np.zeros(menu.learners, dtype=np.int64))
        for name in ("step_s", "sample_s", "fixed_s"):
            if not np.array_equal(getattr(now, name), getattr(self, name)):
                raise ConfigError(
                    f"{name} of option 0 is not the problem's: it is as now"
                )

    @classmethod
    def of(
        cls,
        law: DelayLaw,
        *,
        samples: int,
        deadline_s: float,
        least: int | Ints = 1,
        most: int | Ints | None = None,
        steps: int = 1,
        steps_at_most: int = STEPS_LIMIT,
        spending: Spending | None = None,
    ) -> Self:
        """Return the problem of fitting ``samples`` into a known law."""
        return cls(
            step_s=law.step_s,
            sample_s=law.sample_s,
            fixed_s=law.fixed_s,
            samples=samples,
            deadline_s=deadline_s,
            least=least,
            most=most,
            steps=steps,
            steps_at_most=steps_at_most,
            spending=spending,
        )

    def of_some(self, learners: Bools) -> "Problem":
        """Return the problem of fitting as many samples into some of the learners."""
        law = self.only(learners)
        some = {"least": self.low[learners]} if np.ndim(self.least) else {}
        if np.ndim(self.most if self.most is not None else 0):
            some["most"] = np.asarray(self.most)[learners]
        return replace(
            self,
            step_s=law.step_s,
            sample_s=law.sample_s,
            fixed_s=law.fixed_s,
            menu=self.menu and self.menu.only(learners),
            spending=self.spending and self.spending.only(learners),
            **some,  # type: ignore[arg-type]
        )

    def with_menu(self, menu: Menu) -> "Problem":
        """Return the problem of the same samples in which learners have options."""
        now = menu.law_of(np.zeros(menu.learners, dtype=np.int64))
        return replace(
            self,
            step_s=now.step_s,
            sample_s=now.sample_s,
            fixed_s=now.fixed_s,
            menu=menu,
        )

    def law_of(self, allocation: "Allocation") -> DelayLaw:
        """Return the law of learners who take the options allocated to them."""
        if self.menu is None or allocation.options is None:
            return self
        return self.menu.law_of(allocation.options)

    @property
    def learners(self) -> int:
        """K, how many learners there are."""
        return self.step_s.size

    @property
    def low(self) -> Ints:
        """Least samples of each learner."""
        return np.broadcast_to(np.asarray(self.least, dtype=np.int64), (self.learners,))

    @property
    def high(self) -> Ints:
        """Most samples of each learner, never more than there are."""
        most = self.samples if self.most is None else self.most
        high = np.minimum(np.asarray(most, dtype=np.int64), self.samples)
        return np.broadcast_to(high, (self.learners,))

    def samples_within(self, steps: int | Ints) -> Ints:
        """h(τ): the most samples that fit by the deadline with τ steps, up to ``high``.

        Exact: d is the last whole number with t(d, τ) ≤ T as ``seconds`` rounds it;
        0 where not one sample fits, and where τ is above ``steps_at_most``.
        """
        T, high = self.deadline_s, self.high
        allowed = np.less_equal(steps, self.steps_at_most)
        if not allowed.all():
            high = np.where(allowed, high, 0)
        cost = steps * self.step_s + self.sample_s
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            guess = np.fmin(np.floor((T - self.fixed_s) / cost), high)
        d: Ints = np.maximum(guess, 0.0).astype(np.int64)
        while (over := (d > 0) & (self.seconds(d, steps) > T)).any():
            d = d - over
        while (under := (d < high) & (self.seconds(d + 1, steps) <= T)).any():
            d = d + under
        return d

    def steps_within(self, samples: ArrayLike) -> Ints:
        """f(d): the most steps that fit by the deadline; −1 if d samples alone do not.

        Exact, as ``samples_within`` is: f(d) ≥ τ just where d ≤ h(τ). Never above
        ``steps_at_most``.
        """
        d, T = np.asarray(samples, dtype=np.int64), self.deadline_s
        P = self.steps_at_most
        room = T - self.fixed_s - self.sample_s * d
        guess = np.floor(room / (self.step_s * np.maximum(d, 1)))
        tau: Ints = np.clip(guess, -1, P).astype(np.int64)
        while (over := (tau >= 0) & (self.seconds(d, tau) > T)).any():
            tau = tau - over
        while (under := (d > 0) & (tau < P) & (self.seconds(d, tau + 1) <= T)).any():
            tau = tau + under
        return np.where(d > 0, tau, 0)

    def check_room(self) -> None:
        """Raise InfeasibleError if no split of the samples could exist at all."""
        K, D, T = self.learners, self.samples, self.deadline_s
        if self.low.sum() > D:
            raise InfeasibleError(
                f"{D} samples are fewer than the {self.low.sum()} that {K} learners "
                "need at least: use fewer learners, more samples or a smaller 'least'"
            )
        if self.high.sum() < D:
            raise InfeasibleError(
                f"{D} samples are more than the {self.high.sum()} that {K} learners "
                "may take at most: use more learners, fewer samples or a larger 'most'"
            )
        if (late := np.flatnonzero(self.fixed_s >= T)).size:
            k = late[np.argmax(self.fixed_s[late])]
            raise InfeasibleError(
                f"learner {k} needs {self.fixed_s[k]:.6g} s to exchange the model "
                f"alone, past the deadline of {T:.6g} s ({late.size} of {K} learners "
                "do): leave such learners out or extend the deadline"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Allocation:
    """How much each learner trains in one cycle; no samples: it sits out."""

    samples: Ints  #: dₖ
    steps: Ints  #: τₖ
    options: Ints | None = None  #: mₖ, of the problem's menu; None: as now


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MenuAllocation(Allocation):
    """An allocation with everyone's option, and how far from the best it may be."""

    options: Ints  #: mₖ
    value: float  #: Σ vₖₘ·τₖ·dₖ
    bound: float  #: no allocation of the problem is worth more

    @property
    def gap(self) -> float:
        """(bound − value) / bound; 0: proven the best."""
        return (self.bound - self.value) / self.bound


def learner_s(problem: DelayLaw, allocation: Allocation) -> Floats:
    """Seconds each learner needs for its part of the cycle."""
    law = problem.law_of(allocation) if isinstance(problem, Problem) else problem
    return law.seconds(allocation.samples, allocation.steps)
