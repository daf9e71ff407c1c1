"""The same jobs on emulated devices and simulated: one exhibit of a paper each.

In full, learners are processes in the places of the emulated testbed, which needs root:
sockets, training and halting are real, and each benchmarks itself. The quick variant
simulates the same jobs, on learners whose rate is their device's share of a core.
"""

import fcntl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any, NamedTuple

import msgspec
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import melisma as mel
from melisma.jobs import Job
from melisma.launch import run_on_testbed
from melisma.maths import Floats, mean_interval
from melisma.testbed import DEVICES, Device
from melisma.views import plots

from .claims import Claim, Kind, Rule, at_most, mean_of
from .crossings import crossing
from .kit import Cells, Data, Exhibit, Spread, in_order


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveStudy:
    """Every number of a small race on a few devices."""

    schemes: tuple[str, ...]
    #: Names of DEVICES, or one of a share of a core for each.
    devices: tuple[str, ...] = ("pi1", "pi2", "pi3", "jetson-nano")
    shares: tuple[float, ...] = ()
    testbed: bool  #: or simulated
    cycles: int
    trials: int
    deadline_s: float
    samples: int
    dataset: str = "mnist-5k"
    model: str = "TwoNN"
    target: float = 0.85  #: accuracy, to be reached by the clock
    samples_per_s: float = 10_000.0  #: that a core trains on, simulated
    noise: float = 0.05  #: of times, simulated
    share_bps: float = 48e6  #: link of a device that is a share of a core

    @property
    def places(self) -> list[Device]:
        """The devices, each with a name of its own where they are shares."""
        if not self.shares:
            return [DEVICES[name] for name in self.devices]
        return [
            Device(
                name=f"device{n}",
                cpu=cpu,
                up_bps=self.share_bps,
                down_bps=self.share_bps,
            )
            for n, cpu in enumerate(self.shares)
        ]


class Raced(msgspec.Struct):
    """What one scheme came to in one trial."""

    time_s: list[float]  #: by the clock, at the end of each cycle, from the first on
    accuracy: list[float]  #: then
    cycle_s: list[float]  #: of all tasks, if there are several
    predicted_s: list[float]  #: of each learner and cycle
    measured_s: list[float]


class Race(NamedTuple):
    """One job to run; ``job_of`` is a function at the top of a module."""

    job_of: Callable[[LiveStudy, str, int], Job]
    study: LiveStudy
    scheme: str
    trial: int


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Wait until no other process races here: two would take each other's cores."""
    with Path(gettempdir(), "melisma-papers-testbed").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def raced(race: Race) -> Raced:
    """Run one job, on the testbed or simulated."""
    job = race.job_of(race.study, race.scheme, race.trial)
    if race.study.testbed:
        with one_at_a_time(), TemporaryDirectory() as folder:
            run = mel.Run(
                job, records=run_on_testbed(job, Path(folder), race.study.places)
            )
    else:
        run = mel.simulate(job, runs=None)
    tasks = [task.history for task in run.tasks.values()]
    pairs = [
        (row.predicted_s, row.measured_s)
        for task in run.tasks.values()
        for row in task.learner_cycles
        if row.predicted_s and row.measured_s and not row.halted
    ]
    # Learners of the testbed have joined and benchmarked themselves by then.
    began_s = tasks[0].time_s[0] - tasks[0].cycle_s[0]
    return Raced(
        time_s=[time_s - began_s for time_s in tasks[0].time_s],
        accuracy=[
            float(value)
            for value in np.mean([one.metrics["accuracy"] for one in tasks], axis=0)
        ],
        cycle_s=[value for one in tasks for value in one.cycle_s],
        predicted_s=[float(p) for p, _ in pairs],
        measured_s=[float(m) for _, m in pairs],
    )


def race(
    job_of: Callable[[LiveStudy, str, int], Job],
    study: LiveStudy,
    spread: Spread = in_order,
) -> Data:
    """Run all schemes: trials × cycles, and learners' times with NaN at their ends."""
    todo = [
        Race(job_of, study, scheme, trial)
        for trial in range(study.trials)
        for scheme in study.schemes
    ]
    found = spread(raced, todo)
    data: Data = {"target": np.array([study.target])}
    for n, scheme in enumerate(study.schemes):
        own = found[n :: len(study.schemes)]
        for field in Raced.__struct_fields__:
            data[f"{scheme}/{field}"] = _padded([getattr(one, field) for one in own])
    return data


def _padded(rows: Sequence[Sequence[float]]) -> Floats:
    longest = max(map(len, rows), default=0)
    return np.array([[*row, *[np.nan] * (longest - len(row))] for row in rows])


def seconds_to_target(data: Data, scheme: str) -> Floats:
    """Seconds by the clock until each trial has the target; its end if it never has."""
    target = float(data["target"][0])
    return np.array(
        [
            crossing(time_s, accuracy, target, float(time_s[-1]))
            for time_s, accuracy in zip(
                data[f"{scheme}/time_s"], data[f"{scheme}/accuracy"], strict=True
            )
        ]
    )


def off_percent(data: Data, scheme: str) -> Floats:
    """Of each trial, the median error of predicted times, in % of the measured."""
    predicted, measured = data[f"{scheme}/predicted_s"], data[f"{scheme}/measured_s"]
    return np.nanmedian(100.0 * np.abs(predicted / measured - 1.0), axis=1)


def foreseen(names: dict[str, str], data: Data) -> list[Claim]:
    """How well times were predicted, scheme by scheme."""
    return [
        Claim(
            what=f"{name}: a learner's predicted time off the measured (median)",
            printed="",
            ours=mean_of(off_percent(data, scheme)),
            rule=at_most(10.0, weaker=25.0),
            kind=Kind.OWN,
            unit="%",
            digits=1,
            why="a learner's speed differs from cycle to cycle, and from its benchmark",
        )
        for scheme, name in names.items()
        if is_predicted(data, scheme)
    ]


def saved(
    what: str, ours: Floats, theirs: Floats, rule: Rule, why: str, printed: str = ""
) -> Claim:
    """By how many per cent ours is below theirs, trial by trial."""
    return Claim(
        what=what,
        printed=printed,
        ours=mean_of(100.0 * (1.0 - ours / theirs)),
        rule=rule,
        kind=Kind.OWN,
        unit="%",
        digits=0,
        why=why,
    )


def draw_race(
    names: dict[str, str],
    looks: dict[str, plots.Look],
    drawing: Figure,
    data: Data,
    *,
    cycles: bool = False,
) -> None:
    """Draw accuracy by the clock, and learners' times, predicted and measured.

    Or the times of ``cycles``: live, those of codes are not predicted.
    """
    names = {scheme: name for scheme, name in names.items() if is_raced(data, scheme)}
    drawing.set_size_inches(9.6, 3.4)
    learned, times = drawing.subplots(1, 2, width_ratios=(1.4, 1.0))
    learned.set(ylim=(0.0, 100.0))
    lines = []
    for scheme, name in names.items():
        time_s = data[f"{scheme}/time_s"].mean(axis=0)
        mean, half = mean_interval(100.0 * data[f"{scheme}/accuracy"])
        lines.append(plots.Line(name, time_s, mean, half, looks[scheme]))
    plots.curves(learned, lines)
    learned.axhline(100.0 * float(data["target"][0]), color="#999999", linestyle=":")
    learned.set(xlabel="time by the clock (s)", ylabel="test accuracy (%)")
    learned.set_xlim(left=0.0)
    (_draw_cycles if cycles else _draw_predicted)(names, looks, times, data)


def is_raced(data: Data, scheme: str) -> bool:
    """Whether a scheme was run: fewer are on the testbed, which takes its time."""
    return f"{scheme}/cycle_s" in data


def is_predicted(data: Data, scheme: str) -> bool:
    """Whether learners' times were predicted and measured."""
    return bool(np.isfinite(data[f"{scheme}/predicted_s"]).any())


def _draw_predicted(
    names: dict[str, str], looks: dict[str, plots.Look], ax: Axes, data: Data
) -> None:
    for scheme in names:
        ax.plot(
            data[f"{scheme}/predicted_s"].ravel(),
            data[f"{scheme}/measured_s"].ravel(),
            color=looks[scheme].colour,
            marker=looks[scheme].marker,
            linestyle="",
            markersize=3,
            alpha=0.4,
        )
    top = 1.05 * max(ax.dataLim.x1, ax.dataLim.y1)
    ax.plot([0, top], [0, top], color="#999999", linestyle=":")
    ax.set(xlim=(0, top), ylim=(0, top), title="A learner's cycle")
    ax.set(xlabel="predicted (s)", ylabel="measured (s)")


def _draw_cycles(
    names: dict[str, str], looks: dict[str, plots.Look], ax: Axes, data: Data
) -> None:
    means = {scheme: data[f"{scheme}/cycle_s"].mean(axis=0) for scheme in names}
    for scheme, cycle_s in means.items():
        look, cycles = looks[scheme], np.arange(1, cycle_s.size + 1)
        ax.plot(cycles, cycle_s, color=look.colour, marker=look.marker, markersize=4)
    ax.set(xlabel="iteration", ylabel="time (s)", title="An iteration, mean of trials")
    ax.set_ylim(bottom=0.0)


def table_of_race(names: dict[str, str], data: Data) -> Cells:
    """Seconds of a cycle and to the target, accuracy in the end, error of times."""
    target = f"{100 * float(data['target'][0]):.0f} %"
    rows = [["scheme", "cycle (s)", f"to {target} (s)", "accuracy (%)", "off (%)"]]
    for scheme, name in names.items():
        if not is_raced(data, scheme):
            continue
        rows.append(
            [
                name,
                _text(np.nanmean(data[f"{scheme}/cycle_s"], axis=1), 2),
                _text(seconds_to_target(data, scheme), 1),
                _text(100.0 * data[f"{scheme}/accuracy"][:, -1], 1),
                _text(off_percent(data, scheme), 1)
                if is_predicted(data, scheme)
                else "",
            ]
        )
    return rows


def _text(values: Floats, digits: int) -> str:
    mean, half = mean_interval(values)
    return f"{float(mean):.{digits}f} ± {float(half):.{digits}f}"


CAPTION = (
    "{cycles} cycles of {model} on {dataset}, {samples:,} samples; mean and 95 % "
    "interval of {trials} trials. On the emulated testbed: {testbed}; otherwise "
    "simulated. Right: each learner's cycle, predicted and measured."
)


def live_exhibit(
    quick: LiveStudy,
    full: LiveStudy,
    run: Callable[[LiveStudy, Spread], Data],
    draw: Callable[[Figure, Data], None],
    table: Callable[[Data], Cells],
    claims: Callable[[Data], list[Claim]],
    **texts: Any,
) -> Exhibit[LiveStudy]:
    """The exhibit of a paper."""
    return Exhibit(
        kind="Setting",
        name="testbed",
        file="testbed",
        caption=texts.pop("caption", CAPTION),
        quick=quick,
        full=full,
        run=run,
        draw=draw,
        table=table,
        claims=claims,
        **texts,
    )
