"""Simulated learners that plan their own work with a margin, as live ones do.

Under `dab-adaptive` they follow their drift; where lateness is limited, they keep a
promise. What they see of their cycles stays with them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from melisma.maths.arrays import Ints
from melisma.schemes.dab import safely
from melisma.system.drift import Drift
from melisma.system.law import DelayLaw
from melisma.system.promise import Promises, Took


class Careful(Protocol):
    """Learners that bid with a margin, by what their own cycles took."""

    def before(self, deadline_s: float) -> float:
        """Return when they plan to be done."""

    def careful(self, law: DelayLaw, members: Ints) -> DelayLaw:
        """Return the law that the members bid by."""

    def observe(self, learners: Ints, took: Took) -> None:
        """Let learners see their cycles; ratios are of training and of downloads."""


class PromisedLearners:
    """Learners of which each keeps its promise."""

    def __init__(self, names: Sequence[str], late_at_most: float) -> None:
        self._names, self._promises = names, Promises(late_at_most)

    def before(self, deadline_s: float) -> float:
        """Return the deadline: the margins are all there is."""
        return deadline_s

    def careful(self, law: DelayLaw, members: Ints) -> DelayLaw:
        """Return the law times the margins."""
        return self._promises.margins([self._names[k] for k in members]).plan(law)

    def observe(self, learners: Ints, took: Took) -> None:
        """Let learners see their cycles."""
        self._promises.see([self._names[k] for k in learners], took)


@dataclass(slots=True)
class _Drifts:
    """One learner's drift from what is known of it."""

    link: Drift
    compute: Drift
    idle: bool = False  #: no work came since the last bid


class DriftingLearners:
    """How far each learner has drifted from its known law, by its own cycles."""

    def __init__(self, count: int) -> None:
        self._drifts = [_Drifts(Drift(), Drift()) for _ in range(count)]

    def before(self, deadline_s: float) -> float:
        """Return when to be done so that the deadline is met."""
        return safely(deadline_s)

    def careful(self, law: DelayLaw, members: Ints) -> DelayLaw:
        """Return the law that the members bid by.

        Who had no work since the last time forgets some of its drift: without work it
        would think itself too slow for ever.
        """
        drifts = [self._drifts[k] for k in members]
        for drift in drifts:
            if drift.idle:
                drift.link.forget()
                drift.compute.forget()
            drift.idle = True
        link = np.array([drift.link.careful for drift in drifts])
        return replace(
            law,
            step_s=law.step_s * [drift.compute.careful for drift in drifts],
            sample_s=law.sample_s * link,
            fixed_s=law.fixed_s * link,
        )

    def observe(self, learners: Ints, took: Took) -> None:
        """Let learners see what their training and their downloads took."""
        rows = zip(learners.tolist(), *took.ratio.tolist(), strict=True)
        for k, compute, link in rows:
            drift = self._drifts[k]
            drift.idle = False
            drift.link.see(1.0, link)
            drift.compute.see(1.0, compute)
