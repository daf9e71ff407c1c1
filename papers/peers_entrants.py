"""Who races: every algorithm as changes of a job, with two settings of its own.

With three rates of learning that makes six points for each, ours and theirs alike.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from scipy.optimize import brentq

from melisma.jobs import (
    AggregationTable,
    AsynchronousTable,
    Job,
    ParticipationTable,
)
from melisma.learning import Correction, Late, ServerRule, Weights
from melisma.schemes import TakesPart
from melisma.units import Deadline

from .peers_settings import LeagueStudy, Race

#: Of a job, by a race and one of the entrant's two settings.
Changes = Callable[[Race, LeagueStudy, int], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Entrant:
    """An algorithm."""

    name: str
    told: str  #: what is tuned of it, beside the rate
    ours: bool
    changes: Changes

    def enter(self, race: Race, study: LeagueStudy, own: int, rate: float) -> Job:
        """Return its job, which ends at the horizon."""
        changes = self.changes(race, study, own)
        job = msgspec.structs.replace(race.job, **changes)
        training = msgspec.structs.replace(job.training, rate=rate, **_local(changes))
        return msgspec.structs.replace(
            job,
            training=training,
            cycles=10**6,
            stop=f"time >= {study.horizon_s} s",
        )


def _local(changes: dict[str, Any]) -> dict[str, Any]:
    training = changes.get("training")
    return {} if training is None else {"proximal": training.proximal}


def _work(race: Race, study: LeagueStudy, own: int) -> dict[str, Any]:
    """What a learner does in a round: as printed, or the study's other."""
    times, job = study.works[own], race.job
    if job.batches is not None:
        return {"batches": max(1, round(job.batches * times))}
    return {"steps": max(1, round(job.steps * times))}


def _waits(race: Race) -> dict[str, Any]:
    """Everybody is waited for; or, where a round has a length, all halt."""
    if race.job.participation.learners is None:
        return {"scheme": "fedavg", "late": Late.WAIT}
    return {"scheme": "fedavg", "late": Late.HALT}


def fedavg(race: Race, study: LeagueStudy, own: int) -> dict[str, Any]:
    """Waits for all."""
    return _waits(race) | _work(race, study, own)


def dropping(race: Race, study: LeagueStudy, own: int) -> dict[str, Any]:
    """Does without who is not done by the deadline: that of the median learner."""
    deadline_s = float(np.median(race.whole_s)) * 1.1
    late: dict[str, Any] = {"late": Late.DROP}
    if race.job.participation.learners is None:
        late["deadline"] = Deadline(deadline_s)
    return _waits(race) | _work(race, study, own) | late


def fedavgm(race: Race, study: LeagueStudy, own: int) -> dict[str, Any]:
    """FedAvg with momentum on the server."""
    table = AggregationTable(momentum=(0.5, 0.9)[own])
    return _waits(race) | {"aggregation": table}


def fedadam(race: Race, study: LeagueStudy, own: int) -> dict[str, Any]:
    """FedOpt's Adam."""
    table = AggregationTable(server=ServerRule.ADAM, rate=(0.003, 0.03)[own])
    return _waits(race) | {"aggregation": table}


def fedprox(race: Race, study: LeagueStudy, own: int) -> dict[str, Any]:
    """Partial work by the time the median learner takes, and a pull back."""
    mu = (0.01, 1.0)[own]
    training = msgspec.structs.replace(race.job.training, proximal=mu)
    changes = {"scheme": "fedavg", "late": Late.HALT, "training": training}
    if race.job.participation.learners is None:
        changes["deadline"] = Deadline(float(np.median(race.whole_s)) * 1.1)
    return changes


def fednova(race: Race, study: LeagueStudy, own: int) -> dict[str, Any]:
    """Normalised averaging of partial or of all work."""
    table = {"aggregation": AggregationTable(weights=Weights.FEDNOVA)}
    if race.job.participation.learners is not None:
        return _waits(race) | _work(race, study, own) | table
    late = Deadline(float(np.median(race.whole_s)) * 1.1)
    both = ({"late": Late.HALT, "deadline": late}, {"late": Late.WAIT})[own]
    return {"scheme": "fedavg"} | both | table


def scaffold(race: Race, study: LeagueStudy, own: int) -> dict[str, Any]:
    """Corrected gradients."""
    table = AggregationTable(correction=Correction.SCAFFOLD)
    return _waits(race) | _work(race, study, own) | {"aggregation": table}


def chosen(rule: TakesPart) -> Changes:
    """Take FedAvg with who takes part chosen by a rule."""

    def changes(race: Race, study: LeagueStudy, own: int) -> dict[str, Any]:
        some = race.job.participation.learners or max(2, study.learners // 10)
        table = ParticipationTable(rule=rule, learners=some)
        late = race.job.participation.learners is None
        return (
            _work(race, study, own)
            | {"scheme": "fedavg", "participation": table}
            | {"late": Late.WAIT if late else Late.HALT}
        )

    return changes


def _flow(study: LeagueStudy, scheme: str, **table: Any) -> dict[str, Any]:
    updates = max(1, study.learners * study.every)
    return {
        "scheme": f"async:{scheme}",
        "deadline": Deadline(1e9),
        "asynchronous": AsynchronousTable(updates=updates, **table),
    }


def fedasync(race: Race, study: LeagueStudy, own: int) -> dict[str, Any]:
    """Mixes every update in."""
    return _flow(study, "fedasync", mixing=(0.6, 0.1)[own])


def fedbuff(race: Race, study: LeagueStudy, own: int) -> dict[str, Any]:
    """A buffer of one, or of a third of the learners."""
    buffer = (1, max(2, study.learners // 3))[own]
    rate = (1 / study.learners, 1.0)[own]
    table = {"aggregation": AggregationTable(rate=rate)}
    return _flow(study, "fedbuff", buffer=buffer) | table


def fedcompass(race: Race, study: LeagueStudy, own: int) -> dict[str, Any]:
    """Groups that arrive together."""
    return _flow(study, "fedcompass", least=(0.2, 0.05)[own])


def ringmaster(race: Race, study: LeagueStudy, own: int) -> dict[str, Any]:
    """Adds every change."""
    rate = study.outer[own] / study.learners
    limit = {"staleness_at_most": 2 * study.learners}
    return _flow(study, "ringmaster", **limit) | {
        "aggregation": AggregationTable(rate=rate)
    }


def ringleader(race: Race, study: LeagueStudy, own: int) -> dict[str, Any]:
    """The table of all learners' changes."""
    rate = study.outer[own] / study.learners
    table = {"aggregation": AggregationTable(rate=rate)}
    return _flow(study, "ringleader") | table


def balanced_s(race: Race) -> float:
    """T*: when all learners have done what a round asks of all, if nobody idles."""
    train_s = race.whole_s - race.fixed_s

    def left(time_s: float) -> float:
        done = np.maximum(time_s - race.fixed_s, 0.0) / train_s
        return len(train_s) - float(done.sum())

    return float(brentq(left, 0.0, float(race.whole_s.max())))


def _by(race: Race, own: int) -> Deadline:
    """A deadline: T*, or when the slowest has done what a round asks of it."""
    return Deadline((balanced_s(race), float(race.whole_s.max()))[own])


def _soon(race: Race, own: int) -> Deadline:
    """A deadline: T*, or a quarter of it."""
    return Deadline(balanced_s(race) * (1.0, 0.25)[own])


def _planned(race: Race, own: int) -> dict[str, Any]:
    return {
        "scheme": "csa",
        "deadline": _by(race, own),
        "late": Late.HALT,
        "late_at_most": 0.2,
        "batches": None,
    }


def csa(race: Race, study: LeagueStudy, own: int) -> dict[str, Any]:
    """Work by speed, until a deadline."""
    return _planned(race, own)


def csa_nesterov(race: Race, study: LeagueStudy, own: int) -> dict[str, Any]:
    """The same, with an outer step of Nesterov's as DiLoCo has it."""
    table = AggregationTable(server=ServerRule.NESTEROV, rate=0.7, momentum=0.5)
    return _planned(race, own) | {"aggregation": table}


def dab(race: Race, study: LeagueStudy, own: int) -> dict[str, Any]:
    """As many samples as each can train on once by the deadline, by its own word."""
    return {
        "scheme": "dab",
        "deadline": _soon(race, own),
        "late": Late.HALT,
        "steps": 1,
        "batches": None,
    }


def auto(race: Race, study: LeagueStudy, own: int) -> dict[str, Any]:
    """The run chooses its deadlines."""
    table = AggregationTable(momentum=(0.0, 0.5)[own])
    return {
        "scheme": "csa",
        "deadline": Deadline.of("auto"),
        "late": Late.HALT,
        "batches": None,
        "aggregation": table,
    }


_ALL = (
    Entrant("FedAvg", "work of a round", False, fedavg),
    Entrant("FedAvg, drops", "work of a round", False, dropping),
    Entrant("FedAvgM", "server's momentum 0.5, 0.9", False, fedavgm),
    Entrant("FedAdam", "server's rate 0.003, 0.03", False, fedadam),
    Entrant("FedProx", "μ 0.01, 1", False, fedprox),
    Entrant("FedNova", "partial or all work", False, fednova),
    Entrant("SCAFFOLD", "work of a round", False, scaffold),
    Entrant("TiFL", "work of a round", False, chosen(TakesPart.TIERS)),
    Entrant("Oort", "work of a round", False, chosen(TakesPart.OORT)),
    Entrant("FedAsync", "mixing 0.6, 0.1", False, fedasync),
    Entrant("FedBuff", "buffer 1, K/3", False, fedbuff),
    Entrant("FedCompass", "least work 0.2, 0.05", False, fedcompass),
    Entrant("Ringmaster", "outer step η", False, ringmaster),
    Entrant("Ringleader", "outer step η", False, ringleader),
    Entrant("csa", "deadline T*, slowest", True, csa),
    Entrant("csa + Nesterov", "deadline T*, slowest", True, csa_nesterov),
    Entrant("dab", "deadline T*, T*/4", True, dab),
    Entrant("csa, auto", "server's momentum 0, 0.5", True, auto),
)
ENTRANTS = {entrant.name: entrant for entrant in _ALL}
