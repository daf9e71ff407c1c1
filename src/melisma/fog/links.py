"""Which device can send to which, and when."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from melisma.errors import ConfigError
from melisma.maths.arrays import Ints, set_counts


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
        shape = (np.size(self.slot),)
        set_counts(self, "slot", shape=shape, most=self.slots - 1, each="link")
        set_counts(self, "source", shape=shape, most=self.devices - 1, each="link")
        set_counts(self, "target", shape=shape, most=self.devices - 1, each="link")
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
