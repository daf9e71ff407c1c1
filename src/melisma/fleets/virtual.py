"""What simulated crews have in common: names, a delay law, and a clock that jumps."""

from collections.abc import Sequence

import numpy as np

from melisma.system.law import DelayLaw


class VirtualCrew:
    """Learners on a virtual clock, all of them ready unless expelled."""

    def __init__(
        self,
        names: Sequence[str],
        law: DelayLaw,
        own_samples: Sequence[int] | None = None,
    ) -> None:
        self.learners = list(names)
        self.own_samples = None if own_samples is None else list(own_samples)
        #: Compute gradients; else time passes and models stay as they are.
        self.learning = True
        self._law, self._now_s = law, 0.0

    def now_s(self) -> float:
        """Virtual seconds since the run began."""
        return self._now_s

    async def ready(self) -> None:
        """All learners are ready that were not expelled."""

    async def law(self) -> DelayLaw:
        """Return the learners' delay law."""
        return self._law

    def expel(self, name: str, reason: str) -> None:
        """Exclude a learner from the next cycle on; data that lies on it is lost."""
        if name not in self.learners:
            return
        k = self.learners.index(name)
        self._law = self._law.only(np.delete(np.arange(len(self.learners)), k))
        del self.learners[k]
        if self.own_samples is not None:
            del self.own_samples[k]
