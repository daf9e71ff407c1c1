"""Options that all learners have alike: what travels for each, and its value.

Option m takes Sₘ bytes to a learner and back in a cycle, and is worth vₘ:

    C⁰ₖₘ = o + (C⁰ₖ − o)·Sₘ/S₀        C¹ₖₘ = C¹ₖ        C²ₖₘ = cₘ·C²ₖ

with o the overhead of a cycle, which has nothing to do with bytes. A codec has cₘ = 1;
a part of the model that is trained alone has less, and trains only some blocks of it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from melisma.errors import ConfigError
from melisma.maths.arrays import Floats, Ints, numbers, set_numbers
from melisma.system.law import DelayLaw
from melisma.system.menu import Menu


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Options:
    """A list of options; the first is taken by whoever has no choice."""

    names: tuple[str, ...]
    size_bytes: Floats  #: Sₘ, both ways together
    value: Floats  #: vₘ, above 0
    compute: Floats | float = 1.0  #: cₘ
    overhead_s: float = 0.0  #: o
    #: Share of each block of the model that an option trains, options × blocks.
    blocks: Floats | None = None
    least_coverage: float = 0.0  #: ρ, of all samples, that train each block

    def __post_init__(self) -> None:
        if not self.names:
            raise ConfigError("no options: give one at least")
        shape = (len(self.names),)
        for name in ("size_bytes", "value", "compute"):
            set_numbers(self, name, shape=shape, above=0.0, each="option")
        numbers("overhead_s", self.overhead_s, shape=())

    def __len__(self) -> int:
        return len(self.names)

    def law(self, law: DelayLaw, options: Ints | None) -> DelayLaw:
        """Return a law of option 0 as that of learners who each take the one given."""
        if options is None or not options.any():
            return law
        share = (self.size_bytes / self.size_bytes[0])[options]
        compute = np.broadcast_to(self.compute, (len(self),))
        travels_s = np.maximum(law.fixed_s - self.overhead_s, 0.0)
        return DelayLaw(
            step_s=law.step_s * (compute / compute[0])[options],
            sample_s=law.sample_s,
            fixed_s=law.fixed_s + (share - 1.0) * travels_s,
        )

    def menu(
        self, law: DelayLaw, planned: Callable[[DelayLaw], DelayLaw]
    ) -> Menu | None:
        """Return what learners may choose from, each law as ``planned`` makes it.

        None where there is no choice.
        """
        if len(self) == 1:
            return None
        each = [np.full(law.step_s.shape, m) for m in range(len(self))]
        menu = Menu.of([planned(self.law(law, m)) for m in each], self.value)
        return replace(menu, blocks=self.blocks, least_coverage=self.least_coverage)

    def saved_bytes(self, option: int) -> int:
        """Return how much less travels than by the first."""
        return round(float(self.size_bytes[0] - self.size_bytes[option]))


#: Where nothing is listed: models travel in one way.
AS_NOW = Options(names=("",), size_bytes=np.ones(1), value=np.ones(1))
