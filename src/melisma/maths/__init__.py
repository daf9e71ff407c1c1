"""Arrays in, arrays out; no word of learning."""

from typing import TYPE_CHECKING

from melisma.lazy import offer

if TYPE_CHECKING:
    from melisma.maths.arrays import Floats, Ints
    from melisma.maths.statistics import mean_interval

__all__ = ["Floats", "Ints", "mean_interval"]

offer(globals(), arrays="Floats Ints", statistics="mean_interval")
