"""The testbed of the two-stage paper, in virtual time, and the schemes on it.

Six workers with 2, 2, 4, 4, 8 and 8 cores; in each iteration some, drawn at random, are
several times slower, or dead. Times are in units of the ideal iteration: nobody
straggles, and all work is shared out perfectly.

Schemes are *told* how many straggle, and the speeds if their loads follow them. Schemes
that are *predicted* know how many workers there are, and what they have seen.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

import numpy as np

from melisma.coding import (
    Code,
    Helpers,
    History,
    Outcome,
    Plan,
    TwoStage,
    choose,
    cyclic,
    first_stage_s,
    foreseen,
    fractional,
    hetero,
    iterate,
    iterate_in_stages,
    timed,
    two_stage,
    uncoded,
)
from melisma.maths import Floats
from melisma.views import plots

#: Random choices of who starts, in the paper's scheme: one after the other in turn.
STARTS = 8
#: After so long a stage a scheme that predicts goes on to the next.
GIVEN_UP = 100.0
#: Stream of random numbers by which futures are drawn from a history.
FUTURES = 77


@dataclass(frozen=True, slots=True, kw_only=True)
class Testbed:
    """Every number of the machines."""

    cores: tuple[int, ...] = (2, 2, 4, 4, 8, 8)
    slower: float = 8.0  #: how many times a straggler is
    jitter: float = 0.05  #: standard deviation of the logarithm of speeds
    planned: int = 100  #: iterations by which T_comp and M₁ are chosen
    patience: float = 1.15  #: T_comp where stage one is waited for, of its usual end

    @property
    def speeds(self) -> Floats:
        """Parts of the data per ideal iteration."""
        cores = np.array(self.cores, dtype=np.float64)
        speeds: Floats = cores / cores.sum()
        return speeds

    def whole_s(self, late: int, iterations: int, seed: int, dead: bool) -> Floats:
        """Each worker's time for all of the data, iterations × workers.

        The dead straggle in the same iterations as the slow.
        """
        rng, M = np.random.default_rng([seed, late]), len(self.cores)
        noise = self.jitter * rng.standard_normal((iterations, M))
        whole_s = np.exp(noise) / self.speeds
        struck = rng.permuted(np.tile(np.arange(M) < late, (iterations, 1)), axis=1)
        return np.where(struck, whole_s * (inf if dead else self.slower), whole_s)


class Iterated(NamedTuple):
    """One iteration."""

    code: Code
    outcome: Outcome
    whole_s: Floats  #: of each worker, in the order of the code
    t_comp_s: float = 0.0  #: when its second stage began, if it has two


@dataclass(frozen=True, slots=True, eq=False)
class Scheme:
    """Codes, or plans of two stages, that are taken in turn."""

    ways: Sequence[Code | Plan]
    shuffled: bool = False  #: workers in random order: the code does not know speeds

    def course(self, times: Iterable[Floats], seed: int = 9) -> Iterator[Iterated]:
        """Go through iterations; ``times`` are the workers' for all of the data."""
        for number, whole_s in enumerate(times):
            yield self.iteration(number, whole_s, seed)

    def iteration(self, number: int, whole_s: Floats, seed: int = 9) -> Iterated:
        """Go through one iteration; the seed is that of the order of workers."""
        way = self.ways[number % len(self.ways)]
        if isinstance(way, Plan):
            outcome = iterate_in_stages(way.scheme, way.t_comp_s, whole_s)
            return Iterated(way.scheme, outcome, whole_s, way.t_comp_s)
        if self.shuffled:
            whole_s = np.random.default_rng([seed, number]).permutation(whole_s)
        return Iterated(way, iterate(way, whole_s), whole_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Two stages, planned by a history of what this course has seen, as in training.

    In the first iteration all start with equal loads, and stage two begins when half of
    them are done. A plan lasts for as many iterations as came before it, and no more
    than ``anew``: making one may take a second.
    """

    workers: int
    helpers: Helpers
    anew: int
    stragglers: int | None = None  #: to be tolerated; None: as history predicts

    def course(self, times: Iterable[Floats], seed: int = 9) -> Iterator[Iterated]:
        """Go through iterations from an empty history."""
        history, rng = History(self.workers), np.random.default_rng([seed, FUTURES])
        stage = two_stage(workers=self.workers, stragglers=1)
        t_comp_s, until = 0.0, 1
        for number, whole_s in enumerate(times):
            if number == 0:
                half_s = np.sort(first_stage_s(stage, whole_s))[(self.workers - 1) // 2]
                t_comp_s = min(float(half_s), GIVEN_UP)
            elif number == until:
                plan = foreseen(
                    history, rng, stragglers=self.stragglers, helpers=self.helpers
                )
                stage, t_comp_s = plan.scheme, plan.t_comp_s
                until += min(number, self.anew)
            outcome = iterate_in_stages(stage, t_comp_s, whole_s)
            done = Iterated(stage, outcome, whole_s, t_comp_s)
            yield done
            _see(history, done)


def _see(history: History, done: Iterated) -> None:
    """Take in when workers answered; who waited for stage two, from its beginning."""
    outcome, K = done.outcome, done.code.partitions
    share, answered_s = done.code.loads / K, outcome.answered_s.copy()
    ended_s = np.full(share.size, min(outcome.duration_s, done.t_comp_s + GIVEN_UP))
    if (rest := outcome.rest) is not None and outcome.second_s is not None:
        waited = rest.helpers[share[rest.helpers] == 0]
        share[waited] = rest.loads[waited] / K
        answered_s[waited] = outcome.second_s[waited] - done.t_comp_s
        ended_s[waited] -= done.t_comp_s
    history.see(share, answered_s, ended_s)


def busy_s(done: Iterated) -> Floats:
    """Time that each worker computed, until the iteration ended."""
    end_s, outcome = done.outcome.duration_s, done.outcome
    busy = np.where(done.code.loads > 0, np.minimum(outcome.answered_s, end_s), 0.0)
    if (rest := outcome.rest) is not None and outcome.second_s is not None:
        helping = rest.helpers[rest.loads[rest.helpers] > 0]
        helped_s = np.minimum(outcome.second_s[helping], end_s) - done.t_comp_s
        busy[helping] += np.maximum(helped_s, 0.0)
    return np.where(np.isinf(done.whole_s), 0.0, busy)


def reserved(
    bed: Testbed, late: int, first: int, equal: bool = False
) -> list[TwoStage]:
    """The paper's first stages: so many workers, drawn at random, start."""
    return [
        two_stage(
            workers=len(bed.cores),
            stragglers=late,
            speeds=None if equal else bed.speeds,
            helpers="reserved",
            first=first,
            seed=seed,
        )
        for seed in range(STARTS)
    ]


def best_timed(bed: Testbed, late: int, firsts: Sequence[int], equal: bool) -> Scheme:
    """The paper's scheme with the M₁ and T_comp that have the least mean time."""
    scenarios = bed.whole_s(late, bed.planned, 1, dead=False)[: bed.planned * 2 // 5]
    every = [
        [timed(stage, scenarios) for stage in reserved(bed, late, first, equal)]
        for first in firsts
    ]
    means_s = [np.mean([plan.expected_s for plan in plans]) for plans in every]
    return Scheme(every[int(np.argmin(means_s))])


def waited_for(bed: Testbed, late: int, first: int) -> Scheme:
    """The paper's scheme in which stage one is given time for its usual end."""
    plans = []
    for stage in reserved(bed, late, first):
        usual_s = float((stage.loads / stage.partitions / bed.speeds).max())
        t_comp_s = bed.patience * usual_s
        plans.append(Plan(scheme=stage, t_comp_s=t_comp_s, expected_s=np.nan))
    return Scheme(plans)


def chosen(bed: Testbed, late: int, helpers: str) -> Scheme:
    """A two-stage scheme of which all is chosen, who starts too."""
    planning = bed.whole_s(late, bed.planned, 1, dead=False)
    options: dict[str, Any] = {"stragglers": late, "speeds": bed.speeds}
    return Scheme([choose(planning, helpers=helpers, **options)])  # type: ignore[arg-type]


def _known(make: Callable[..., Code]) -> Callable[[Testbed, int], Scheme]:
    def scheme(bed: Testbed, late: int) -> Scheme:
        options = {"workers": len(bed.cores), "stragglers": late}
        return Scheme([make(**options, speeds=bed.speeds)])

    return scheme


def _equal(make: Callable[..., Code]) -> Callable[[Testbed, int], Scheme]:
    def scheme(bed: Testbed, late: int) -> Scheme:
        code = make(workers=len(bed.cores), stragglers=late)
        return Scheme([code], shuffled=True)

    return scheme


#: Name, what it is, and how it is made for a number of stragglers, which it is told.
TOLD: dict[str, tuple[str, Callable[[Testbed, int], Scheme]]] = {
    "uncoded": ("uncoded, loads by speed", _known(uncoded)),
    "CR": ("cyclic repetition, equal loads", _equal(cyclic)),
    "FR": ("fractional repetition, equal loads", _equal(fractional)),
    "FR by speed": ("fractional repetition, loads by speed", _known(fractional)),
    "hetero": ("heterogeneity-aware", _known(hetero)),
    "TSDCFL, told": (
        "two-stage as in the paper, told s and speeds: who starts drawn at random, M₁ "
        "and T_comp the best",
        lambda bed, late: best_timed(bed, late, range(2, len(bed.cores)), False),
    ),
    "TSDCFL, told, M₁ = 3": (
        "… M₁ = 3, T_comp after stage one's usual end",
        lambda bed, late: waited_for(bed, late, 3),
    ),
    "TSDCFL, told, M₁ = 4": (
        "… M₁ = 4, likewise",
        lambda bed, late: waited_for(bed, late, 4),
    ),
    "TSDCFL, told, equal": (
        "… M₁ = 4, equal loads in both stages, T_comp the best",
        lambda bed, late: best_timed(bed, late, [4], True),
    ),
    "TSDCFL, told, chosen": (
        "… M₁, T_comp and who starts the best",
        lambda bed, late: chosen(bed, late, "reserved"),
    ),
    "ours, told": (
        "two-stage, ours, told s and speeds: all start, the finished help",
        lambda bed, late: chosen(bed, late, "finished"),
    ),
}
#: Name, what it is, who helps, and whether it is told how many straggle.
PREDICTED: dict[str, tuple[str, Helpers, bool]] = {
    "TSDCFL, predicted": (
        "two-stage as in the paper, predicted: s, speeds, who starts and T_comp from "
        "its own history",
        "ring",
        False,
    ),
    "TSDCFL, predicted, s told": ("… likewise, but told s as CR and FR", "ring", True),
    "ours, predicted": (
        "two-stage, ours, predicted: s, speeds and T_comp from its own history",
        "finished",
        False,
    ),
    "ours, predicted, s told": ("… likewise, but told s", "finished", True),
}
_TEXTS = {name: text for name, (text, _) in TOLD.items()}
_TEXTS |= {name: text for name, (text, _, _) in PREDICTED.items()}
#: Name and what it is, of all: ours below the paper's, the predicted below the told.
ROWS = dict(sorted(_TEXTS.items(), key=lambda row: row[0].startswith("ours")))

LOOKS = {
    "uncoded": plots.LOOKS["coded:uncoded"],
    "CR": plots.LOOKS["coded:cyclic"],
    "FR": plots.LOOKS["coded:fractional"],
    "FR by speed": plots.LOOKS["coded:fractional"],
    "hetero": plots.LOOKS["coded:hetero"],
    "ours": plots.LOOKS["coded:two-stage"],
}
#: The paper's own, however it is set.
TSDCFL = plots.Look("#CC79A7", "*")


def look_of(scheme: str) -> plots.Look:
    """Colour and marker of a scheme."""
    return LOOKS.get(scheme.split(",")[0], TSDCFL)


def planned(todo: tuple[Testbed, str, int, int]) -> Scheme | Predicted:
    """Make a scheme, which may take a while if it is told what to plan for."""
    bed, name, late, anew = todo
    if name in TOLD:
        return TOLD[name][1](bed, late)
    _, helpers, s_told = PREDICTED[name]
    return Predicted(
        workers=len(bed.cores),
        helpers=helpers,
        anew=anew,
        stragglers=late if s_told else None,
    )


BED = Testbed()
#: Iterations that a predicted plan lasts at most, in the exhibits.
ANEW = 80
WORDS = {1: "one straggler", 2: "two stragglers"}
