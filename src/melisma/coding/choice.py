"""When stage two begins, and how many workers stage one has.

The mean duration over scenarios, the same ones for every choice, is minimised over M₁
(where helpers wait) and T_comp. Waiting longer pays only if a worker finishes
meanwhile, so the best T_comp is a moment at which one does in some scenario: quantiles
of these moments are tried, then those around the best.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from melisma.coding.iteration import first_stage_s, genie_s, iterate_in_stages
from melisma.coding.prediction import History
from melisma.coding.two_stage import Coded, Helpers, TwoStage, two_stage
from melisma.errors import ConfigError
from melisma.maths.arrays import Floats

TRIED = 16  #: times tried for T_comp at once
SIZES = 12  #: values of M₁ tried at most
SCENARIOS = 24  #: drawn from a history to plan by
LOST = 10.0  #: what an iteration that is never decoded counts, in ideal iterations


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """A scheme, when its second stage begins, and what to expect of it."""

    scheme: TwoStage
    t_comp_s: float
    expected_s: float  #: mean duration over the scenarios


def choose(
    scenarios_s: ArrayLike,
    *,
    stragglers: int,
    speeds: ArrayLike,
    seed: int = 0,
    helpers: Helpers = "finished",
    trusting: bool = False,
    coded: Coded | None = None,
    first: Sequence[int] | None = None,
    partitions: int | None = None,
    upload_s: ArrayLike = 0.0,
) -> Plan:
    """The scheme with the least mean duration; its options are those of ``two_stage``.

    ``scenarios_s``: seconds of each worker for all of the data, scenarios × workers
    (inf: dead), as ``prediction.History.scenarios`` draws them. ``first``: numbers of
    those who start, where they are not to be chosen.
    """
    scenarios = np.asarray(scenarios_s, dtype=np.float64)
    if scenarios.ndim != 2 or not scenarios.size:
        raise ConfigError(f"scenarios of shape {scenarios.shape}: give a row for each")
    v = np.asarray(speeds, dtype=np.float64)
    M = v.size
    if first is not None or helpers == "finished":
        starts: list[Sequence[int] | None] = [first]
    else:
        fastest = np.argsort(-v, kind="stable").tolist()
        most = M - max(stragglers, 1)  # fewer helpers than s would not bear s
        sizes = np.unique(np.linspace(1, most, SIZES).astype(int)).tolist()
        starts = [order[:m] for m in sizes for order in (fastest, fastest[::-1])]
    plans = [
        timed(
            two_stage(
                workers=M,
                stragglers=stragglers,
                seed=seed,
                speeds=v,
                helpers=helpers,
                trusting=trusting,
                coded=coded,
                partitions=partitions,
                first=start,
            ),
            scenarios,
            upload_s,
        )
        for start in starts
    ]
    return min(plans, key=lambda plan: plan.expected_s)


def foreseen(
    history: History,
    rng: np.random.Generator,
    *,
    stragglers: int | None = None,
    seed: int = 0,
    helpers: Helpers = "finished",
    first: Sequence[int] | None = None,
    partitions: int | None = None,
    upload_s: ArrayLike = 0.0,
) -> Plan:
    """The plan of the next iteration, by nothing but what past ones have shown.

    ``stragglers`` are to be tolerated; None: as many as the history predicts, which may
    be too many, so that those who finished are trusted where they are the helpers.
    """
    predicted = stragglers is None
    s = history.stragglers() if stragglers is None else stragglers
    return choose(
        history.scenarios(SCENARIOS, rng),
        stragglers=min(s, history.usual.size - 1),
        speeds=history.speeds,
        seed=seed,
        helpers=helpers,
        trusting=predicted and helpers == "finished",
        coded="ring" if helpers == "ring" else "blocks",
        first=first,
        partitions=partitions,
        upload_s=upload_s,
    )


def timed(scheme: TwoStage, scenarios: Floats, upload_s: ArrayLike = 0.0) -> Plan:
    """The scheme with the T_comp that has the least mean duration."""
    bounds_s = np.array([genie_s(row, upload_s) for row in scenarios])
    if not (possible := np.isfinite(bounds_s)).any():
        raise ConfigError("every worker is dead in every scenario: nothing to plan for")
    scenarios, lost_s = scenarios[possible], LOST * float(bounds_s[possible].mean())

    def expected_s(t_comp_s: float) -> float:
        times = [
            iterate_in_stages(scheme, t_comp_s, row, upload_s).duration_s
            for row in scenarios
        ]
        return float(np.mean(np.where(np.isfinite(times), times, lost_s)))

    done_s = np.concatenate([first_stage_s(scheme, row, upload_s) for row in scenarios])
    times = np.unique(np.concatenate([[0.0], done_s[np.isfinite(done_s)]]))
    best, mean_s = _least(expected_s, times)
    return Plan(scheme=scheme, t_comp_s=best, expected_s=mean_s)


def _least(value: Callable[[float], float], points: Floats) -> tuple[float, float]:
    """The best of some points, then of those around it, and so on; and its value."""
    known: dict[int, float] = {}
    low, high = 0, points.size - 1
    while True:
        tried = np.unique(np.linspace(low, high, TRIED).astype(np.int64))
        for i in tried.tolist():
            if i not in known:
                known[i] = value(float(points[i]))
        best = min(known, key=lambda i: known[i])
        if high - low < TRIED:
            return float(points[best]), known[best]
        at = int(np.searchsorted(tried, best))
        low, high = int(tried[max(at - 1, 0)]), int(tried[min(at + 1, tried.size - 1)])
