"""The table of the radio channel in a job file, every key with its default."""

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from melisma.errors import ConfigError
from melisma.jobs.table import Table
from melisma.system.cell import Channel
from melisma.system.radio import Beyond, Fading, Surroundings
from melisma.units import (
    Decibels,
    Hertz,
    Metres,
    MetresPerSecond,
    Seconds,
    Watts,
    WattsPerHertz,
)

#: Ways across the cell that a walker may take in a cycle: more is a slip of a unit.
MOST_WAYS = 1000


class Placement(StrEnum):
    """Where learners are at first."""

    GIVEN = "given"  #: at the distance that their table gives
    UNIFORM = "uniform"  #: anywhere within the radius, each place as likely


class Mobility(StrEnum):
    """How learners move."""

    NONE = "none"
    WAYPOINT = "waypoint"  #: to a random place within the radius, then to another


class Group(Protocol):
    """Learners alike, as far as a channel has to know them."""

    @property
    def name(self) -> str:
        """Of the group."""

    @property
    def count(self) -> int:
        """How many they are."""

    @property
    def clock(self) -> Hertz | None:
        """Given where the channel decides how fast data travels."""

    @property
    def distance(self) -> Metres | None:
        """Given where the channel does not place them."""


class ChannelTable(Table, frozen=True, kw_only=True):
    """The radio channel of learners that are given by clock."""

    bandwidth: Hertz = Hertz(5e6)  #: of each learner
    power: Watts = Watts(Watts.of("23 dBm"))  #: that a learner transmits
    noise: WattsPerHertz = WattsPerHertz(WattsPerHertz.of("-174 dBm/Hz"))  #: density
    intercept: Decibels = Decibels(7.0)  #: of the path loss, at 1 m
    slope: Decibels = Decibels(2.1)  #: of the path loss, by the logarithm of metres
    placement: Placement = Placement.GIVEN  #: by each distance, or drawn in a disc
    radius: Metres | None = None  #: of the cell; 50 m
    mobility: Mobility = Mobility.NONE  #: from cycle to cycle
    speed: MetresPerSecond | None = None  #: of walkers; 1 m/s
    pause: Seconds | None = None  #: of walkers, wherever they arrive; none
    fading: Fading = Fading.NONE  #: of each link, drawn anew in each cycle
    spread: Decibels | None = None  #: σ of lognormal fading; 8 dB
    total: Hertz | None = None  #: bandwidth of the system; no limit if not given
    beyond: Beyond | None = None  #: what learners do who want more than that together

    def _check(self) -> None:
        walks = self.mobility == Mobility.WAYPOINT
        has_disc = walks or self.placement == Placement.UNIFORM
        for key, has_effect, needed in (
            ("radius", has_disc, "placement = 'uniform' or mobility = 'waypoint'"),
            ("speed", walks, "mobility = 'waypoint'"),
            ("pause", walks, "mobility = 'waypoint'"),
            ("spread", self.fading == Fading.LOGNORMAL, "fading = 'lognormal'"),
            ("beyond", self.total is not None, "a total"),
        ):
            if getattr(self, key) is not None and not has_effect:
                raise ConfigError(f"{key} has no effect without {needed}")
        for key in ("radius", "speed", "pause", "spread", "total", "bandwidth"):
            value = getattr(self, key)
            above = key not in ("pause", "spread")
            if value is not None and not (
                0 <= value < math.inf and (value > 0 or not above)
            ):
                bound = "above 0" if above else "from 0 up"
                raise ConfigError(f"{key} = {value}: give a finite number {bound}")

    @property
    def changing(self) -> list[str]:
        """The keys by which the channel differs from cycle to cycle, or is limited."""
        usual = {
            "placement": Placement.GIVEN,
            "mobility": Mobility.NONE,
            "fading": Fading.NONE,
            "total": None,
        }
        return [key for key, value in usual.items() if getattr(self, key) != value]

    @property
    def link(self) -> Channel:
        """What all learners' channels have in common."""
        return Channel(
            bandwidth_hz=self.bandwidth,
            power_w=self.power,
            noise_w_per_hz=self.noise,
            intercept_db=self.intercept,
            slope_db=self.slope,
        )

    @property
    def surroundings(self) -> Surroundings:
        """How channels change from cycle to cycle."""
        usual = Surroundings()
        walks = self.mobility == Mobility.WAYPOINT
        speed = 1.0 if self.speed is None else float(self.speed)
        return Surroundings(
            radius_m=usual.radius_m if self.radius is None else float(self.radius),
            speed_mps=speed if walks else 0.0,
            pause_s=float(self.pause or 0.0),
            fading=self.fading,
            spread_db=usual.spread_db if self.spread is None else float(self.spread),
            total_hz=None if self.total is None else float(self.total),
            beyond=self.beyond or usual.beyond,
        )

    def check_learners(self, groups: Sequence[Group], deadline_s: float) -> None:
        """Raise ConfigError if the channel is not one for these learners."""
        for group in groups:
            self._check_group(group)
        radius_m, speed_mps = self.surroundings.radius_m, self.surroundings.speed_mps
        ways = 0.0 if math.isinf(deadline_s) else speed_mps * deadline_s / radius_m
        if ways > MOST_WAYS:
            raise ConfigError(
                f"channel.speed of {speed_mps:g} m/s leads {speed_mps * deadline_s:g} "
                f"m a cycle in a cell of {radius_m:g} m: give a lower speed"
            )
        wanted_hz = sum(group.count for group in groups) * self.bandwidth
        if self.total is None or wanted_hz <= self.total:
            return
        if self.beyond is None:
            raise ConfigError(
                f"learners want {wanted_hz / 1e6:g} MHz of channel.total = "
                f"{self.total / 1e6:g} MHz: give channel.beyond = 'turns' or 'share'"
            )
        if self.beyond == Beyond.TURNS and self.bandwidth > self.total:
            raise ConfigError(
                f"channel.bandwidth of {self.bandwidth / 1e6:g} MHz is more than the "
                f"total of {self.total / 1e6:g} MHz: nobody would have a turn"
            )

    def _check_group(self, group: Group) -> None:
        changing = self.changing
        if group.clock is None and changing:
            raise ConfigError(
                f"channel.{changing[0]} has no effect on learners {group.name!r}, "
                "whose speed of data is given: give clock in its place, or leave "
                f"{', '.join(changing)} out of [channel]"
            )
        if group.clock is None:
            return
        if self.placement == Placement.UNIFORM and group.distance is not None:
            raise ConfigError(
                f"learners {group.name!r} have distance, and channel.placement = "
                "'uniform' draws it: leave one of them out"
            )
        if self.placement == Placement.GIVEN and group.distance is None:
            raise ConfigError(
                f"learners {group.name!r} have clock: give clock and distance, or "
                "channel.placement = 'uniform'"
            )
        radius_m = self.surroundings.radius_m
        if self.mobility == Mobility.WAYPOINT and (group.distance or 0.0) > radius_m:
            raise ConfigError(
                f"learners {group.name!r} are {group.distance:g} m away, and walk "
                f"within {radius_m:g} m: give a larger channel.radius"
            )
