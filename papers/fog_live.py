"""What moving data saves: with costs that were measured, and on other networks.

In full, the emulated testbed measures what a sample costs each of four devices, and
each pair of them (`melisma costs`; needs root), and all plans are priced by that; the
quick variant has the model of WiFi's costs. Topologies, mobility and devices that enter
and leave are simulated, with the paper's synthetic costs.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

import melisma as mel
from melisma.jobs import (
    Costs,
    DataTable,
    FogTable,
    Job,
    LearnersTable,
    TrainingTable,
)
from melisma.launch import measure
from melisma.maths import mean_interval
from melisma.system import Mode
from melisma.testbed import DEVICES
from melisma.units import BytesPerSecond, Deadline, SamplesPerSecond
from melisma.views import plots

from .claims import Claim, Kind, above, at_most, by, mean_of
from .kit import Cells, Data, Spread, in_order

#: Ways to plan, by the settings that they are in Table III.
PLANS = {
    "fog:alone": "A, nothing moves",
    "fog:known": "B, all is known",
    "fog:windows": "C, averages of a window",
    "fog:rolling": "ours, averages so far",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlansStudy:
    """Every number that both exhibits depend on."""

    seeds: int
    devices: tuple[str, ...] = ("pi1", "pi2", "pi3", "jetson-nano")
    testbed: bool = False  #: costs are measured on it
    measured: int = 40  #: slots that are
    network: str = "wifi"
    cycles: int = 8
    period: int = 10
    samples: int = 800  #: of a cycle, at most
    discard: float = 10.0
    dataset: str = "mnist-5k"
    model: str = "FogMLP"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworksStudy(PlansStudy):
    """Topologies, mobility and presence."""

    devices: tuple[str, ...] = tuple(f"device{n}" for n in range(10))
    #: Name, kind of links, and the chances to leave and to enter in a slot.
    networks: tuple[tuple[str, str, float, float], ...] = (
        ("full", "full", 0.0, 0.0),
        ("random", "random", 0.0, 0.0),
        ("social", "social", 0.0, 0.0),
        ("hierarchical", "hierarchical", 0.0, 0.0),
        ("scale-free", "scale-free", 0.0, 0.0),
        ("mobile", "waypoint", 0.0, 0.0),
        ("V(t)", "full", 0.02, 0.2),
    )
    discard: float = 2.0


class Moves(NamedTuple):
    """One run: a plan, and what it is priced by."""

    study: PlansStudy
    plan: str
    seed: int
    costs: str
    links: str = "full"
    departures: float = 0.0
    arrivals: float = 0.0


def job_of(moves: Moves) -> Job:
    """A fog of the study's devices."""
    study = moves.study
    return Job(
        name="fog",
        scheme=moves.plan,
        mode=Mode.FEDERATED,
        model=study.model,
        cycles=study.cycles,
        deadline=Deadline(0.25 * study.period),
        seed=moves.seed,
        steps=1,
        samples=study.samples,
        data=DataTable(name=study.dataset),
        training=TrainingTable(rate=0.05, batch=4),
        fog=FogTable(
            period=study.period,
            costs=moves.costs,
            links=moves.links,
            departures=moves.departures,
            arrivals=moves.arrivals,
            capacities=False,
            discard=study.discard,
        ),
        learners=tuple(
            LearnersTable(
                name=name,
                # Of no account: nothing is limited, and costs are given.
                rate=SamplesPerSecond(1000.0),
                bandwidth=BytesPerSecond(1e6),
            )
            for name in study.devices
        ),
    )


def moved(moves: Moves) -> dict[str, float]:
    """Return what a run comes to, by the sample collected."""
    history = mel.simulate(job_of(moves), runs=None).history
    collected = sum(history.collected)
    return {
        "cost": sum(history.cost) / collected,
        "sent": sum(history.sent) / collected,
        "discarded": sum(history.discarded) / collected,
        "accuracy": history.metrics["accuracy"][-1],
    }


def run_costs(study: PlansStudy, spread: Spread = in_order) -> Data:
    """Price all plans, by a trace of the testbed or by a model."""
    with TemporaryDirectory() as folder:
        costs, data = str(Costs(study.network)), Data()
        if study.testbed:
            costs = str(Path(folder, "trace.csv"))
            job = job_of(Moves(study, "fog:alone", 0, Costs.UNIFORM))
            places = [DEVICES[name] for name in study.devices]
            measure(job, places, Path(costs), slots=study.measured)
            data["seconds"] = _seconds(Path(costs), len(places))
        todo = [
            Moves(study, plan, seed, costs)
            for plan in PLANS
            for seed in range(study.seeds)
        ]
        found = [moved(one) for one in todo] if study.testbed else spread(moved, todo)
    for n, plan in enumerate(PLANS):
        rows = found[n * study.seeds : (n + 1) * study.seeds]
        data |= {f"{plan}/{key}": np.array([r[key] for r in rows]) for key in rows[0]}
    return data


def _seconds(path: Path, devices: int) -> np.ndarray:
    """Seconds of a sample by slot, source and target."""
    lines = [line for line in path.read_text().splitlines() if line[:1].isdigit()]
    rows = np.array([line.split(",") for line in lines], dtype=np.float64)
    slots = int(rows[:, 0].max()) + 1
    seconds = np.full((slots, devices, devices), np.nan)
    seconds[tuple(rows[:, :3].astype(int).T)] = rows[:, 3]
    return seconds


def run_networks(study: NetworksStudy, spread: Spread = in_order) -> Data:
    """Run all plans on all networks."""
    cases = [(name, plan) for name, *_ in study.networks for plan in PLANS]
    todo = [
        Moves(study, plan, seed, Costs.UNIFORM, links, departures, arrivals)
        for _, links, departures, arrivals in study.networks
        for plan in PLANS
        for seed in range(study.seeds)
    ]
    found = iter(spread(moved, todo))
    data: Data = {}
    for name, plan in cases:
        rows = [next(found) for _ in range(study.seeds)]
        data |= {
            f"{name}/{plan}/{key}": np.array([r[key] for r in rows]) for key in rows[0]
        }
    return data


def _saves(what: str, data: Data, prefix: str, plan: str, printed: str = "") -> Claim:
    cost = data[f"{prefix}{plan}/cost"]
    alone = data[f"{prefix}fog:alone/cost"]
    return Claim(
        what=what,
        printed=printed,
        ours=mean_of(100.0 * (1.0 - cost / alone)),
        rule=by(46.0) if printed else above(0.0),
        kind=Kind.OWN,
        unit="%",
        digits=0,
        why="what is saved hangs on devices and links: on the testbed, sending a "
        "sample takes three times as long as training on it, and more"
        if printed
        else "what is sent to a device that leaves is lost",
    )


def claims_of_costs(data: Data) -> list[Claim]:
    """What Table III says of synthetic costs, with others."""
    known, windows = data["fog:known/cost"], data["fog:windows/cost"]
    return [
        _saves("Cost saved from A to B", data, "", "fog:known", "46 %"),
        Claim(
            what="Cost of C above that of B, of it: minor changes",
            printed="-12 %",
            ours=mean_of(100.0 * (windows / known - 1.0)),
            rule=at_most(15.0, weaker=40.0),
            kind=Kind.OWN,
            unit="%",
            digits=0,
            why="slots vary, and averages know nothing of the next one",
        ),
    ]


def claims_of_networks(data: Data) -> list[Claim]:
    """Moving data pays on every network, known and estimated."""
    return [
        _saves(f"{name}: cost saved by moving, {PLANS[plan]}", data, f"{name}/", plan)
        for name in dict.fromkeys(key.split("/")[0] for key in data)
        for plan in ("fog:known", "fog:windows")
    ]


def _text(values: np.ndarray, digits: int = 3) -> str:
    mean, half = mean_interval(values)
    return f"{float(mean):.{digits}f} ± {float(half):.{digits}f}"


def _row(data: Data, prefix: str) -> list[str]:
    return [
        _text(data[f"{prefix}/cost"]),
        *(_text(100.0 * data[f"{prefix}/{key}"], 1) for key in COLUMNS),
    ]


COLUMNS = ("sent", "discarded", "accuracy")
HEADING = ["cost a sample", "sent (%)", "discarded (%)", "accuracy (%)"]


def table_of_costs(data: Data) -> Cells:
    """Costs and where data went, plan by plan; what was measured."""
    rows = [["plan", *HEADING]]
    rows += [[text, *_row(data, plan)] for plan, text in PLANS.items()]
    if "seconds" in data:
        median = 1000.0 * np.median(data["seconds"], axis=0)
        trained = ", ".join(f"{ms:.2f}" for ms in np.diag(median))
        sent = median[~np.eye(len(median), dtype=bool)]
        span = f"{sent.min():.2f} to {sent.max():.2f}"
        rows.append(
            [f"measured, ms a sample: trained {trained}; sent {span}", *[""] * 4]
        )
    return rows


def table_of_networks(data: Data) -> Cells:
    """The same, network by network."""
    rows = [["network", "plan", *HEADING]]
    for prefix in dict.fromkeys(key.rsplit("/", 1)[0] for key in data):
        name, plan = prefix.split("/")
        rows.append([name, PLANS[plan], *_row(data, prefix)])
    return rows


def draw_networks(drawing: Figure, data: Data) -> None:
    """Draw the cost of each plan, network by network."""
    drawing.set_size_inches(8.0, 3.4)
    ax = drawing.subplots()
    names = list(dict.fromkeys(key.split("/")[0] for key in data))
    for n, (plan, text) in enumerate(PLANS.items()):
        mean, half = mean_interval(
            np.array([data[f"{name}/{plan}/cost"] for name in names]).T
        )
        at = np.arange(len(names)) + 0.2 * (n - 1.5)
        colour = plots.LOOKS[plan].colour
        ax.bar(at, mean, 0.19, yerr=half, color=colour, label=text, capsize=2)
    ax.set_xticks(range(len(names)), names)
    ax.set(ylabel="cost per sample collected")
    ax.set_ylim(bottom=0.0)
    drawing.legend(loc="outside upper right", ncols=2, frameon=False)


COSTS_QUICK = PlansStudy(seeds=10)
COSTS_FULL = replace(COSTS_QUICK, testbed=True)
NETWORKS = NetworksStudy(seeds=12)
