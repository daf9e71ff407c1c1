"""Random numbers that are the same on every machine and with every numpy.

numpy promises the raw bits of a bit generator for good, and not what its distributions
make of them; so everything is made of raw bits here, by operations that are exact.
"""

import numpy as np
from numpy.typing import NDArray


class Draws:
    """A stream of random bits."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.SFC64(seed)

    def bytes(self, count: int) -> NDArray[np.uint8]:
        """Return uniform bytes."""
        raw = self._bits.random_raw(-(-count // 8))
        return np.asarray(raw, "<u8").view(np.uint8)[:count]

    def integers(self, count: int) -> NDArray[np.uint32]:
        """Return uniform integers of 32 bits."""
        return self.bytes(4 * count).view("<u4")

    def uniform(self, count: int) -> NDArray[np.float32]:
        """Return uniform numbers from −1 to below 1, of 24 bits."""
        whole = (self.integers(count) >> 8).astype(np.float32)
        return whole * np.float32(2.0**-23) - np.float32(1)
