"""Which device can send to which, and when."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from melisma.errors import ConfigError
from melisma.maths.arrays import Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Links:
    """Directed links, one entry for each slot in which a link is there.

    Entries go by slot, then source, then target, each once (``Links.of`` sorts them):
    costs and capacities of links are arrays in this order.
    """

    devices: int  #: n
    slots: int  #: T
    slot: Ints  #: t, from 0
    source: Ints  #: i
    target: Ints  #: j

    def __post_init__(self) -> None:
        if self.devices < 1 or self.slots < 1:
            raise ConfigError(
                f"{self.devices} devices in {self.slots} slots: give at least 1 of each"
            )
        for name, end in (
            ("slot", self.slots),
            ("source", self.devices),
            ("target", self.devices),
        ):
            _set(self, name, end)
        if not self.slot.shape == self.source.shape == self.target.shape:
            raise ConfigError(
                f"{self.slot.size} slots, {self.source.size} sources and "
                f"{self.target.size} targets of links: give as many of each"
            )
        loops = np.flatnonzero(self.source == self.target)
        if loops.size:
            raise ConfigError(
                f"device {self.source[loops[0]]} has a link to itself: leave it out, "
                "what a device processes at once needs none"
            )
        if (np.diff(self._keys()) <= 0).any():
            raise ConfigError(
                "links are not in order, or one is there twice: use Links.of"
            )

    def __len__(self) -> int:
        return int(self.slot.size)

    @classmethod
    def of(
        cls,
        devices: int,
        slots: int,
        slot: ArrayLike,
        source: ArrayLike,
        target: ArrayLike,
    ) -> "Links":
        """Links in any order, some perhaps more than once."""
        t, i, j = (
            np.asarray(a, dtype=np.int64).ravel() for a in (slot, source, target)
        )
        order = np.lexsort((j, i, t))
        t, i, j = t[order], i[order], j[order]
        new = np.ones(t.size, dtype=bool)
        new[1:] = (np.diff(t) != 0) | (np.diff(i) != 0) | (np.diff(j) != 0)
        return cls(
            devices=devices, slots=slots, slot=t[new], source=i[new], target=j[new]
        )

    @classmethod
    def always(
        cls, devices: int, slots: int, source: ArrayLike, target: ArrayLike
    ) -> "Links":
        """The same links in every slot."""
        i, j = np.asarray(source, dtype=np.int64), np.asarray(target, dtype=np.int64)
        t = np.repeat(np.arange(slots), i.size)
        return cls.of(devices, slots, t, np.tile(i, slots), np.tile(j, slots))

    def between(self, start: int, stop: int) -> slice:
        """Where the entries of slots start … stop − 1 are."""
        first, end = np.searchsorted(self.slot, (start, stop))
        return slice(int(first), int(end))

    def _keys(self) -> Ints:
        """A number for each entry that grows in their order."""
        keys: Ints = (self.slot * self.devices + self.source) * self.devices
        return keys + self.target


def _set(links: Links, name: str, end: int) -> None:
    """Check a column of numbers from 0 to end − 1 and freeze it."""
    array = np.array(getattr(links, name))
    if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
        raise ConfigError(f"{name} of links: give a row of whole numbers")
    wrong = array[(array < 0) | (array >= end)]
    if wrong.size:
        raise ConfigError(
            f"{name} of links holds {wrong[0]}: give numbers from 0 to {end - 1}"
        )
    array = array.astype(np.int64)
    array.setflags(write=False)
    object.__setattr__(links, name, array)
