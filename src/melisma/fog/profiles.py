"""What processing and sending a sample costs: uniform, or a model of WiFi and LTE.

The paper measured six Raspberry Pis and did not publish the traces. It says that
transfers dominate on WiFi, whose delays are longer and vary more with several devices
about, and processing on LTE. These profiles are made to show that, and nothing more: a
third of the devices are strong, and processing costs them about a seventh of what it
costs the others; transfers are lognormal, drawn for each link and slot. Costs are in
the unit in which processing on the weakest device costs 1.
"""

from dataclasses import dataclass

import numpy as np

from melisma.fog.links import Links
from melisma.maths.arrays import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A network medium."""

    transfer: float  #: mean cost of sending a sample
    spread: float  #: standard deviation of its logarithm
    strong: tuple[float, float] = (0.05, 0.15)  #: cost of processing, from and to
    weak: tuple[float, float] = (0.5, 1.0)
    drift: float = 0.1  #: how much a device's cost of processing varies over slots

    def link_cost(self, links: Links, rng: np.random.Generator) -> Floats:
        """c_ij(t), for each entry of the links."""
        normal = rng.normal(-0.5 * self.spread**2, self.spread, len(links))
        return self.transfer * np.exp(normal)

    def process_cost(
        self, devices: int, slots: int, rng: np.random.Generator
    ) -> Floats:
        """c_i(t), T × n: a device has a level, about which its slots vary."""
        level = rng.uniform(*self.weak, devices)
        level[: devices // 3] = rng.uniform(*self.strong, devices // 3)
        level = rng.permutation(level)
        return level * rng.uniform(1.0 - self.drift, 1.0 + self.drift, (slots, devices))


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniform:
    """The paper's synthetic costs: c_i ~ U(0, 1) and c_ij ~ U(0, 1/n)."""

    steady: bool = True  #: drawn once for each device and link, or for each slot

    def link_cost(self, links: Links, rng: np.random.Generator) -> Floats:
        """c_ij(t), for each entry of the links."""
        most = 1.0 / links.devices
        if not self.steady:
            return rng.uniform(0.0, most, len(links))
        pair = links.source * links.devices + links.target
        pairs, which = np.unique(pair, return_inverse=True)
        drawn: Floats = rng.uniform(0.0, most, pairs.size)
        return drawn[which]

    def process_cost(
        self, devices: int, slots: int, rng: np.random.Generator
    ) -> Floats:
        """c_i(t), T × n."""
        rows = 1 if self.steady else slots
        return np.tile(rng.uniform(0.0, 1.0, (rows, devices)), (slots // rows, 1))


LTE = Profile(transfer=0.04, spread=0.3)
WIFI = Profile(transfer=0.45, spread=0.5)
