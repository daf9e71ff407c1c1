"""Energy sensors of Linux devices, each read from files under a given root.

    /sys/class/power_supply/BAT0   energy_now or charge_now, and that when full
    /sys/class/powercap/intel-rapl:0   energy_uj: what a CPU has spent, which wraps
    /sys/class/hwmon/hwmon1 (ina3221)  power1_input, or in1_input and curr1_input: W now

What is read is checked: a file that is missing, no number or out of range is DataError.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from melisma.errors import ConfigError, DataError

SYS = Path("/sys/class")
#: Least time between two readings while work is done.
READ_EVERY_S = 0.1


class Meter(Protocol):
    """Counts what a device spends."""

    def spent_j(self) -> float:
        """Joules since the meter was made."""


def _number(path: Path, most: float = 1e18) -> float:
    try:
        value = float(path.read_text("ascii").strip())
    except (OSError, ValueError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as a number: {error}") from error
    if not 0 <= value <= most:
        raise DataError(f"{path} has {value}: give 0 to {most:g}")
    return value


def _word(path: Path) -> str:
    """What a file says, if it can be read: other things have such files too."""
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


class PowerSupply:
    """A battery that knows its charge."""

    def __init__(self, folder: Path) -> None:
        self._kind = "energy" if (folder / "energy_now").exists() else "charge"
        self._folder = folder
        self.share()

    @classmethod
    def find(cls, root: Path = SYS) -> "PowerSupply | None":
        """Return the first battery, if there is one; not that of a mouse."""
        for kind in sorted((root / "power_supply").glob("*/type")):
            is_apart = _word(kind.with_name("scope")) == "Device"
            if _word(kind) == "Battery" and not is_apart:
                return cls(kind.parent)
        return None

    def share(self) -> float:
        """How full it is, from 0 to 1."""
        full = _number(self._folder / f"{self._kind}_full")
        if full == 0:
            raise DataError(f"{self._folder} is a battery that holds nothing")
        return min(_number(self._folder / f"{self._kind}_now") / full, 1.0)


class Rapl:
    """Counters of energy in CPUs: of all packages together."""

    def __init__(self, zones: list[Path]) -> None:
        self._ranges = {z: _number(z / "max_energy_range_uj") for z in zones}
        self._last = {zone: self._read(zone) for zone in zones}
        self._total_uj = 0.0

    @classmethod
    def find(cls, root: Path = SYS) -> "Rapl | None":
        """Return the counters, if there are any that may be read."""
        zones = sorted((root / "powercap").glob("*-rapl:[0-9]*"))
        packages = [zone for zone in zones if zone.name.count(":") == 1]
        try:
            return cls(packages) if packages else None
        except DataError:  # most systems let root alone read them
            return None

    def _read(self, zone: Path) -> float:
        return _number(zone / "energy_uj", most=self._ranges[zone])

    def spent_j(self) -> float:
        """Joules since the meter was made; it is to be read before a counter wraps."""
        for zone, last in self._last.items():
            now = self._read(zone)
            # A counter that passed its range begins at 0 again.
            self._total_uj += now - last + (self._ranges[zone] + 1) * (now < last)
            self._last[zone] = now
        return self._total_uj * 1e-6


class Ina3221:
    """A monitor of supply rails, as on Jetsons: power at a moment, summed over time."""

    def __init__(
        self, folder: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder, self._clock = folder, clock
        self._total_j, self._last_s, self._last_w = 0.0, clock(), self.power_w()

    @classmethod
    def find(cls, root: Path = SYS) -> "Ina3221 | None":
        """Return the first monitor, if there is one."""
        for name in sorted((root / "hwmon").glob("*/name")):
            if _word(name) == "ina3221":
                return cls(name.parent)
        return None

    def power_w(self) -> float:
        """Watts now, of the first rail: that of the whole board."""
        if (power := self._folder / "power1_input").exists():
            return _number(power, most=1e9) * 1e-6  # µW
        volts = _number(self._folder / "in1_input", most=1e6) * 1e-3  # mV
        return volts * _number(self._folder / "curr1_input", most=1e6) * 1e-3  # mA

    def spent_j(self) -> float:
        """Joules since the meter was made: trapezoids between readings."""
        now_s, now_w = self._clock(), self.power_w()
        self._total_j += (now_w + self._last_w) / 2 * max(now_s - self._last_s, 0.0)
        self._last_s, self._last_w = now_s, now_w
        return self._total_j


class Metering:
    """What a device spends from now on, where its sensor counts joules.

    A sensor that fails on the way leaves it unknown: work goes on without it. A battery
    knows its charge too coarsely for one order.
    """

    def __init__(
        self, sensor: PowerSupply | Meter | None, clock: Callable[[], float]
    ) -> None:
        self._meter = None if isinstance(sensor, PowerSupply) else sensor
        self._clock, self._last_s, self._began_j = clock, clock(), 0.0
        self._began_j = self._read()

    def _read(self) -> float:
        """Return what the meter says; 0 once it is unknown."""
        self._last_s = self._clock()
        try:
            return self._meter.spent_j() if self._meter else 0.0
        except DataError:
            self._meter = None
            return 0.0

    def read(self) -> None:
        """Read the sensor, if it was not just read: power is summed over readings."""
        if self._meter and self._clock() - self._last_s >= READ_EVERY_S:
            self._read()

    def spent_j(self) -> float | None:
        """Joules so far; None: not known."""
        spent_j = max(self._read() - self._began_j, 0.0)
        return spent_j if self._meter else None


def sensors(root: Path = SYS) -> PowerSupply | Meter:
    """Return the best sensor of this device; ConfigError if it has none."""
    found = PowerSupply.find(root) or Ina3221.find(root) or Rapl.find(root)
    if found is None:
        raise ConfigError(
            "this device has no energy sensor that may be read (power_supply, "
            "INA3221, RAPL): leave --sensors out, and a model counts"
        )
    return found
