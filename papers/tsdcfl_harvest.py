"""Coded training on harvested energy: section 4.3 of the two-stage paper at work."""

from dataclasses import dataclass

import msgspec
import numpy as np

import melisma as mel
from melisma.jobs import (
    DataTable,
    Job,
    LearnersTable,
    StragglingTable,
    TrainingTable,
    TransmissionTable,
)
from melisma.maths import mean_interval
from melisma.runs import records
from melisma.units import BytesPerSecond, Deadline, Joules, SamplesPerSecond, Watts

from .claims import Claim, Kind, above, at_least, at_most, exact, mean_of
from .kit import Cells, Data, Spread, in_order

NAMES = {"uncoded": "uncoded", "fractional": "FR", "two-stage": "two-stage, ours"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HarvestStudy:
    """Every number that the table depends on."""

    harvest_w: tuple[float, ...] = (1.0, 4.0, 16.0)  #: mean of each worker
    battery_j: float = 20.0
    cycles: int = 15
    samples: int = 2_000
    dataset: str = "mnist-5k"
    model: str = "TwoNN"
    channels: int = 2
    slower: float = 8.0  #: how many times one straggler is
    seeds: int = 6


class Todo(msgspec.Struct, frozen=True):
    """One run."""

    study: HarvestStudy
    code: str
    harvest_w: float
    seed: int


class Powered(msgspec.Struct):
    """What one run came to."""

    cycle_s: float  #: mean
    spent_j: float  #: of all workers
    lowest_j: float  #: of any battery
    fullest_j: float
    accuracy: float


def job_of(todo: Todo) -> Job:
    """Ten workers that live on what they harvest; one straggles in each cycle."""
    study = todo.study
    return Job(
        name="harvest",
        scheme="coded",
        code=todo.code,
        stragglers=0 if todo.code == "uncoded" else 1,
        model=study.model,
        cycles=study.cycles,
        deadline=Deadline(600.0),
        seed=todo.seed,
        samples=study.samples,
        shard=5,
        channels=study.channels,
        noise=0.05,
        data=DataTable(name=study.dataset),
        training=TrainingTable(rate=0.1, momentum=0.9),
        straggling=StragglingTable(number=1, slower=study.slower),
        transmission=TransmissionTable(
            battery=Joules(study.battery_j),
            harvest=Watts(todo.harvest_w),
            sending=Watts(1.0),
            computing=Watts(4.0),
        ),
        learners=tuple(
            LearnersTable(
                name=name,
                count=5,
                rate=SamplesPerSecond(rate),
                bandwidth=BytesPerSecond(bits_per_s / 8),
            )
            for name, rate, bits_per_s in (
                ("slow", 200.0, 8e6),
                ("fast", 400.0, 16e6),
            )
        ),
    )


def powered(todo: Todo) -> Powered:
    """Run one job; its records say what became of the batteries."""
    run = mel.simulate(job_of(todo), runs=None)
    rows = run.events(records.Powered)
    return Powered(
        cycle_s=float(np.mean(run.history.cycle_s)),
        spent_j=sum(row.computing_j + row.sending_j for row in rows),
        lowest_j=min(row.lowest_j for row in rows),
        fullest_j=max(row.battery_j for row in rows),
        accuracy=run.history.metrics["accuracy"][-1],
    )


def run_harvest(study: HarvestStudy, spread: Spread = in_order) -> Data:
    """Run all codes at all harvests: harvests × seeds."""
    todo = [
        Todo(study, code, harvest_w, seed)
        for code in NAMES
        for harvest_w in study.harvest_w
        for seed in range(study.seeds)
    ]
    found = spread(powered, todo)
    shape = (len(NAMES), len(study.harvest_w), study.seeds)
    data: Data = {
        "harvest_w": np.array(study.harvest_w),
        "size_j": np.array([study.battery_j]),
    }
    for field in Powered.__struct_fields__:
        values = np.array([getattr(one, field) for one in found]).reshape(shape)
        data |= {
            f"{code}/{field}": own for code, own in zip(NAMES, values, strict=True)
        }
    return data


def table_of_harvest(data: Data) -> Cells:
    """Seconds of an iteration and joules of a run, by code and harvest."""
    rows = [
        ["code", *(f"{w:g} W: iteration (s), spent (J)" for w in data["harvest_w"])]
    ]
    for code, name in NAMES.items():
        times = zip(*mean_interval(data[f"{code}/cycle_s"].T), strict=True)
        spent = data[f"{code}/spent_j"].mean(axis=1)
        cells = [
            f"{mean:.2f} ± {half:.2f}, {joules:,.0f}"
            for (mean, half), joules in zip(times, spent, strict=True)
        ]
        rows.append([name, *cells])
    return rows


def claims_of_harvest(data: Data) -> list[Claim]:
    """C4 in training, and whether a code pays where energy is short."""
    lowest = min(float(data[f"{code}/lowest_j"].min()) for code in NAMES)
    fullest = max(float(data[f"{code}/fullest_j"].max()) for code in NAMES)
    size_j = float(data["size_j"][0])
    held = [
        Claim(
            what="Least charge of any battery",
            printed="≥ 0 (C4)",
            ours=exact(lowest),
            rule=at_least(0.0),
            kind=Kind.OWN,
            unit="J",
        ),
        Claim(
            what="Fullest battery over its size",
            printed="finite (C5)",
            ours=exact(fullest / size_j),
            rule=at_most(1.0 + 1e-9),
            kind=Kind.OWN,
        ),
    ]
    saves = [
        Claim(
            what=f"{harvest_w:g} W: iteration time of two-stage, below that of "
            f"{NAMES[rival]}",
            printed="",
            ours=mean_of(
                100.0 * (1 - data["two-stage/cycle_s"][n] / data[f"{rival}/cycle_s"][n])
            ),
            rule=above(0.0),
            kind=Kind.OWN,
            unit="%",
            digits=0,
            why="a worker that waits for energy looks like a straggler, and its work "
            "is done twice, which costs more energy",
        )
        for n, harvest_w in enumerate(data["harvest_w"])
        for rival in ("uncoded", "fractional")
    ]
    return [*held, *saves]
