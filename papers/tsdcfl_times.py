"""Iteration times of all schemes: Figures 5e and 6e of the two-stage paper."""

from dataclasses import dataclass
from itertools import product

import numpy as np
from matplotlib.figure import Figure

from melisma.coding import TwoStage, genie_s
from melisma.maths import Floats, mean_interval

from .claims import (
    Claim,
    Kind,
    Measured,
    at_least,
    at_most,
    exact,
    mean_of,
    near,
    of_kind,
)
from .kit import Data, Spread, in_order
from .tsdcfl_testbed import (
    ANEW,
    BED,
    ROWS,
    WORDS,
    Iterated,
    Predicted,
    Scheme,
    Testbed,
    busy_s,
    look_of,
    planned,
)

#: Means of so many groups of iterations are what intervals of ratios are made of.
GROUPS = 20
#: What the paper's claims are held against, and ours in its place.
TSDCFL, OURS = "TSDCFL, predicted", "ours, predicted"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimesStudy:
    """Every number that the table of iteration times depends on."""

    testbed: Testbed = BED
    late: tuple[int, ...] = (1, 2)
    iterations: int = 2_000
    seed: int = 2
    anew: int = ANEW  #: iterations that a predicted plan lasts at most


def times_of(todo: tuple[Scheme | Predicted, Floats]) -> Floats:
    """Of each iteration: time, busy share of workers, work in data sets, coded part."""
    scheme, every = todo
    rows = []
    for done in scheme.course(every):
        busy, end_s = busy_s(done), done.outcome.duration_s
        share = busy.sum() / (end_s * busy.size) if np.isfinite(end_s) else np.nan
        rows.append((end_s, share, (busy / done.whole_s).sum(), coded_part(done)))
    return np.array(rows)


def coded_part(done: Iterated) -> float:
    """Share of the partitions that a code is made for."""
    if not isinstance(done.code, TwoStage):
        return 1.0
    rest = done.outcome.rest
    return 0.0 if rest is None else rest.partitions / done.code.partitions


def run_times(study: TimesStudy, spread: Spread = in_order) -> Data:
    """Go through the same iterations by every scheme: late/name/what."""
    bed = study.testbed
    cases = list(product(ROWS, study.late))
    made = spread(planned, [(bed, name, late, study.anew) for name, late in cases])

    def times(dead: bool) -> list[Floats]:
        todo = [
            (scheme, bed.whole_s(late, study.iterations, study.seed, dead))
            for scheme, (_, late) in zip(made, cases, strict=True)
        ]
        return spread(times_of, todo)

    data: Data = {"late": np.array(study.late, dtype=np.float64)}
    for (name, late), slow, dead in zip(cases, times(False), times(True), strict=True):
        for column, what in enumerate(("time", "busy", "work", "coded")):
            data[f"{late}/{name}/{what}"] = slow[:, column]
        data[f"{late}/{name}/dead"] = dead[:, 0]
    for late in study.late:
        for how in ("time", "dead"):
            every = bed.whole_s(late, study.iterations, study.seed, how == "dead")
            data[f"{late}/genie/{how}"] = np.array([genie_s(row) for row in every])
    return data


def grouped(values: Floats) -> Floats:
    """Means of groups of iterations."""
    means: Floats = values.reshape(GROUPS, -1).mean(axis=1)
    return means


def less(ours: Floats, theirs: Floats) -> Measured:
    """How much less time in all, in %, over the same iterations."""
    return mean_of(100.0 * (1.0 - grouped(ours) / grouped(theirs)))


def draw_times(drawing: Figure, data: Data) -> None:
    """Draw one panel per number of stragglers: a bar for each scheme."""
    drawing.set_size_inches(9.6, 4.6)
    lates = data["late"].astype(int)
    panels = drawing.subplots(1, len(lates), sharey=True)
    names = ["genie", *ROWS]
    for ax, late in zip(panels, lates, strict=True):
        for row, name in enumerate(names):
            mean, half = mean_interval(data[f"{late}/{name}/time"])
            colour = "#333333" if name == "genie" else look_of(name).colour
            ax.barh(row, float(mean), 0.65, xerr=float(half), color=colour, capsize=2)
            end = float(mean + half) + 0.1
            ax.text(end, row, f"{mean:.2f}", va="center", fontsize=8)
        plural = "straggler" if late == 1 else "stragglers"
        ax.set(title=f"{late} {plural} in each iteration", xlim=(0, 10))
        ax.set(xlabel="mean iteration time (ideal iterations)")
        ax.grid(visible=False, axis="y")
    panels[0].set_yticks(range(len(names)), names)
    panels[0].set_ylim(len(names) - 0.5, -0.5)
    for ax in panels:
        ax.tick_params(axis="y", length=0)


def table_of_times(data: Data) -> list[list[str]]:
    """Mean iteration times, slow and dead; busy share and work with slow ones."""
    lates = data["late"].astype(int)
    heading = ["", *(f"{late} {how}" for late in lates for how in ("slow", "dead"))]
    heading += [f"{what}, {late} slow" for what in ("busy", "work") for late in lates]
    rows = [heading]
    for name, text in ({"genie": "genie's bound"} | ROWS).items():
        cells = [
            _time_text(data[f"{late}/{name}/{how}"])
            for late in lates
            for how in ("time", "dead")
        ]
        if name == "genie":
            cells += [""] * 2 * len(lates)
        else:
            busy = [data[f"{late}/{name}/busy"].mean() for late in lates]
            work = [data[f"{late}/{name}/work"].mean() for late in lates]
            cells += [f"{share:.0%}" for share in busy] + [f"{one:.2f}" for one in work]
        rows.append([text, *cells])
    return rows


def _time_text(times: Floats) -> str:
    if np.isinf(times).any():
        return "never"
    mean, half = mean_interval(times)
    return f"{mean:.3f} ± {half:.3f}"


#: What the prototype of this project's specification found: one and two stragglers.
PROTOTYPE = {
    "uncoded": (8.1, None),
    "CR": (4.81, 6.9),
    "FR": (3.19, 3.4),
    "hetero": (2.17, 3.2),
    "TSDCFL, told, M₁ = 4": (2.5, None),
    "TSDCFL, told, M₁ = 3": (None, 4.3),
    "TSDCFL, told, equal": (4.6, 8.9),
    "genie": (1.23, 1.49),
}
WHY_PROTOTYPE = {
    "FR": "the prototype's order of workers is not known; ours is random",
    "TSDCFL, told, equal": "the prototype's T_comp is not known; ours is the best one",
}


def claims_of_times(data: Data) -> list[Claim]:
    """Sections II and III; then what the prototype, which was told, found."""
    found = [_lower(data, late, other) for other in ("CR", "FR") for late in (1, 2)]
    found += [_lower(data, 2, "FR", f"TSDCFL, told, M₁ = {first}") for first in (3, 4)]
    found += [_tolerates(data, late) for late in (1, 2)]
    for late, other in product((1, 2), ("CR", "FR")):
        found += [_busier(data, late, other), _less_work(data, late, other)]
    found += [_fewer_coded(data, late) for late in (1, 2)]
    own = [_not_triggered(data)]
    for late in (1, 2):
        own += [_never_below_hetero(data, late), _ours(data, late)]
        for name, other in product(("ours, told", OURS), SAVED):
            own.append(_saved(data, late, name, other))
    for name, values in PROTOTYPE.items():
        for late, printed in zip((1, 2), values, strict=True):
            if printed is not None:
                own.append(_as_prototype(data, late, name, printed))
    return [*found, *of_kind(Kind.OWN, own)]


def _lower(data: Data, late: int, other: str, name: str = TSDCFL) -> Claim:
    waits = "what stage one leaves begins only after it, and few helpers share it"
    return Claim(
        what=f"Iteration time of {name}, below {other}'s, {WORDS[late]}",
        printed="lower",
        ours=less(data[f"{late}/{name}/time"], data[f"{late}/{other}/time"]),
        rule=at_least(0.0),
        kind=Kind.PAPER if name == TSDCFL else Kind.OWN,
        unit="%",
        digits=1,
        why=_why_predicted(data, late, other) if name == TSDCFL else waits,
    )


def _why_predicted(data: Data, late: int, other: str) -> str:
    """What it would be if it were told."""
    theirs = data[f"{late}/{other}/time"]
    saved = {
        name: less(data[f"{late}/TSDCFL, {name}/time"], theirs).value
        for name in ("predicted, s told", "told")
    }
    return (
        "more stragglers are predicted, and tolerated, than there are: workers are "
        f"taken to straggle independently. Told s as {other} is: "
        f"{saved['predicted, s told']:.1f} %; told speeds too: {saved['told']:.1f} %"
    )


def _tolerates(data: Data, late: int) -> Claim:
    return Claim(
        what=f"Iterations that {TSDCFL}, ends though {late} of 6 are dead",
        printed="all",
        ours=exact(100.0 * np.isfinite(data[f"{late}/{TSDCFL}/dead"]).mean()),
        rule=near(100.0, 0.0),
        unit="%",
        digits=1,
        why="fewer stragglers were predicted than there were",
    )


def _busier(data: Data, late: int, other: str) -> Claim:
    ours, theirs = (data[f"{late}/{name}/busy"] for name in (TSDCFL, other))
    return Claim(
        what=f"Workers' busy time, share of {TSDCFL}, above {other}'s, {WORDS[late]}",
        printed="higher utilisation",
        ours=mean_of(100.0 * (ours - theirs)),
        rule=at_least(0.0),
        unit="points",
        digits=1,
        why="reserved helpers wait for stage one, and its finished workers for the end",
    )


def _less_work(data: Data, late: int, other: str) -> Claim:
    return Claim(
        what=f"Work done, that of {TSDCFL}, below {other}'s, {WORDS[late]}",
        printed="reduced",
        ours=less(data[f"{late}/{TSDCFL}/work"], data[f"{late}/{other}/work"]),
        rule=at_least(0.0),
        unit="%",
        digits=1,
        why="copies are made for more stragglers than there are, and "
        f"{other} ends, and stops its slow workers, before all of its own are made",
    )


def _fewer_coded(data: Data, late: int) -> Claim:
    return Claim(
        what=f"Partitions that {TSDCFL}, codes, {WORDS[late]}",
        printed="fewer than K",
        ours=mean_of(100.0 * data[f"{late}/{TSDCFL}/coded"]),
        rule=at_most(99.0),
        unit="% of K",
        digits=1,
        why="the best T_comp is 0, so that stage one finishes nothing",
    )


def _not_triggered(data: Data) -> Claim:
    return Claim(
        what="Iterations without coding, told, M₁ = 4, one straggler",
        printed="1 in 3 (by hand)",
        ours=mean_of(100.0 * (data["1/TSDCFL, told, M₁ = 4/coded"] == 0)),
        rule=near(33.3, 2.0, weaker=5.0),
        unit="%",
        digits=1,
    )


def _never_below_hetero(data: Data, late: int) -> Claim:
    taken, theirs = (data[f"{late}/{name}/time"] for name in ("TSDCFL, told", "hetero"))
    return Claim(
        what=f"Time of TSDCFL, told, above heterogeneity-aware coding's, {WORDS[late]}",
        printed="never below (prototype)",
        ours=mean_of(100.0 * (grouped(taken) / grouped(theirs) - 1.0)),
        rule=at_least(0.0),
        unit="%",
        digits=1,
    )


def _ours(data: Data, late: int) -> Claim:
    mean = {1: 1.58, 2: 1.93}[late]
    return Claim(
        what=f"Iteration time of ours, told, {WORDS[late]}",
        printed=f"{mean} (prototype)",
        ours=mean_of(data[f"{late}/ours, told/time"]),
        rule=at_most(mean),
    )


#: Which scheme ours was expected to be below, what it is called, and by how many %.
SAVED = {"hetero": ("heterogeneity-aware coding's", 25.0), "FR": ("FR's", 50.0)}


def _saved(data: Data, late: int, name: str, other: str) -> Claim:
    whose, expected = SAVED[other]
    return Claim(
        what=f"Iteration time of {name}, below {whose}, {WORDS[late]}",
        printed=f"{expected:g} % (expected)",
        ours=less(data[f"{late}/{name}/time"], data[f"{late}/{other}/time"]),
        rule=at_least(expected, weaker=0.0),
        unit="%",
        digits=1,
        why="stragglers change in every iteration: the past says little of the next",
    )


def _as_prototype(data: Data, late: int, name: str, printed: float) -> Claim:
    shown = "the genie's bound" if name == "genie" else name
    return Claim(
        what=f"Iteration time of {shown}, {WORDS[late]}",
        printed=f"{printed} (prototype)",
        ours=mean_of(data[f"{late}/{name}/time"]),
        rule=near(printed, round(0.1 * printed, 3), weaker=round(0.2 * printed, 3)),
        why=WHY_PROTOTYPE.get(name, "the prototype's setting is not known in full"),
    )
