"""Devices that move, and are linked while they are near."""

from dataclasses import dataclass

import numpy as np
from scipy.spatial import KDTree

from melisma.errors import ConfigError
from melisma.fog.links import Links
from melisma.maths.arrays import Floats, numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Waypoint:
    """Random waypoint: walk to a random place of a square, then to another."""

    side_m: float = 1000.0  #: of the square
    range_m: float = 250.0  #: within which two devices are linked
    slow_mps: float = 1.0  #: speeds are drawn between these for each way
    fast_mps: float = 10.0
    slot_s: float = 10.0  #: seconds of a slot

    def __post_init__(self) -> None:
        for name in ("side_m", "range_m", "slow_mps", "fast_mps", "slot_s"):
            numbers(name, getattr(self, name), shape=(), above=0.0)
        if self.slow_mps > self.fast_mps:
            raise ConfigError(
                f"speeds from {self.slow_mps} to {self.fast_mps} m/s: "
                "give the slower first"
            )

    def places_m(self, devices: int, slots: int, rng: np.random.Generator) -> Floats:
        """Where each device is at the start of each slot, slots × devices × 2."""
        place, goal = rng.uniform(0.0, self.side_m, (2, devices, 2))
        speed = rng.uniform(self.slow_mps, self.fast_mps, devices)
        track = np.empty((slots, devices, 2))
        for t in range(slots):
            track[t] = place
            left_s = np.full(devices, self.slot_s)
            while (left_s > 0.0).any():
                way = goal - place
                far = np.hypot(way[:, 0], way[:, 1])
                takes_s = far / speed
                part = np.minimum(1.0, left_s / np.maximum(takes_s, 1e-12))
                place = place + part[:, None] * way
                left_s = left_s - part * takes_s
                there = part == 1.0
                goal[there] = rng.uniform(0.0, self.side_m, (int(there.sum()), 2))
                speed[there] = rng.uniform(
                    self.slow_mps, self.fast_mps, int(there.sum())
                )
                left_s[~there] = 0.0
        return track

    def links(self, devices: int, slots: int, rng: np.random.Generator) -> Links:
        """Links both ways between devices in range at the start of a slot."""
        return in_range(self.places_m(devices, slots, rng), self.range_m)


def in_range(places_m: Floats, range_m: float) -> Links:
    """Links both ways between devices at most ``range_m`` apart, slot by slot."""
    slots, devices, _ = places_m.shape
    pairs = [KDTree(at).query_pairs(range_m, output_type="ndarray") for at in places_m]
    slot = np.repeat(np.arange(slots), [len(pair) for pair in pairs])
    a, b = np.concatenate(pairs).reshape(-1, 2).T
    return Links.of(devices, slots, np.tile(slot, 2), np.append(a, b), np.append(b, a))
