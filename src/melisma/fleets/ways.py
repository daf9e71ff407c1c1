"""All ways of taking part in a run: what each is, what it costs, and who has no choice.

An order names a way by its place. A learner whose way is fixed takes that, whatever
its orders name, and laws of it are those of its way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from melisma.learning.way import Way
from melisma.system.law import DelayLaw
from melisma.system.options import AS_NOW, Options


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ways:
    """Ways by their places; the first is of the whole model."""

    each: Sequence[Way] = (Way(),)
    options: Options = AS_NOW  #: what each costs and is worth
    fixed: Mapping[str, int] = field(default_factory=dict)  #: by learner

    @property
    def choice(self) -> Options:
        """What a scheme may choose from: nothing, where ways are fixed."""
        return AS_NOW if self.fixed else self.options

    @property
    def told(self) -> dict[str, dict[str, Any]]:
        """What records say of learners whose way is fixed, by name."""
        names, saved = self.options.names, self.options.saved_bytes
        return {
            learner: {"option": names[m], "saved_bytes": saved(m)}
            for learner, m in self.fixed.items()
        }

    @property
    def differ(self) -> bool:
        """Whether learners take part in unlike ways."""
        return len(self.each) > 1

    @property
    def submodels(self) -> list[str]:
        """All parts that learners may train, as a job writes them."""
        return sorted({way.submodel for way in self.each if way.part is not None})

    def of(self, name: str, option: int = 0) -> Way:
        """Return the way of a learner whose order names this place."""
        return self.each[self.place(name, option)]

    def place(self, name: str, option: int = 0) -> int:
        """Return the place of that way."""
        return self.fixed.get(name, option)

    def law(self, law: DelayLaw, names: Sequence[str]) -> DelayLaw:
        """Return a law of the first way, with that of learners who have another one.

        It is of learners, or of learners × states.
        """
        places = np.array([self.place(name) for name in names], dtype=np.int64)
        return self.options.law(law, places.reshape(-1, *[1] * (law.step_s.ndim - 1)))


#: All take part in the same way, with the model as it is.
ALIKE = Ways()
