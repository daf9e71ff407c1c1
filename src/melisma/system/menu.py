"""Ways for a learner to take part: what each costs it, and what it is worth.

Option m of learner k has a delay law of its own and a value: what one pass over one
sample is worth through it, beside one *as now*, which is option 0. A codec has a
smaller C⁰ and perhaps a value below 1; a narrower model a smaller C² and C⁰, and it
trains only some blocks of the model.

    t(d, τ) = C²ₖₘ·τ·d + C¹ₖₘ·d + C⁰ₖₘ        worth vₖₘ·τ·d
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from melisma.errors import ConfigError
from melisma.maths.arrays import Bools, Floats, Ints, numbers
from melisma.system.law import DelayLaw


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Menu:
    """Options of all learners: arrays of learners × options.

    ``value`` is one number for each option, or one for each learner and option.
    """

    law: DelayLaw  #: C²ₖₘ, C¹ₖₘ and C⁰ₖₘ
    value: Floats  #: vₖₘ, above 0
    allowed: Bools | None = None  #: which options a learner may take; None: all
    #: Share of each block of the model that an option trains, options × blocks.
    blocks: Floats | None = None
    #: ρ, of all samples, that train each block at least.
    least_coverage: float | Floats = 0.0

    def __post_init__(self) -> None:
        shape = self.law.step_s.shape
        if len(shape) != 2 or 0 in shape:
            raise ConfigError(
                f"the law of a menu has shape {shape}: give learners × options"
            )
        given = np.shape(self.value)
        full = shape if given == shape else shape[1:]
        value = numbers("value", self.value, shape=full, above=0.0)
        object.__setattr__(self, "value", np.broadcast_to(value, shape))
        object.__setattr__(self, "allowed", self._checked_allowed(shape))
        if self.blocks is not None:
            object.__setattr__(self, "blocks", self._checked_blocks(shape[1]))

    @classmethod
    def of(cls, laws: Sequence[DelayLaw], value: ArrayLike) -> Self:
        """Return the menu of options with these laws of all learners, and values."""
        columns = {
            name: np.stack([getattr(law, name) for law in laws], axis=1)
            for name in ("step_s", "sample_s", "fixed_s")
        }
        return cls(law=DelayLaw(**columns), value=np.asarray(value, dtype=np.float64))

    def _checked_allowed(self, shape: tuple[int, ...]) -> Bools:
        if self.allowed is None:
            return np.broadcast_to(np.True_, shape)
        allowed = np.array(self.allowed)
        if allowed.dtype != np.bool_ or allowed.shape != shape:
            raise ConfigError(
                f"allowed is {allowed.dtype} of shape {allowed.shape}: give true or "
                f"false for each learner and option, {shape}"
            )
        for k in np.flatnonzero(~allowed.any(axis=1))[:1]:
            raise ConfigError(f"learner {k} may take no option: allow it one, or more")
        allowed.setflags(write=False)
        return allowed

    def _checked_blocks(self, options: int) -> Floats:
        blocks = numbers("blocks", np.asarray(self.blocks, float), each="option")
        if blocks.ndim != 2 or len(blocks) != options or blocks.shape[1] == 0:
            raise ConfigError(
                f"blocks has shape {blocks.shape}: give a row for each of {options} "
                "options with a share for each block of the model"
            )
        if blocks.max() > 1.0:
            raise ConfigError(f"a share of {blocks.max():g} of a block: give 0 to 1")
        if blocks[0].min() < 1.0:
            raise ConfigError(
                f"option 0 trains {blocks[0].min():g} of block {blocks[0].argmin()}: "
                "as now means the whole model, give 1 for each block"
            )
        return blocks

    @property
    def learners(self) -> int:
        """K, how many learners there are."""
        return int(self.law.step_s.shape[0])

    @property
    def options(self) -> int:
        """M, how many options there are."""
        return int(self.law.step_s.shape[1])

    @property
    def may(self) -> Bools:
        """Which options a learner may take, learners × options."""
        assert self.allowed is not None  # once it is checked
        return self.allowed

    def only(self, learners: Bools) -> "Menu":
        """Return the menu of some of the learners."""
        return Menu(
            law=self.law.only(learners),
            value=self.value[learners],
            allowed=self.may[learners],
            blocks=self.blocks,
            least_coverage=self.least_coverage,
        )

    def law_of(self, options: Ints) -> DelayLaw:
        """Return the law of learners who each take the option given."""
        return self.law.at(np.arange(self.learners), options)

    def lightest(self, samples: Ints | int) -> DelayLaw:
        """Return the law of learners who each take what is done first.

        That is the option by which one step over so many samples takes least time.
        """
        d = np.broadcast_to(samples, self.learners)[:, None]
        seconds = np.where(self.may, self.law.seconds(d, 1), np.inf)
        return self.law_of(seconds.argmin(axis=1))

    def worth(self, samples: Ints, steps: Ints, options: Ints) -> float:
        """Σ vₖₘ·τₖ·dₖ."""
        v = self.value[np.arange(self.learners), options]
        return float((v * steps) @ samples)

    def coverage(self, samples: Ints, options: Ints) -> Floats:
        """Return the share of all samples that train each block; none: no blocks."""
        if self.blocks is None:
            return np.empty(0)
        each = np.bincount(options, weights=samples, minlength=self.options)
        shares: Floats = each @ self.blocks / samples.sum()
        return shares
