"""What is known of learners before a cycle, by which some are chosen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from melisma.maths.arrays import Bools, Floats


class Seen(NamedTuple):
    """What a learner has shown when it took part, by the records."""

    cycles: int  #: in which it did
    last: int  #: of them
    samples: int  #: that it trained on then
    loss: float  #: their mean then
    seconds: float  #: that it took then


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidates:
    """The learners of a cycle."""

    cycle: int  #: from 1 up
    wanted: int  #: how many are to be asked
    names: Sequence[str]
    seconds: Floats  #: that each would take for the same work
    deadline_s: float
    seen: Mapping[str, Seen]  #: by name, of those who ever took part
    rng: np.random.Generator  #: of this cycle

    def some(self, places: Sequence[int]) -> Bools:
        """Return a mask of these places."""
        mask = np.zeros(len(self.names), dtype=bool)
        mask[list(places)] = True
        return mask
