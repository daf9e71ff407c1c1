"""Links that vary: latency, jitter, fading and other people's traffic.

A link is described by a few numbers; ``Conditions`` draws from them what holds at a
moment, always the same for the same seed:

    latency(t) = min(median · exp(jitter · z), longest)    z ~ N(0, 1), new every hold_s
    rate(t) / mean rate = exp(fading · z − fading² / 2) · (1 − cross · others send at t)

Others send and are silent by turns, each for an exponentially distributed time.
"""

import math
from dataclasses import dataclass, fields
from random import Random

from melisma.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What a link does to what it carries; ConfigError if no link could."""

    name: str
    latency_s: float = 0.0  #: one way, its median
    jitter: float = 0.0  #: standard deviation of the latency's logarithm
    longest_s: float = 10.0  #: no latency is above it
    fading: float = 0.0  #: standard deviation of the rate's logarithm
    hold_s: float = 0.05  #: for how long a latency and a fading last
    cross: float = 0.0  #: share of the rate that others take while they send
    busy_s: float = 1.0  #: for how long others send, on average
    idle_s: float = 1.0  #: for how long they are silent, on average
    half_duplex: bool = False  #: both directions take turns on one medium

    def __post_init__(self) -> None:
        for what, low, high in (
            ("latency_s", 0.0, 10.0),
            ("jitter", 0.0, 3.0),
            ("longest_s", 0.0, 10.0),
            ("fading", 0.0, 2.0),
            ("hold_s", 0.001, 3600.0),
            ("cross", 0.0, 0.99),
            ("busy_s", 0.001, 3600.0),
            ("idle_s", 0.001, 3600.0),
        ):
            if not low <= (value := getattr(self, what)) <= high:
                raise ConfigError(
                    f"link {self.name!r} has {what} = {value}: give a number from "
                    f"{low:g} to {high:g}"
                )

    def values(self) -> dict[str, str | float | bool]:
        """Return the fields by name, for JSON."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


class Conditions:
    """What a link is like at a moment; moments are asked for in order."""

    def __init__(self, link: Link, seed: str) -> None:
        self._link = link
        # Two generators: how often one is asked does not change the other.
        self._radio, self._others = Random(f"{seed} radio"), Random(f"{seed} others")
        self._held_until_s = self._turn_s = 0.0
        # Flipped at 0 s: the first turn is as likely theirs as any other moment is.
        theirs = link.busy_s / (link.busy_s + link.idle_s)
        self._busy = self._others.random() >= theirs
        self._latency_s = self._fade = 0.0

    def at(self, time_s: float) -> tuple[float, float]:
        """Return the latency, and the rate as a share of its mean without others."""
        link = self._link
        while self._held_until_s <= time_s:
            self._held_until_s += link.hold_s
            delay, fade = self._radio.gauss(0, 1), self._radio.gauss(0, 1)
            latency_s = link.latency_s * math.exp(link.jitter * delay)
            self._latency_s = min(latency_s, link.longest_s)
            self._fade = math.exp(link.fading * fade - link.fading**2 / 2)
        while self._turn_s <= time_s:
            self._busy = not self._busy
            mean_s = link.busy_s if self._busy else link.idle_s
            self._turn_s += self._others.expovariate(1 / mean_s)
        return self._latency_s, self._fade * (1 - link.cross * self._busy)


#: A switched network in a lab. A frame of 1,500 bytes crosses two hops of 100 Mbit/s in
#: 0.24 ms. Now and then one other computer sends through the same port and gets its
#: half: a fifth of the time, so the port is used to a tenth by others.
ETHERNET = Link(
    name="ethernet",
    latency_s=0.00025,
    jitter=0.2,
    cross=0.5,
    busy_s=0.5,
    idle_s=2.0,
)
#: 802.11n among other stations. Round trips of 3, 20 and 250 ms are the median, 90th
#: and 99th percentile that Sui et al. measured on a campus ("Characterizing and
#: improving WiFi latency in large-scale operational networks", MobiSys 2016): the
#: lognormal nearest to them (in logarithms) has a median of 2.55 ms and σ = 1.89. No
#: frame is later than 524 ms, 802.11's default (512 · 1.024 ms) for how long one waits.
#: Things move at 1.2 km/h around it, as in 802.11n's own channel models: at 2.4 GHz the
#: channel stays for 0.42 · 0.125 m ÷ 0.33 m/s, and its modulation goes a step up or
#: down, 12 to 50 %. Others' traffic is in the latency. One medium, both ways.
WIFI = Link(
    name="wifi",
    latency_s=0.00128,
    jitter=1.89,
    longest_s=0.524,
    fading=0.3,
    hold_s=0.157,
    half_duplex=True,
)
#: A cell of a mobile network: assumed, round trips of 50 ms, and a rate that follows
#: the scheduler's other users within half a second, by a factor of 1.6.
LTE = Link(name="lte", latency_s=0.025, jitter=0.3, fading=0.5, hold_s=0.5)

LINKS = {link.name: link for link in (ETHERNET, WIFI, LTE)}
