"""V(t): which devices are there, T × n, drawn or from a trace.

Every device is there in the first slot. From slot to slot one that is there leaves with
the probability of departures, and one that is not enters with that of arrivals, each on
its own: two-state chains, there for arrivals / (arrivals + departures) of a long time.
"""

import csv
from pathlib import Path

import numpy as np

from melisma.errors import ConfigError
from melisma.maths.arrays import Bools

#: What a line of a trace says of a device: whether it is there from this slot on.
CHANGES = {"in": True, "out": False}


def drawn(
    devices: int,
    slots: int,
    arrivals: float,
    departures: float,
    rng: np.random.Generator,
) -> Bools:
    """Draw who is there, by the probabilities of a slot."""
    there = np.ones((slots, devices), dtype=bool)
    chances = rng.random((slots, devices))
    for t in range(1, slots):
        stays, comes = chances[t] >= departures, chances[t] < arrivals
        there[t] = np.where(there[t - 1], stays, comes)
    return there


def from_file(path: Path, devices: int, slots: int) -> Bools:
    """Read a CSV file with the columns slot, device and change: ``in`` or ``out``.

    Slots and devices count from 0. A device is there until it goes ``out``, and one
    whose first change is ``in`` was not there before. Lines are in the order of slots.
    Raises ConfigError, naming the line.
    """
    there = np.ones((slots, devices), dtype=bool)
    last: dict[int, tuple[int, bool]] = {}
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.reader(file)
            header = [name.strip() for name in next(rows, [])]
            if header != ["slot", "device", "change"]:
                raise ConfigError(
                    f"{path}, line 1: columns {','.join(header) or 'missing'}: "
                    "give slot,device,change"
                )
            for row in filter(None, rows):
                where = f"{path}, line {rows.line_num}"
                slot, device, enters = _row(where, row, devices, slots)
                before, was = last.get(device, (-1, not enters))
                if slot <= before or was == enters:
                    raise ConfigError(
                        f"{where}: device {device} goes {row[2].strip()} in slot "
                        f"{slot}, but it went {'in' if was else 'out'} in slot "
                        f"{before}: give its changes in turn, one a slot"
                    )
                if before < 0:
                    there[:slot, device] = not enters
                there[slot:, device] = enters
                last[device] = slot, enters
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = error.strerror if isinstance(error, OSError) else "not a table of text"
        raise ConfigError(f"fog.comings = {str(path)!r}: {why}: give a CSV") from error
    return there


def _row(where: str, row: list[str], devices: int, slots: int) -> tuple[int, int, bool]:
    """The slot, the device and whether it enters."""
    if len(row) != 3:
        raise ConfigError(f"{where}: {len(row)} values: give slot,device,change")
    numbers = []
    for name, text, end in zip(("slot", "device"), row, (slots, devices), strict=False):
        digits = text.strip()
        is_number = digits.isascii() and digits.isdecimal() and len(digits) < 10
        if not is_number or int(digits) >= end:
            raise ConfigError(
                f"{where}: {name} {text[:40]!r}: give a number from 0 to {end - 1}"
            )
        numbers.append(int(digits))
    change = row[2].strip()
    if change not in CHANGES:
        raise ConfigError(f"{where}: change {row[2][:40]!r}: give in or out")
    return numbers[0], numbers[1], CHANGES[change]
