"""A fog run's data in pictures, and in rows for a spreadsheet.

runs/<name>/moves.csv    a row for each device and slot
            costs.png, fates.png, flows.png
"""

import csv
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from melisma.jobs.families import CENTRAL
from melisma.runs.records import Moved
from melisma.views import fog, fog_pictures, parts, plots
from melisma.views.accounts import Account
from melisma.views.fog import Totals
from melisma.views.fog_pictures import Graph
from melisma.views.plots import COSTS

ROWS = "moves.csv"

#: What a picture shows of large runs: discs and arrows of a graph, places and names of
#: a matrix.
DISCS, ARROWS, PLACES, NAMES = 30, 120, 100, 60

_AMOUNTS = (
    *("collected", "trained", "sent", "arrived", "discarded"),
    *("process_cost", "transfer_cost", "error_cost"),
)


def write_rows(path: Path, moved: Iterable[Moved]) -> None:
    """Write one line for each device and slot; ``to`` is DEVICE:SAMPLES, by spaces."""
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(("cycle", "slot", "learner", *_AMOUNTS, "to"))
        for row in moved:
            to = " ".join(f"{name}:{samples}" for name, samples in row.sent.items())
            told = fog.total([row])
            amounts = (getattr(told, name) for name in _AMOUNTS)
            cells = (row.cycle, row.slot, row.learner, *amounts, to)
            rows.writerow(map(parts.cell, cells))


def draw(run: Account, folder: Path) -> None:
    """Draw what there is to tell of data into ``folder``."""
    if not run.moved:
        return
    if run.job.scheme != CENTRAL:  # the yardstick has no costs
        _costs(run, folder)
    _fates(run, folder)
    _flows(run, folder)


def _costs(run: Account, folder: Path) -> None:
    """By cycle, as slots in which little is collected would drown the rest."""
    told = fog.by_cycle(run.moved)
    layers = {
        name: np.array([_cost(one, name) or 0.0 for one in told.values()])
        for name in COSTS
    }
    drawn = partial(fog_pictures.costs, cycles=list(told), layers=layers)
    plots.save(folder / "costs.png", drawn)


def _cost(told: Totals, part: str) -> float | None:
    """Process, transfer or error, for each sample collected."""
    return told.per_sample(getattr(told, f"{part}_cost"))


def _fates(run: Account, folder: Path) -> None:
    told = fog.by_slot(run.moved)
    names = dict(zip(fog_pictures.FATES, ("kept", "sent", "discarded"), strict=True))
    layers = {
        name: np.array([getattr(one, figure) for one in told.values()], dtype=float)
        for name, figure in names.items()
    }
    drawn = partial(fog_pictures.fates, slots=list(told), layers=layers)
    plots.save(folder / "fates.png", drawn)


def _flows(run: Account, folder: Path) -> None:
    """Draw who sent to whom, if anybody did: a graph, or of many devices a matrix."""
    sent = fog.flows(run.moved)
    if not sent:
        return
    devices = fog.by_device(run.moved)
    names = list(dict.fromkeys([*devices, *(receiver for _, receiver in sent)]))
    some = _graph if len(names) <= DISCS else _crowd
    plots.save(folder / "flows.png", some(names, devices, sent))


def _graph(
    names: Sequence[str], devices: dict[str, Totals], sent: fog.Sent
) -> Callable[[Figure], None]:
    """Return what draws a disc for each device, and the heaviest flows."""
    number = {name: i for i, name in enumerate(names)}
    trained = {name: one.trained for name, one in devices.items()}
    kept = {name: one.per_sample(100.0 * one.kept) for name, one in devices.items()}
    heaviest = sent.most_common(ARROWS)
    told = Graph(
        names=names,
        trained=np.array([trained.get(name, 0) for name in names], dtype=float),
        own=np.array([kept.get(name) for name in names], dtype=float),
        arrows=[(number[a], number[b], samples) for (a, b), samples in heaviest],
    )
    return partial(fog_pictures.graph, told=told)


def _crowd(
    names: Sequence[str], devices: dict[str, Totals], sent: fog.Sent
) -> Callable[[Figure], None]:
    """Return what draws a matrix, in groups where devices are too many for it."""
    trained = {name: one.trained for name, one in devices.items()}
    ranks = sorted(names, key=lambda name: -trained.get(name, 0))
    size = -(-len(ranks) // PLACES)
    between = fog.matrix(sent, {name: i // size for i, name in enumerate(ranks)})
    return partial(
        fog_pictures.crowd,
        between=between,
        names=ranks if len(ranks) <= NAMES else [],
    )
