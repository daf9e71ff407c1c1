"""Codes against one straggler, on six emulated devices of unlike speed."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from melisma.jobs import DataTable, Job, StragglingTable, TrainingTable
from melisma.units import Deadline
from melisma.views import plots

from . import live
from .claims import Claim, Kind, above, at_most, mean_of
from .csa_testbed import learners
from .kit import Data, Spread, in_order

NAMES = {
    "uncoded": "uncoded",
    "cyclic": "CR",
    "fractional": "FR",
    "TSDCFL": "TSDCFL, predicted",
    "ours": "ours, predicted",
}
#: A code, how many stragglers it is told of, and who helps.
CODES: dict[str, dict[str, Any]] = {
    "uncoded": {"code": "uncoded", "stragglers": 0},
    "cyclic": {"code": "cyclic", "stragglers": 1},
    "fractional": {"code": "fractional", "stragglers": 1},
    "TSDCFL": {"code": "two-stage", "helpers": "ring"},
    "ours": {"code": "two-stage"},
}
LOOKS = {
    "uncoded": plots.LOOKS["coded:uncoded"],
    "cyclic": plots.LOOKS["coded:cyclic"],
    "fractional": plots.LOOKS["coded:fractional"],
    "TSDCFL": plots.Look("#CC79A7", "*"),
    "ours": plots.LOOKS["coded:two-stage"],
}
#: The paper's 2, 2, 4, 4, 8 and 8 cores, a twentieth of each.
FULL = live.LiveStudy(
    schemes=("cyclic", "fractional", "TSDCFL"),
    shares=(0.1, 0.1, 0.2, 0.2, 0.4, 0.4),
    testbed=True,
    cycles=20,
    trials=3,
    deadline_s=60.0,
    samples=1_000,
    target=0.7,
    samples_per_s=1_700.0,
)
QUICK = replace(FULL, testbed=False, trials=10, schemes=tuple(NAMES))


def job_of(study: live.LiveStudy, scheme: str, trial: int) -> Job:
    """One straggler, drawn in each cycle, is eight times slower."""
    code = CODES[scheme]
    return Job(
        name="coded",
        scheme="coded",
        code=code["code"],
        stragglers=code.get("stragglers"),
        helpers=code.get("helpers", "finished"),
        model=study.model,
        cycles=study.cycles,
        deadline=Deadline(study.deadline_s),
        seed=trial,
        samples=study.samples,
        shard=5,
        noise=study.noise,
        data=DataTable(name=study.dataset),
        training=TrainingTable(rate=0.1, momentum=0.9),
        straggling=StragglingTable(number=1, slower=8.0),
        learners=learners(study),
    )


def run_codes_live(study: live.LiveStudy, spread: Spread = in_order) -> Data:
    """Run all codes."""
    return live.race(job_of, study, spread)


def claims_of_codes_live(data: Data) -> list[Claim]:
    """What Figures 5e and 6e say, after the iterations in which plans are begun."""
    names = [name for name in NAMES if live.is_raced(data, name)]
    cycle_s = {
        name: np.nanmean(data[f"{name}/cycle_s"][:, 5:], axis=1) for name in names
    }
    rivals = [
        live.saved(
            f"Iteration time of {NAMES[ours]} below {NAMES[rival]}'s, one straggler",
            cycle_s[ours],
            cycle_s[rival],
            above(0.0),
            "twenty iterations are a short history to predict from, and sockets take "
            "their time, too",
        )
        for ours in ("TSDCFL", "ours")
        for rival in ("uncoded", "cyclic", "fractional")
        if {ours, rival} <= {*names}
    ]
    spread_of_accuracy = [
        max(data[f"{name}/accuracy"][trial, -1] for name in names)
        - min(data[f"{name}/accuracy"][trial, -1] for name in names)
        for trial in range(len(cycle_s["TSDCFL"]))
    ]
    alike = Claim(
        what="Accuracy after all iterations, best code less worst",
        printed="the same",
        ours=mean_of(100.0 * np.array(spread_of_accuracy)),
        rule=at_most(1.0, weaker=3.0),
        kind=Kind.OWN,
        unit="points",
        digits=2,
        why="answers are rounded to float32 and summed in another order",
    )
    return [*rivals, alike]


draw: Callable[..., None] = partial(live.draw_race, NAMES, LOOKS, cycles=True)
EXHIBIT = live.live_exhibit(
    QUICK,
    FULL,
    run_codes_live,
    draw,
    partial(live.table_of_race, NAMES),
    claims_of_codes_live,
    title="codes and a straggler on six devices",
    caption="{cycles} iterations of {model} on {dataset}, {samples:,} samples; "
    "mean and 95 % interval of {trials} trials. On the emulated testbed: {testbed}; "
    "otherwise simulated.",
)
