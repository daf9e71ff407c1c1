"""How long samples take in a fog: by the devices' rates, or as they were measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from melisma.fog import Links, traces
from melisma.jobs.fog_table import Costs
from melisma.jobs.schema import Job, names_of
from melisma.maths.arrays import Floats
from melisma.system.law import DelayLaw


class Times(Protocol):
    """Seconds of a sample; costs and capacities of a fog follow from them."""

    def process_s(self, slots: int) -> Floats:
        """Seconds of training on it once, slots × devices."""

    def link_s(self, links: Links) -> Floats:
        """Seconds of sending it, for each entry of the links."""


@dataclass(frozen=True, slots=True)
class Rates:
    """The same in every slot; the slower end of a link decides."""

    law: DelayLaw

    def process_s(self, slots: int) -> Floats:
        """Seconds of training on a sample once."""
        return np.tile(self.law.step_s, (slots, 1))

    def link_s(self, links: Links) -> Floats:
        """Seconds of sending a sample."""
        each = self.law.sample_s
        return np.maximum(each[links.source], each[links.target])


def times_of(job: Job, names: Sequence[str], law: DelayLaw) -> Times | None:
    """Return how long samples take these devices; None if their costs are drawn.

    A trace's devices are the job's learners in their order, or, where others have
    joined, those in the order in which they came. ConfigError if it has too few.
    """
    if job.fog.costs == Costs.RATES:
        return Rates(law)
    if not job.fog.is_traced:
        return None
    own = names_of(job)
    known = set(names) <= set(own)
    which = [own.index(name) if known else k for k, name in enumerate(names)]
    return traces.read(Path(job.fog.costs)).only(which)
