"""What a fog run's page tells of its data, and rows of it for a spreadsheet.

runs/<name>/moves.csv    a row for each device and slot
            costs.png, fates.png, flows.png
"""

import csv
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from melisma import pages
from melisma.moving import CENTRAL
from melisma.plots import COSTS
from melisma.runs import fog, fog_pictures, parts
from melisma.runs.accounts import Account
from melisma.runs.fog import Totals
from melisma.runs.fog_pictures import Graph
from melisma.runs.ledger import Cycle
from melisma.runtime.records import Moved

ROWS = "moves.csv"

#: What a page shows of large runs: discs and arrows of a graph, places and names of a
#: matrix, rows of a table.
DISCS, ARROWS, PLACES, NAMES, TABLE = 30, 120, 100, 60, 200

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


def priced(run: Account) -> bool:
    """Whether what the run's data did has a price."""
    return run.job.scheme != CENTRAL


def facts(run: Account) -> dict[str, str]:
    """Return what became of all data."""
    whole = fog.total(run.moved)
    unit = whole.per_sample(whole.cost) if priced(run) else None

    def share(samples: int) -> str:
        return parts.text(whole.per_sample(samples), 1, scale=100.0, unit=" %")

    return {
        "learners": f"{len({row.learner for row in run.moved}):,}",
        "cost per sample collected": parts.text(unit, 3),
        "samples collected": f"{whole.collected:,}",
        "trained": share(whole.trained),
        "offloaded": share(whole.sent),
        "discarded": share(whole.discarded),
    }


def sections(run: Account, folder: Path) -> list[str]:
    """Return what there is to tell of data; pictures are drawn into ``folder``."""
    if not run.moved:
        return []
    return [
        *(_costs(run, folder) if priced(run) else []),
        _fates(run, folder),
        _flows(run, folder),
        _devices(run),
        *_cycles(run),
    ]


def _costs(run: Account, folder: Path) -> list[str]:
    """By cycle, as slots in which little is collected would drown the rest."""
    told = fog.by_cycle(run.moved)
    layers = {
        name: np.array([_cost(one, name) or 0.0 for one in told.values()])
        for name in COSTS
    }
    whole = fog.total(run.moved)
    text = "For each sample collected: " + ", ".join(
        f"{name} {parts.text(_cost(whole, name), 3)}" for name in COSTS
    )
    draw = partial(fog_pictures.costs, cycles=list(told), layers=layers)
    shown = parts.picture(folder, "costs.png", "Costs by cycle", draw)
    return [pages.section("Costs", pages.paragraph(f"{text}."), shown)]


def _cost(told: Totals, part: str) -> float | None:
    """Process, transfer or error, for each sample collected."""
    return told.per_sample(getattr(told, f"{part}_cost"))


def _fates(run: Account, folder: Path) -> str:
    told = fog.by_slot(run.moved)
    names = dict(zip(fog_pictures.FATES, ("kept", "sent", "discarded"), strict=True))
    layers = {
        name: np.array([getattr(one, figure) for one in told.values()], dtype=float)
        for name, figure in names.items()
    }
    draw = partial(fog_pictures.fates, slots=list(told), layers=layers)
    shown = parts.picture(folder, "fates.png", "What became of data by slot", draw)
    text = (
        "Samples stay where they were collected, go to another device, which trains on "
        "them in the next slot, or are discarded."
    )
    return pages.section("What became of the data", pages.paragraph(text), shown)


def _flows(run: Account, folder: Path) -> str:
    title, sent = "Who sent to whom", fog.flows(run.moved)
    if not sent:
        text = "Nobody sent anything to another device."
        return pages.section(title, pages.paragraph(text))
    devices = fog.by_device(run.moved)
    names = list(dict.fromkeys([*devices, *(receiver for _, receiver in sent)]))
    some = _graph if len(names) <= DISCS else _crowd
    return pages.section(title, *some(names, devices, sent, folder))


def _graph(
    names: Sequence[str], devices: dict[str, Totals], sent: fog.Sent, folder: Path
) -> list[str]:
    """Draw a disc for each device, and the heaviest flows."""
    heaviest = sent.most_common(ARROWS)
    number = {name: i for i, name in enumerate(names)}
    trained = {name: one.trained for name, one in devices.items()}
    kept = {name: one.per_sample(100.0 * one.kept) for name, one in devices.items()}
    told = Graph(
        names=names,
        trained=np.array([trained.get(name, 0) for name in names], dtype=float),
        own=np.array([kept.get(name) for name in names], dtype=float),
        arrows=[(number[a], number[b], samples) for (a, b), samples in heaviest],
    )
    (giver, taker), most = heaviest[0]
    busiest = max(trained, key=lambda name: trained[name])
    text = (
        "The area of a disc is what a device trained on, the width of an arrow what "
        f"went that way: at most {trained[busiest]:,} samples ({busiest}) and "
        f"{most:,} ({giver} to {taker}). "
    )
    if len(heaviest) < len(sent):
        share = sum(samples for _, samples in heaviest) / sent.total()
        text += parts.rest(len(heaviest), len(sent), "arrows, the widest")
        text += f"They stand for {share:.0%} of all samples that were sent."
    alt = "Devices, and the samples that they sent to one another"
    draw = partial(fog_pictures.graph, told=told)
    shown = parts.picture(folder, "flows.png", alt, draw)
    return [pages.paragraph(text), shown]


def _crowd(
    names: Sequence[str], devices: dict[str, Totals], sent: fog.Sent, folder: Path
) -> list[str]:
    """Draw a matrix, in groups where there are too many devices for it."""
    trained = {name: one.trained for name, one in devices.items()}
    ranks = sorted(names, key=lambda name: -trained.get(name, 0))
    size = -(-len(ranks) // PLACES)
    between = fog.matrix(sent, {name: i // size for i, name in enumerate(ranks)})
    draw = partial(
        fog_pictures.crowd,
        between=between,
        names=ranks if len(ranks) <= NAMES else [],
    )
    text = "Samples from row to column; first is who trained on most samples. "
    if size > 1:
        text += f"{len(ranks):,} devices in groups of {size} by that rank. "
    first = sorted(trained.values(), reverse=True)[: max(1, len(ranks) // 10)]
    text += (
        f"{len(first):,} of {len(ranks):,} devices trained on "
        f"{sum(first) / max(1, sum(trained.values())):.0%} of all that was trained on."
    )
    alt = "Samples that devices sent to one another"
    shown = parts.picture(folder, "flows.png", alt, draw)
    return [pages.paragraph(text), shown]


def _devices(run: Account) -> str:
    devices = fog.by_device(run.moved)
    titles = (
        *("device", "collected", "trained", "sent", "arrived", "discarded"),
        *("process cost", "transfer cost", "error cost", "cost"),
    )
    cost = parts.text if priced(run) else lambda value, digits: "–"
    rows = (
        pages.row(
            [
                name,
                *(f"{getattr(one, amount):,}" for amount in _AMOUNTS[:5]),
                *(cost(getattr(one, amount), 2) for amount in (*_AMOUNTS[5:], "cost")),
            ]
        )
        for name, one in list(devices.items())[:TABLE]
    )
    text = (
        "In samples, over all slots. "
        + parts.rest(min(TABLE, len(devices)), len(devices), "devices")
        + f"Each device in each slot is in {ROWS}."
    )
    return pages.section("Devices", pages.paragraph(text), pages.table(titles, rows))


def _cycles(run: Account) -> list[str]:
    if not run.cycles:
        return []
    moves = fog.by_cycle(run.moved)
    titles = (
        *("cycle", "time (s)", "accuracy (%)", "loss (nats)", "devices", "counted"),
        *("halted", "lost", "collected", "trained", "offloaded", "discarded"),
        "cost per sample",
    )
    rows = (
        _cycle(cycle, moves.get(cycle.cycle, fog.total([])), run)
        for cycle in run.cycles[-TABLE:]
    )
    text = parts.rest(
        min(TABLE, len(run.cycles)), len(run.cycles), "cycles, the last ones"
    )
    return [pages.section("Cycles", pages.paragraph(text), pages.table(titles, rows))]


def _cycle(cycle: Cycle, moved: Totals, run: Account) -> str:
    unit = moved.per_sample(moved.cost) if priced(run) else None
    return pages.row(
        [
            f"{cycle.cycle:,}",
            parts.text(cycle.time_s, 2),
            parts.text(cycle.accuracy, 2, scale=100.0),
            parts.text(cycle.loss, 3),
            *(f"{n:,}" for n in (cycle.learners, cycle.counted)),
            *(f"{n:,}" for n in (cycle.halted, cycle.lost)),
            *(f"{n:,}" for n in (moved.collected, moved.trained)),
            *(f"{n:,}" for n in (moved.sent, moved.discarded)),
            parts.text(unit, 3),
        ]
    )
