"""Costs that were measured: a CSV file of how long a sample takes, slot by slot.

    # any notes, such as who measured what
    slot,source,target,sample_s
    0,0,0,0.0021                  device 0 trains on a sample: source and target agree
    0,0,1,0.0134                  a sample goes from device 0 to device 1

All count from 0, and every slot has a line for each device and each ordered pair. So a
file that was cut within a slot is told from a whole one; cut between two slots, it is a
shorter trace.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from melisma.errors import ConfigError, readable
from melisma.fog.links import Links
from melisma.maths.arrays import Floats, set_numbers

HEADER = "slot,source,target,sample_s"
NOTE = "# "
#: Seconds that a sample may take: neither costs nor capacities overflow.
LEAST_S, MOST_S = 1e-9, 1e6
_COUNT = re.compile("[0-9]{1,5}")
_SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """Seconds of a sample over S slots, among n devices."""

    #: S × n × n: from source to target; on the diagonal, training on a device
    sample_s: Floats
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        shape = np.shape(self.sample_s)
        if len(shape) != 3 or shape[1] != shape[2] or 0 in shape:
            raise ConfigError(
                f"sample_s has shape {shape}: give slots × devices × devices"
            )
        set_numbers(self, "sample_s", shape=shape)
        if not ((self.sample_s >= LEAST_S) & (self.sample_s <= MOST_S)).all():
            raise ConfigError(f"sample_s: {_RANGE}")

    @property
    def slots(self) -> int:
        """S."""
        return len(self.sample_s)

    @property
    def devices(self) -> int:
        """n."""
        return int(self.sample_s.shape[1])

    def only(self, devices: Sequence[int]) -> "Trace":
        """The same of these devices, in their order; ConfigError if one is not there.

        No costs are made up for devices beyond those that were measured.
        """
        if len(devices) and max(devices) >= self.devices:
            raise ConfigError(
                f"a trace of {self.devices} devices has no costs for "
                f"{max(devices) + 1}: measure as many, or give fewer learners"
            )
        which = np.array(devices, dtype=np.int64)
        return Trace(sample_s=self.sample_s[:, which[:, None], which], notes=self.notes)

    def process_s(self, slots: int) -> Floats:
        """Seconds of training on a sample, slots × n; repeated if that is too short."""
        each: Floats = np.diagonal(self.sample_s, axis1=1, axis2=2)
        return each[np.arange(slots) % self.slots]

    def link_s(self, links: Links) -> Floats:
        """Seconds of sending a sample, for each entry of the links."""
        return self.sample_s[links.slot % self.slots, links.source, links.target]


_RANGE = f"give seconds from {LEAST_S:g} to {MOST_S:g}"


def write(path: Path, trace: Trace) -> None:
    """Write a trace as ``read`` reads it, to the last digit."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(head(trace.notes))
        for slot, sample_s in enumerate(trace.sample_s):
            file.writelines(lines(slot, sample_s))


def head(notes: Iterable[str]) -> Iterator[str]:
    """Yield the lines before the first slot."""
    yield from (f"{NOTE}{readable(note, most=1000)}\n" for note in notes)
    yield f"{HEADER}\n"


def lines(slot: int, sample_s: Floats) -> Iterator[str]:
    """Yield the lines of a slot: n × n seconds."""
    for (source, target), seconds in np.ndenumerate(sample_s):
        yield f"{slot},{source},{target},{float(seconds)!r}\n"


def read(path: Path) -> Trace:
    """Read a trace; ConfigError, naming the line, for what is none or not whole."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}: give a CSV file") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is no text: {error}: give a CSV file") from error
    *rows, rest = text.split("\n")
    if rest:
        raise ConfigError(
            f"{path}, line {len(rows) + 1}: cut off, or without an end of line: add "
            "what is missing"
        )
    notes = tuple(_notes(rows))
    if rows[len(notes) : len(notes) + 1] != [HEADER]:
        raise ConfigError(f"{path}, line {len(notes) + 1}: give the header {HEADER}")
    cells: dict[tuple[int, int, int], float] = {}
    for number, row in enumerate(rows[len(notes) + 1 :], start=len(notes) + 2):
        try:
            cell, seconds = _row(row)
        except ConfigError as error:
            raise ConfigError(f"{path}, line {number}: {error}") from error
        if cell in cells:
            raise ConfigError(
                f"{path}, line {number}: {_named(cell)} is there twice: leave one out"
            )
        cells[cell] = seconds
    try:
        return Trace(sample_s=_table(cells), notes=notes)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _notes(rows: Iterable[str]) -> Iterator[str]:
    for row in rows:
        if not row.startswith(NOTE.strip()):
            return
        yield row.removeprefix(NOTE.strip()).strip()


def _row(row: str) -> tuple[tuple[int, int, int], float]:
    """Return which cell a line fills, and with what; ConfigError if it is wrong."""
    values = [value.strip() for value in row.split(",")]
    if len(values) != 4:
        raise ConfigError(f"{readable(row, 60)!r}: give {HEADER}")
    *counts, seconds = values
    for name, value in zip(HEADER.split(","), counts, strict=False):
        if not _COUNT.fullmatch(value):
            raise ConfigError(
                f"{name} {readable(value, 30)!r}: give a whole number from 0 to 99999"
            )
    if not (_SECONDS.fullmatch(seconds) and LEAST_S <= float(seconds) <= MOST_S):
        raise ConfigError(f"sample_s {readable(seconds, 30)!r}: {_RANGE}")
    slot, source, target = map(int, counts)
    return (slot, source, target), float(seconds)


def _table(cells: dict[tuple[int, int, int], float]) -> Floats:
    """Return the cells as an array; ConfigError if one is missing."""
    if not cells:
        raise ConfigError("there is no slot in it: measure one at least")
    slots = max(slot for slot, _, _ in cells) + 1
    devices = max(max(cell[1:]) for cell in cells) + 1
    # Of those expected, the first that is not there comes early: cells are few.
    every = product(range(slots), range(devices), range(devices))
    if missing := next((cell for cell in every if cell not in cells), None):
        raise ConfigError(
            f"{_named(missing)} is missing, of {slots} slots and {devices} devices: "
            "give a line for each slot, device and pair, or leave the slot out"
        )
    if devices < 2:
        raise ConfigError("there is one device in it: measure two at least")
    table = np.empty((slots, devices, devices))
    for cell, seconds in cells.items():
        table[cell] = seconds
    return table


def _named(cell: tuple[int, int, int]) -> str:
    return "slot {}, from {} to {}".format(*cell)


class Series(NamedTuple):
    """What costs are like over slots."""

    mean: float
    spread: float  #: standard deviation of the logarithm, within each column
    #: Of a slot with the next, of the logarithm; None if nothing varies, or is known.
    autocorrelation: float | None


def series(values: Floats) -> Series:
    """Describe costs, slots × anything, column by column and then on average."""
    logs = np.log(values)
    logs = logs - logs.mean(axis=0)
    squares = (logs**2).sum(axis=0)
    products = (logs[1:] * logs[:-1]).sum(axis=0)
    varies = squares > 1e-12
    return Series(
        mean=float(values.mean()),
        spread=float(np.sqrt((squares / len(logs)).mean())),
        autocorrelation=(
            float((products[varies] / squares[varies]).mean()) if varies.any() else None
        ),
    )
