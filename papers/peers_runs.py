"""Races: one run of an entrant in a setting, its tuning, and what all came to."""

import math
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

import msgspec
import numpy as np

from melisma.algorithms import ScheduledTask
from melisma.errors import InfeasibleError, TrainingError
from melisma.jobs import Job, workload_of
from melisma.launch import build
from melisma.learning import Part, gradient_sum, loss_of, models
from melisma.maths import Floats
from melisma.runs import Record, records
from melisma.system import Mode

from .crossings import crossing
from .kit import Data, Spread, in_order
from .peers_entrants import ENTRANTS, Point
from .peers_settings import SETTINGS, LeagueStudy, Race

#: Settings that print the squared norm of the whole gradient, too.
BY_GRADIENT = ("ringleader",)
#: Samples of which a gradient is the mean, about.
GRADIENTS = 10_000
#: Points of a curve.
POINTS = 60
#: Tuning has seeds of its own.
TUNING_FROM = 1000


@dataclass(frozen=True, slots=True)
class Entry:
    """One run."""

    study: LeagueStudy
    entrant: str
    point: Point
    seed: int
    to_target: bool  #: ends there
    limit_s: float = math.inf  #: ends then, before the horizon


class Ran(msgspec.Struct, frozen=True):
    """What a run came to."""

    time_s: list[float]  #: of its evaluations
    accuracy: list[float]
    sent_bytes: float  #: both ways
    device_s: float  #: of training
    idle: float  #: share of all learners' time
    gradient: list[float] = []  #: its squared norm, in `BY_GRADIENT`
    failed: str = ""


def raced(entry: Entry) -> Ran:
    """Run an entrant; one that diverges, or has no plan, has failed."""
    study, race = entry.study, _race(entry.study, entry.seed)
    entrant = ENTRANTS[entry.entrant]
    try:
        job = entrant.enter(race, study, entry.point)
        if entry.limit_s < study.horizon_s:
            stop = (str(job.stop), f"time >= {entry.limit_s} s")
            job = msgspec.structs.replace(job, stop=stop)
        return _watched(job, study, to_target=entry.to_target)
    except (InfeasibleError, TrainingError) as error:
        return Ran([], [], 0.0, 0.0, 0.0, failed=str(error))


@lru_cache(maxsize=4)
def _race(study: LeagueStudy, seed: int) -> Race:
    return SETTINGS[study.setting](study, seed)


class _ReachedError(Exception):
    """The target was reached, and no more is asked."""


def _watched(job: Job, study: LeagueStudy, *, to_target: bool) -> Ran:
    """Run a job and see what it does."""
    simulation = build(job)
    task = simulation.built.task
    time_s, accuracy, gradient = list[float](), list[float](), list[float]()
    # Of a model one way, as planned: by codecs, and with what else travels beside it.
    planned = workload_of(job, task.model, task.data).model_bits / 8
    actual = models.model_bytes(task.model)
    one = planned * actual / (job.workload.model_size or actual)
    clocks = _Clocks(2 * planned, sends_samples=job.mode == Mode.PARALLEL)

    def watch(record: Record) -> None:
        if isinstance(record, records.LearnerEvent):
            clocks.see(record)
        if not isinstance(record, records.Evaluated):
            return
        time_s.append(record.time_s)
        accuracy.append(record.metrics["accuracy"] or 0.0)
        if to_target:
            if accuracy[-1] >= study.target:
                raise _ReachedError
        elif study.setting in BY_GRADIENT:
            gradient.append(_gradient(task))

    with suppress(_ReachedError):
        simulation.run(None, watch)
    idle = 1 - clocks.busy_s / (len(clocks.learners) * time_s[-1])
    sent = clocks.transfers * one + clocks.samples * task.data.sample_bytes
    return Ran(time_s, accuracy, sent, clocks.device_s, max(0.0, idle), gradient)


class _Clocks:
    """What learners do with their time, from their records in order."""

    def __init__(self, both_bytes: float, *, sends_samples: bool) -> None:
        self._both_bytes = both_bytes  # of a model there and back, as planned
        self._sends_samples = sends_samples
        self._share: dict[str, float] = {}  # of it that an option sends
        self.learners: set[str] = set()
        self._given_s: dict[str, float] = {}  # orders under way
        self._got_s: dict[str, float] = {}
        self.device_s = self.busy_s = 0.0
        self.transfers = 0.0
        self.samples = 0

    def see(self, record: records.LearnerEvent) -> None:
        """Take note of a record."""
        name, at_s = record.learner, record.time_s
        match record:
            case records.Allocated():
                self.learners.add(name)
                self._given_s[name] = at_s
                self._share[name] = 1 - record.saved_bytes / self._both_bytes
                self.samples += record.samples * self._sends_samples
            case records.Downloaded():
                self._got_s[name] = at_s
                self.transfers += self._share[name]
            case records.Trained() | records.Halted():
                self.device_s += at_s - self._got_s[name]
            case records.Uploaded():
                self.transfers += self._share[name]
                self._done(name, at_s)
            case records.Dropped():  # it was busy all the same
                self._done(name, at_s)

    def _done(self, name: str, at_s: float) -> None:
        """Count an order once: an update that is too old is sent, and then dropped."""
        self.busy_s += at_s - self._given_s.pop(name, at_s)


def _gradient(task: ScheduledTask) -> float:
    """Return the squared norm of the mean gradient over GRADIENTS training samples."""
    train = task.taken.train
    some = Part(train, np.arange(0, len(train), max(1, len(train) // GRADIENTS)))
    total, _ = gradient_sum(task.model, some, loss_of(task.training))
    mean = total / len(some)
    return float(mean @ mean)


def reached_s(ran: Ran, study: LeagueStudy) -> float:
    """Return when the target was reached, between two evaluations; infinite if never.

    >>> study = LeagueStudy(setting="testbed", dataset="", entrants=(), learners=1,
    ...     rates=(), works=(1, 1), target=0.5, horizon_s=9.0)
    >>> reached_s(Ran([1.0, 3.0], [0.4, 0.6], 0.0, 0.0, 0.0), study)
    2.0
    """
    at_s = crossing(ran.time_s, ran.accuracy, study.target)
    # A run's last cycle ends after the horizon.
    return at_s if at_s < study.horizon_s else math.inf


def _score(ran: Ran, study: LeagueStudy) -> float:
    """What tuning makes small: the time, or how far from the target it ended."""
    at_s = reached_s(ran, study)
    if at_s < math.inf:
        return at_s
    # The last cycle may end after the horizon, with an accuracy that does not count.
    short = 1 - max(ran.accuracy, default=-8.0) / study.target
    return study.horizon_s * (1 + max(0.0, short))


def _tuned(study: LeagueStudy, spread: Spread) -> dict[str, Point]:
    """Return the point of each entrant that is soonest, on seeds of their own.

    Rate by rate, the one in the middle first: no run need go on for longer than all
    seeds of the best point so far took together.
    """
    scores: dict[str, dict[Point, float]] = {name: {} for name in study.entrants}
    middle = sorted(study.rates)[len(study.rates) // 2]
    for rate in sorted(study.rates, key=lambda rate: rate != middle):
        tries = [
            Entry(study, name, point, seed, to_target=True, limit_s=limit_s)
            for name in study.entrants
            for limit_s in [min(scores[name].values(), default=math.inf)]
            for point in ENTRANTS[name].points(study)
            if point.rate == rate
            for seed in range(TUNING_FROM, TUNING_FROM + study.tuning)
        ]
        for entry, ran in zip(tries, spread(raced, tries), strict=True):
            own = scores[entry.entrant]
            own[entry.point] = own.get(entry.point, 0.0) + _score(ran, study)
    return {name: min(own, key=own.__getitem__) for name, own in scores.items()}


def run_league(study: LeagueStudy, spread: Spread = in_order) -> Data:
    """Tune every entrant on seeds of their own, then race them."""
    best = _tuned(study, spread)
    final = [
        Entry(study, name, best[name], seed, to_target=False)
        for name in study.entrants
        for seed in range(study.seeds)
    ]
    found = spread(raced, final)
    grid_s = np.linspace(0.0, study.horizon_s, POINTS + 1)[1:]
    data: Data = {"grid_s": grid_s, "target": np.array([study.target])}
    data["horizon_s"] = np.array([study.horizon_s])
    for n, name in enumerate(study.entrants):
        rans = found[n * study.seeds : (n + 1) * study.seeds]
        data[f"{name}/tuned"] = np.array(best[name])
        data[f"{name}/reached_s"] = np.array([reached_s(r, study) for r in rans])
        data[f"{name}/curve"] = _curves(rans, [r.accuracy for r in rans], grid_s)
        if study.setting in BY_GRADIENT:
            curves = _curves(rans, [r.gradient for r in rans], grid_s)
            data[f"{name}/gradient"] = curves
        facts = [(r.sent_bytes, r.device_s, r.idle) for r in rans]
        for k, what in enumerate(("sent_bytes", "device_s", "idle")):
            data[f"{name}/{what}"] = np.array([fact[k] for fact in facts])
    return data


def _curves(rans: list[Ran], values: list[list[float]], grid_s: Floats) -> Floats:
    """Return each run's values at these times: the last ones known, NaN before."""
    return np.array(
        [
            np.array([math.nan, *own])[np.searchsorted(r.time_s, grid_s, side="right")]
            for r, own in zip(rans, values, strict=True)
        ]
    )
