"""Who races: every algorithm as changes of a job, and what is tuned of it.

Three rates of learning, two amounts of work in a round (ours: the deadlines by which
that much is done) and settings of its own make twelve points at most, for ours and
theirs alike.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import msgspec
import numpy as np
from scipy.optimize import brentq

from melisma.jobs import (
    AggregationTable,
    AsynchronousTable,
    Job,
    OptionTable,
    ParticipationTable,
)
from melisma.learning import Correction, Late, ServerRule, Weights
from melisma.schemes import TakesPart
from melisma.units import Deadline

from .peers_settings import LeagueStudy, Race


class Point(NamedTuple):
    """What is tuned of an algorithm."""

    own: int  #: which of its own settings
    work: int  #: which of two amounts of work in a round
    rate: float  #: of learning


#: Of a job, by a race and a point.
Changes = Callable[[Race, LeagueStudy, Point], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Entrant:
    """An algorithm."""

    name: str
    changes: Changes
    own: tuple[str, ...] = ("",)  #: its own settings, as they are told
    works: tuple[str, ...] = ("whole", "part")
    ours: bool = False

    def points(self, study: LeagueStudy) -> list[Point]:
        """Return what it may choose from."""
        own, works = range(len(self.own)), range(len(self.works))
        return [Point(*point) for point in product(own, works, study.rates)]

    def told(self, point: Point) -> str:
        """Say what was chosen."""
        facts = (self.own[point.own], self.works[point.work], f"{point.rate:g}")
        return ", ".join(filter(None, facts))

    def enter(self, race: Race, study: LeagueStudy, point: Point) -> Job:
        """Return its job, which ends at the horizon."""
        changes = self.changes(race, study, point)
        job = msgspec.structs.replace(race.job, **changes)
        training = msgspec.structs.replace(job.training, rate=point.rate)
        stop = f"time >= {study.horizon_s} s"
        return msgspec.structs.replace(job, training=training, cycles=10**6, stop=stop)


def _work(race: Race, study: LeagueStudy, point: Point) -> dict[str, Any]:
    """What a learner does in a round: as printed, or the study's other."""
    times, job = study.works[point.work], race.job
    changes: dict[str, Any] = {}
    if race.clock_s is not None:  # a round's length goes with it
        changes["deadline"] = Deadline(balanced_s(race, times))
    if job.batches is not None:
        return changes | {"batches": max(1, round(job.batches * times))}
    return changes | {"steps": max(1, round(job.steps * times))}


def _waits(race: Race) -> dict[str, Any]:
    """Everybody is waited for; or, where a round has a length, all halt."""
    if race.clock_s is None:
        return {"scheme": "fedavg", "late": Late.WAIT}
    return {"scheme": "fedavg", "late": Late.HALT}


def _by_half(race: Race, study: LeagueStudy, point: Point) -> Deadline:
    """When half of the learners are done, and some time more."""
    train_s = study.works[point.work] * (race.whole_s - race.fixed_s)
    return Deadline(1.1 * float(np.median(race.fixed_s + train_s)))


def fedavg(race: Race, study: LeagueStudy, point: Point) -> dict[str, Any]:
    """Waits for all."""
    return _waits(race) | _work(race, study, point)


def dropping(race: Race, study: LeagueStudy, point: Point) -> dict[str, Any]:
    """Does without who is not done by the deadline: that of the median learner."""
    late: dict[str, Any] = {"late": Late.DROP}
    if race.clock_s is None:
        late["deadline"] = _by_half(race, study, point)
    return _waits(race) | _work(race, study, point) | late


def fedavgm(race: Race, study: LeagueStudy, point: Point) -> dict[str, Any]:
    """FedAvg with momentum on the server."""
    table = AggregationTable(momentum=(0.5, 0.9)[point.own])
    return _waits(race) | _work(race, study, point) | {"aggregation": table}


def fedadam(race: Race, study: LeagueStudy, point: Point) -> dict[str, Any]:
    """FedOpt's Adam."""
    table = AggregationTable(server=ServerRule.ADAM, rate=(0.003, 0.03)[point.own])
    return _waits(race) | _work(race, study, point) | {"aggregation": table}


def fedprox(race: Race, study: LeagueStudy, point: Point) -> dict[str, Any]:
    """Partial work by the time the median learner takes, and a pull back."""
    mu = (0.01, 1.0)[point.own]
    training = msgspec.structs.replace(race.job.training, proximal=mu)
    changes = {"scheme": "fedavg", "late": Late.HALT, "training": training}
    changes |= _work(race, study, point)
    if race.clock_s is None:
        changes["deadline"] = _by_half(race, study, point)
    return changes


def fednova(race: Race, study: LeagueStudy, point: Point) -> dict[str, Any]:
    """Normalised averaging of partial or of all work."""
    table = {"aggregation": AggregationTable(weights=Weights.FEDNOVA)}
    if race.clock_s is not None:
        return _waits(race) | _work(race, study, point) | table
    halts = {"late": Late.HALT, "deadline": _by_half(race, study, point)}
    both = (halts, {"late": Late.WAIT})[point.own]
    return {"scheme": "fedavg"} | _work(race, study, point) | both | table


def scaffold(race: Race, study: LeagueStudy, point: Point) -> dict[str, Any]:
    """Corrected gradients."""
    table = AggregationTable(correction=Correction.SCAFFOLD)
    return _waits(race) | _work(race, study, point) | {"aggregation": table}


def chosen(rule: TakesPart) -> Changes:
    """Take FedAvg with who takes part chosen by a rule."""

    def changes(race: Race, study: LeagueStudy, point: Point) -> dict[str, Any]:
        some = race.job.participation.learners or max(2, study.learners // 10)
        table = ParticipationTable(rule=rule, learners=some)
        late = race.clock_s is None
        return (
            _work(race, study, point)
            | {"scheme": "fedavg", "participation": table}
            | {"late": Late.WAIT if late else Late.HALT}
        )

    return changes


def _flow(
    race: Race, study: LeagueStudy, point: Point, scheme: str, **table: Any
) -> dict[str, Any]:
    updates = max(1, round(study.learners * study.every))
    return _work(race, study, point) | {
        "scheme": f"async:{scheme}",
        "deadline": Deadline(1e9),
        "asynchronous": AsynchronousTable(updates=updates, **table),
    }


def fedasync(race: Race, study: LeagueStudy, point: Point) -> dict[str, Any]:
    """Mixes every update in."""
    return _flow(race, study, point, "fedasync", mixing=(0.6, 0.1)[point.own])


def fedbuff(race: Race, study: LeagueStudy, point: Point) -> dict[str, Any]:
    """A buffer of one, or of a third of the learners."""
    buffer = (1, max(2, study.learners // 3))[point.own]
    rate = (1 / study.learners, 1.0)[point.own]
    table = {"aggregation": AggregationTable(rate=rate)}
    return _flow(race, study, point, "fedbuff", buffer=buffer) | table


def fedcompass(race: Race, study: LeagueStudy, point: Point) -> dict[str, Any]:
    """Groups that arrive together."""
    return _flow(race, study, point, "fedcompass", least=(0.2, 0.05)[point.own])


def ringmaster(race: Race, study: LeagueStudy, point: Point) -> dict[str, Any]:
    """Adds every change."""
    rate = study.outer[point.own] / study.learners
    limit = {"staleness_at_most": 2 * study.learners}
    return _flow(race, study, point, "ringmaster", **limit) | {
        "aggregation": AggregationTable(rate=rate)
    }


def ringleader(race: Race, study: LeagueStudy, point: Point) -> dict[str, Any]:
    """The table of all learners' changes."""
    rate = study.outer[point.own] / study.learners
    table = {"aggregation": AggregationTable(rate=rate)}
    return _flow(race, study, point, "ringleader") | table


def balanced_s(race: Race, times: float) -> float:
    """T*: when so many rounds' work of all is done, if nobody idles; or the clock's."""
    train_s = race.whole_s - race.fixed_s
    if race.clock_s is not None:
        fixed_s = float(race.fixed_s.mean())
        return fixed_s + times * (race.clock_s - fixed_s)

    def left(time_s: float) -> float:
        done = np.maximum(time_s - race.fixed_s, 0.0) / train_s
        return times * len(train_s) - float(done.sum())

    return float(brentq(left, 0.0, float((race.fixed_s + times * train_s).max())))


#: Outer steps of ours: two where deadlines are chosen from, else four.
_STEPS = ("Nesterov", "FedNova, Nesterov")
_ALL_STEPS = (*_STEPS, "", "FedNova")


def _stepped(study: LeagueStudy, step: str) -> dict[str, Any]:
    """The mean or FedNova's, and none or Nesterov's outer step, as DiLoCo has it."""
    table: dict[str, Any] = {}
    if "Nesterov" in step:
        table = {"server": ServerRule.NESTEROV, "rate": 0.7}
        table["momentum"] = study.momentum
    if "FedNova" in step:
        table["weights"] = Weights.FEDNOVA
    return {"aggregation": AggregationTable(**table)}


def csa(race: Race, study: LeagueStudy, point: Point) -> dict[str, Any]:
    """Work by speed until T* of either amount of work."""
    deadline_s = balanced_s(race, study.works[point.work])
    changes: dict[str, Any] = {
        "scheme": "csa",
        "deadline": Deadline(deadline_s),
        "late": Late.HALT,
        "batches": None,
    }
    if race.clock_s is None:  # who cannot do all that it has may do less
        changes["late_at_most"] = 0.45
    return _stepped(study, _STEPS[point.own]) | changes


def dab(race: Race, study: LeagueStudy, point: Point) -> dict[str, Any]:
    """As many samples as each can train on once by T*."""
    return _stepped(study, _STEPS[point.own]) | {
        "scheme": "dab",
        "deadline": Deadline(balanced_s(race, study.works[point.work])),
        "late": Late.HALT,
        "steps": 1,
        "batches": None,
    }


def auto(race: Race, study: LeagueStudy, point: Point) -> dict[str, Any]:
    """The run chooses its deadlines."""
    return _stepped(study, _ALL_STEPS[point.own]) | {
        "scheme": "csa",
        "deadline": Deadline.of("auto"),
        "late": Late.HALT,
        "batches": None,
    }


#: The largest first: what is listed is what updates may become.
_WIRES = ("fp32", "fp16", "int8", "int4", "top-k 10 %", "top-k 1 %")
_DOWN = _WIRES[:4]  #: and the model


def csa_options(race: Race, study: LeagueStudy, point: Point) -> dict[str, Any]:
    """csa, which chooses as well how each learner's model and change travel.

    Its T* is that of models in eight bits, a quarter of their time on the wire.
    """
    options = tuple(
        OptionTable(down=up if up in _DOWN else "int8", up=up) for up in _WIRES
    )
    saved_s = 0.75 * (race.fixed_s - race.samples_s)
    small = race._replace(
        fixed_s=race.fixed_s - saved_s, whole_s=race.whole_s - saved_s
    )
    return csa(small, study, point) | {"scheme": "csa-options", "options": options}


def bcrs(race: Race, study: LeagueStudy, point: Point) -> dict[str, Any]:
    """FedAvg with as much of each change as travels in the slowest one's time."""
    base = (1, 10)[point.own]
    shares = [share for share in (100, 50, 25, 10, 5, 2, 1) if share >= base]
    options = tuple(OptionTable(up=f"top-k {share} %") for share in shares)
    passes = round(race.job.steps * study.works[point.work])
    name = {1: "bcrs", 2: "bcrs_twice"}[passes]
    return {
        "scheme": f"melisma_papers.peers_schemes:{name}",
        "deadline": Deadline(1e6),
        "late": Late.WAIT,
        "options": options,
    }


def heterofl(race: Race, study: LeagueStudy, point: Point) -> dict[str, Any]:
    """Half of the width for the slower half; or half and a quarter for two thirds."""
    widths = ((None, "width 0.5"), (None, "width 0.5", "width 0.25"))[point.own]
    place = np.argsort(np.argsort(race.whole_s)) * len(widths) // study.learners
    learners = tuple(
        msgspec.structs.replace(learner, submodel=widths[level])
        for learner, level in zip(race.job.learners, place.tolist(), strict=True)
    )
    return fedavg(race, study, point) | {"learners": learners}


_TIMES = ("T* of whole", "T* of part")
_ALL = (
    Entrant("FedAvg", fedavg),
    Entrant("FedAvg, drops", dropping),
    Entrant("FedAvgM", fedavgm, ("momentum 0.5", "momentum 0.9")),
    Entrant("FedAdam", fedadam, ("server 0.003", "server 0.03")),
    Entrant("FedProx", fedprox, ("μ 0.01", "μ 1")),
    Entrant("FedNova", fednova, ("halts", "waits")),
    Entrant("SCAFFOLD", scaffold),
    Entrant("TiFL", chosen(TakesPart.TIERS)),
    Entrant("Oort", chosen(TakesPart.OORT)),
    Entrant("FedAsync", fedasync, ("mixing 0.6", "mixing 0.1")),
    Entrant("FedBuff", fedbuff, ("buffer 1", "buffer K/3")),
    Entrant("FedCompass", fedcompass, ("least 0.2", "least 0.05")),
    Entrant("Ringmaster", ringmaster, ("smaller η", "greater η")),
    Entrant("Ringleader", ringleader, ("smaller η", "greater η")),
    Entrant("csa", csa, _STEPS, _TIMES, ours=True),
    Entrant("dab", dab, _STEPS, _TIMES, ours=True),
    Entrant("BCRS", bcrs, ("base 1 %", "base 10 %")),
    Entrant("HeteroFL", heterofl, ("two widths", "three widths")),
    Entrant("csa-options", csa_options, _STEPS, _TIMES, ours=True),
    Entrant("csa, auto", auto, _ALL_STEPS, ("",), ours=True),
)
ENTRANTS = {entrant.name: entrant for entrant in _ALL}
