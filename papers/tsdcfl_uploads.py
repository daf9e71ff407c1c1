"""Uploads of coded cycles over shared channels: section 4.3 of the two-stage paper."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from melisma.maths import mean_interval
from melisma.transmission import Uploads, jain

from .claims import Claim, Kind, at_least, mean_of
from .kit import Data, Spread, in_order


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadsStudy:
    """Every number that the table of uploads depends on."""

    workers: int = 10
    needed: int = 8
    channels: int = 2
    size_bits: float = 8e6
    rate_bps: tuple[float, float] = (12e6, 2e6)  #: most of the fastest, of the slowest
    ready_s: float = 2.0  #: gradients are ready within
    slot_s: float = 0.1  #: of the rows with short slots
    cycles: int = 300
    seeds: int = 5
    utility_weights: tuple[float, ...] = (1.0, 10.0)
    unlike: tuple[float, ...] = (8.0, 4.0, 2.0, 1.0)  #: rates of those who wait


#: Row → whether there is a channel each, whether slots are short, whether one is owed.
UPLOADS = {
    "as is": (False, False, True),
    "nothing owed": (False, False, False),
    "short slots": (False, True, True),
    "short slots, nothing owed": (False, True, False),
    "a channel each": (True, False, True),
}


def cycles_of(todo: tuple[UploadsStudy, str, int]) -> list[float]:
    """Mean s until enough are through, least used share and Jain's index of used."""
    study, row, seed = todo
    each, short, owed = UPLOADS[row]
    n, rng = study.workers, np.random.default_rng(seed)
    air = Uploads(
        workers=n,
        channels=n if each else study.channels,
        slot_s=study.slot_s if short else inf,
    )
    used, end_s = np.zeros(n), np.zeros(study.cycles)
    for cycle in range(study.cycles):
        rate_bps = np.linspace(*study.rate_bps, n) * rng.uniform(0.25, 1.0, n)
        ready_s = rng.uniform(0.0, study.ready_s, n)
        plan = air.schedule(ready_s, study.size_bits, rate_bps)
        end_s[cycle] = np.sort(plan.finish_s)[study.needed - 1]
        used += plan.finish_s <= end_s[cycle]
        if owed:
            air.settle(plan, end_s[cycle])
    return [float(end_s.mean()), float(used.min() / study.cycles), float(jain(used))]


def first_turn(rates: Sequence[float], utility_weight: float) -> int:
    """The first cycle in which the slowest of four is among the first two."""
    air = Uploads(workers=len(rates), channels=1, utility_weight=utility_weight)
    cycle, used = 0, False
    while not used:
        plan = air.schedule(0.0, 1.0, rates)
        end_s = float(np.sort(plan.finish_s)[1])
        air.settle(plan, end_s)
        cycle, used = cycle + 1, bool(plan.finish_s[-1] <= end_s)
    return cycle


def run_uploads(study: UploadsStudy, spread: Spread = in_order) -> Data:
    """Go through cycles in every way: seeds × (s, least used share, Jain's index)."""
    todo = [(study, row, seed) for row in UPLOADS for seed in range(study.seeds)]
    found = np.array(spread(cycles_of, todo)).reshape(len(UPLOADS), study.seeds, 3)
    turns = [first_turn(study.unlike, V) for V in study.utility_weights]
    return {
        **dict(zip(UPLOADS, found, strict=True)),
        "V": np.array(study.utility_weights),
        "first turn": np.array(turns, dtype=np.float64),
    }


def table_of_uploads(data: Data) -> list[list[str]]:
    """One row for each way."""
    rows = [["", "seconds to 8 of 10", "least used worker's share", "Jain's index"]]
    for row in UPLOADS:
        (s, least, index), (half, _, _) = mean_interval(data[row])
        rows.append([row, f"{s:.2f} ± {half:.2f}", f"{least:.2f}", f"{index:.3f}"])
    for V, cycle in zip(data["V"], data["first turn"], strict=True):
        text = f"rates 8, 4, 2, 1, two needed, V = {V:g}: the slowest's first turn"
        rows.append([text, f"in cycle {cycle:.0f}", "", ""])
    return rows


def claims_of_uploads(data: Data) -> list[Claim]:
    """Transmission time and fairness of the uploads of coded cycles."""
    fair, alone = data["as is"].T, data["nothing owed"].T
    short, short_alone = data["short slots"].T, data["short slots, nothing owed"].T
    return [
        Claim(
            what="Time of the uploads, below that without fairness",
            printed="reduced",
            ours=mean_of(100.0 * (1.0 - fair[0] / alone[0])),
            rule=at_least(0.0),
            unit="%",
            digits=1,
            why="fairness lets slow workers send: it costs time, it does not save any",
        ),
        Claim(
            what="Time of the uploads, below that without fairness, in slots of 0.1 s",
            printed="reduced",
            ours=mean_of(100.0 * (1.0 - short[0] / short_alone[0])),
            rule=at_least(0.0),
            kind=Kind.OWN,
            unit="%",
            digits=1,
        ),
        Claim(
            what="Jain's index of used gradients, above that without fairness",
            printed="fairer",
            ours=mean_of(fair[2] - alone[2]),
            rule=at_least(0.0),
            digits=3,
        ),
        Claim(
            what="Least used worker's share of cycles, above that without fairness",
            printed="fairer",
            ours=mean_of(100.0 * (fair[1] - alone[1])),
            rule=at_least(0.0),
            unit="points",
            digits=1,
        ),
    ]
