"""Quantities with units, as people write them: "15 s", "2.4 GHz", "23 dBm".

Each kind is a float in SI units. A bare number is in SI units already.
"""

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from melisma.errors import ConfigError


def watts(dbm: float) -> float:
    """Power in watts of a level in dBm.

    >>> watts(30.0)
    1.0
    """
    return float(10.0 ** (dbm / 10.0 - 3.0))


class Quantity(float):
    """A float that knows the units it may be written in.

    A field of a table that is a quantity is given as a number or as text.
    """

    units: ClassVar[Mapping[str, float]]  #: unit → how many SI units it is

    if TYPE_CHECKING:  # a field's two types, as of a descriptor; there is none

        def __get__(self, instance: object, owner: Any) -> Self: ...

        def __set__(self, instance: object, value: float | str) -> None: ...

    @classmethod
    def of(cls, written: object) -> "Quantity":
        """Read a number, or a number and a unit; ConfigError otherwise.

        >>> Seconds.of("1.5 min")
        90.0
        """
        if isinstance(written, int | float) and not isinstance(written, bool):
            return cls(written)
        parts = re.fullmatch(r"\s*([-+.\deE]+)\s*([A-Za-z/]+)\s*", str(written))
        try:
            number = float(parts[1]) if parts else None
        except ValueError:
            number = None
        if parts is None or number is None:
            raise ConfigError(f"{written!r} is not a number and a unit: {cls._help()}")
        if parts[2] not in cls.units:
            raise ConfigError(
                f"unknown unit {parts[2]!r} in {written!r}: {cls._help()}"
            )
        return cls(cls.convert(number, parts[2]))

    @classmethod
    def convert(cls, number: float, unit: str) -> float:
        """Return the value in SI units."""
        return number * cls.units[unit]

    @classmethod
    def _help(cls) -> str:
        return f"use one of {', '.join(cls.units)}"


class Seconds(Quantity):
    """Time."""

    units: ClassVar = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0, "h": 3600.0}


class Deadline(Seconds):
    """Time of a cycle. ``"auto"``, which a run chooses itself, is infinite.

    >>> Deadline.of("2 min"), Deadline.of("auto").is_auto
    (120.0, True)
    """

    @classmethod
    def of(cls, written: object) -> "Deadline":
        """Read a finite time above 0, or "auto"."""
        if written == "auto":
            return cls(math.inf)
        time_s = super().of(written)
        if not 0 < time_s < math.inf:
            raise ConfigError(
                f"a deadline of {float(time_s)} s: give a finite time above 0 s, or "
                "'auto'"
            )
        return cls(time_s)

    @property
    def is_auto(self) -> bool:
        """Whether the run chooses it."""
        return math.isinf(self)


class Lifetime(Quantity):
    """How long a token is valid."""

    units: ClassVar = {"min": 60.0, "h": 3600.0, "d": 86400.0}


class Hertz(Quantity):
    """Frequency: clocks, bandwidths."""

    units: ClassVar = {"Hz": 1.0, "kHz": 1e3, "MHz": 1e6, "GHz": 1e9}


class Metres(Quantity):
    """Distance."""

    units: ClassVar = {"m": 1.0, "km": 1e3}


class MetresPerSecond(Quantity):
    """Speed."""

    units: ClassVar = {"m/s": 1.0, "km/h": 1 / 3.6}


class Decibels(Quantity):
    """Attenuation, the one quantity that stays in decibels: so its law is printed."""

    units: ClassVar = {"dB": 1.0}


class SamplesPerSecond(Quantity):
    """How fast a learner trains."""

    units: ClassVar = {"samples/s": 1.0, "/s": 1.0}


class Bytes(Quantity):
    """Size."""

    units: ClassVar = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "bit": 0.125}


class BytesPerSecond(Quantity):
    """How fast data travels."""

    units: ClassVar = {
        "B/s": 1.0,
        "kB/s": 1e3,
        "MB/s": 1e6,
        "GB/s": 1e9,
        "bit/s": 0.125,
        "kbit/s": 125.0,
        "Mbit/s": 125e3,
        "Gbit/s": 125e6,
    }


class Watts(Quantity):
    """Power."""

    units: ClassVar = {"W": 1.0, "mW": 1e-3, "dBm": 1.0}

    @classmethod
    def convert(cls, number: float, unit: str) -> float:
        """Return watts; dBm is a level, not a multiple."""
        return watts(number) if unit == "dBm" else super().convert(number, unit)


class Joules(Quantity):
    """Energy."""

    units: ClassVar = {"J": 1.0, "kJ": 1e3, "Wh": 3600.0, "mWh": 3.6}


class Grams(Quantity):
    """Mass, of carbon dioxide."""

    units: ClassVar = {"g": 1.0, "kg": 1e3, "mg": 1e-3}


class GramsPerJoule(Quantity):
    """How much of it energy causes."""

    units: ClassVar = {"g/J": 1.0, "g/kWh": 1 / 3.6e6, "kg/kWh": 1 / 3.6e3}


class WattsPerHertz(Quantity):
    """Density of noise."""

    units: ClassVar = {"W/Hz": 1.0, "dBm/Hz": 1.0}

    @classmethod
    def convert(cls, number: float, unit: str) -> float:
        """Return watts per hertz; dBm/Hz is a level, not a multiple."""
        return watts(number) if unit == "dBm/Hz" else super().convert(number, unit)
