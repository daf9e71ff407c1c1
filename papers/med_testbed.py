"""Three tasks with real gradients on devices whose owners use them, too."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from melisma.jobs import (
    BenchmarkTable,
    Job,
    Known,
    LearnersTable,
    StateTable,
    TaskTable,
    TrainingTable,
)
from melisma.learner import Activity
from melisma.learning import Late
from melisma.maths import Floats
from melisma.system import heated
from melisma.units import BytesPerSecond, Deadline, SamplesPerSecond, Seconds
from melisma.views import plots

from . import live
from .claims import Claim, Kind, by, mean_of, near
from .kit import Data, Exhibit, Spread, in_order
from .med_held import NAMES

TASKS = (
    TaskTable(name="digits", model="TwoNN", samples=2000, steps=3),
    TaskTable(name="deep", model="ThreeNN", samples=800, steps=2),
    TaskTable(name="conv", model="ConvNet", samples=800, steps=1),
)
HEAT = 0.5  #: the likely state of an owner has a probability of 0.79
FULL = live.LiveStudy(
    schemes=("med", "mmtt"),
    shares=(0.15,) * 10,
    testbed=True,
    cycles=3,
    trials=3,
    deadline_s=120.0,
    samples=3_600,
    model="TwoNN, ThreeNN and ConvNet",
    target=0.6,
    samples_per_s=1_700.0,
)
QUICK = replace(FULL, testbed=False, trials=10)
#: With the thesis's own rates: training owners leave a device 9 % of its speed.
ACCURACIES = replace(
    QUICK,
    schemes=tuple(NAMES),
    cycles=12,
    deadline_s=12.0,
    samples_per_s=500.0 / 0.15,
)


def job_of(study: live.LiveStudy, scheme: str, trial: int) -> Job:
    """Three tasks, and owners as the trial draws them."""
    places = study.places
    likely = np.random.default_rng(trial).integers(len(Activity), size=len(places))
    rows = heated(likely, len(Activity), HEAT)
    speeds = {  # of a device whose owner is idle, computes, downloads
        activity: (compute * study.samples_per_s, link * study.share_bps / 8)
        for activity, compute, link in zip(
            Activity, (1.0, 0.5 / 5.6, 1.0), (1.0, 1.0, 0.4), strict=True
        )
    }
    return Job(
        name="med",
        scheme=scheme,
        seed=trial,
        cycles=study.cycles,
        deadline=Deadline(study.deadline_s),
        shard=20,
        noise=study.noise,
        overhead=Seconds(0.1),
        late=Late.OVERRUN,
        training=TrainingTable(rate=0.05),
        benchmark=BenchmarkTable(known=Known.MEASURED, shards=20),
        tasks=TASKS,
        learners=tuple(
            LearnersTable(
                name=place.name,
                states=tuple(
                    StateTable(
                        probability=float(p),
                        rate=SamplesPerSecond((place.cpu or 1.0) * speeds[activity][0]),
                        bandwidth=BytesPerSecond(speeds[activity][1]),
                        owner=activity,
                    )
                    for activity, p in zip(Activity, row, strict=True)
                ),
            )
            for place, row in zip(places, rows, strict=True)
        ),
    )


def run_tasks_live(study: live.LiveStudy, spread: Spread = in_order) -> Data:
    """Run all schemes."""
    return live.race(job_of, study, spread)


def _saved(data: Data) -> Claim:
    return live.saved(
        "MED's time below MMTT-Uncertain's, all cycles of all tasks",
        np.nansum(data["med/cycle_s"], axis=1),
        np.nansum(data["mmtt/cycle_s"], axis=1),
        by(11.0),
        "trials differ by more than schemes do: about forty would be needed",
        "11 %",
    )


def claims_of_tasks_live(data: Data) -> list[Claim]:
    """The thesis's first claim, and how well times were foreseen."""
    names = {name: NAMES[name] for name in FULL.schemes}
    return [_saved(data), *live.foreseen(names, data)]


def claims_of_accuracies(data: Data) -> list[Claim]:
    """No claim of the thesis: what its time costs in accuracy."""

    def ends(scheme: str) -> Floats:
        return 100.0 * data[f"{scheme}/accuracy"][:, -1]

    apart = [
        Claim(
            what=f"Accuracy after all cycles, MED less {NAMES[rival]}, mean of tasks",
            printed="",
            ours=mean_of(ends("med") - ends(rival)),
            rule=near(0.0, 1.0, weaker=3.0),
            kind=Kind.OWN,
            unit="points",
            digits=1,
            why="who is halted has trained on less, and who never is on all",
        )
        for rival in ("mmtt", "mmtt-ideal")
    ]
    return [_saved(data), *apart]


LOOKS = {name: plots.LOOKS[name] for name in NAMES}
SHOWN = {name: NAMES[name] for name in FULL.schemes}
CAPTION = (
    "{cycles} cycles of {model} on {dataset}'s digits; accuracy: mean over tasks, time "
    "that of the first; mean and 95 % interval of {trials} trials. On the emulated "
    "testbed: {testbed}; otherwise simulated. Deadline {deadline_s:g} s. Right: each "
    "learner's cycle, predicted and measured."
)
draw: Callable[..., None] = partial(live.draw_race, SHOWN, LOOKS)
EXHIBIT = live.live_exhibit(
    QUICK,
    FULL,
    run_tasks_live,
    draw,
    partial(live.table_of_race, SHOWN),
    claims_of_tasks_live,
    title="three tasks on ten devices",
    caption=CAPTION,
)
ACCURACY: Exhibit[live.LiveStudy] = Exhibit(
    kind="Setting",
    name="accuracies",
    title="three tasks with real gradients",
    file="accuracies",
    caption=CAPTION,
    quick=ACCURACIES,
    full=ACCURACIES,
    run=run_tasks_live,
    draw=partial(live.draw_race, NAMES, LOOKS),
    table=partial(live.table_of_race, NAMES),
    claims=claims_of_accuracies,
)
