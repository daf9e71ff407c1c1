"""Simulated learners that follow their drift, as live ones do under `dab-adaptive`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from melisma.maths.arrays import Floats, Ints
from melisma.system.drift import Drift
from melisma.system.law import DelayLaw


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

    def observe(
        self,
        learners: Ints,
        predicted_s: tuple[Floats, Floats],
        took_s: tuple[Floats, Floats],
    ) -> None:
        """Let learners see what their downloads and their training took."""
        rows: Sequence[tuple[int, float, float, float, float]] = list(
            zip(learners.tolist(), *predicted_s, *took_s, strict=True)
        )
        for k, link_s, compute_s, downloaded_s, trained_s in rows:
            drift = self._drifts[k]
            drift.idle = False
            drift.link.see(link_s, downloaded_s)
            drift.compute.see(compute_s, trained_s)
