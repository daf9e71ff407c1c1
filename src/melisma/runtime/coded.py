"""The coded cycle: one exact step of gradient descent from whoever answers in time.

muster → code the data by what is known of speeds → workers sum gradients of their parts
  → the earliest answers that are enough → decode → step → evaluate → record

A cycle is an iteration: its samples are cut into partitions, and the sum of all their
gradients is the same whoever straggles.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from melisma.coding import CODES, Arrivals, Code, History, TwoStage, choose
from melisma.coding.two_stage import Helpers
from melisma.errors import InfeasibleError
from melisma.learning import splits
from melisma.learning.evaluation import evaluate
from melisma.learning.gradients import Descent, check_additive
from melisma.learning.parameters import Parameters, parameters_of, put
from melisma.maths.arrays import Floats, Ints
from melisma.runtime.chance import Stream
from melisma.runtime.diary import Diary, Sink, Standing
from melisma.runtime.fleet import Fleet, Lost, Report, Updates
from melisma.runtime.records import Record
from melisma.runtime.task import Plan, Task
from melisma.system.law import DelayLaw
from melisma.system.problem import Allocation

#: Why a worker's answer is not in the gradient.
NOT_NEEDED = "not needed: the gradient was known without it"
#: Scenarios by which the beginning of stage two is chosen, and how often it is.
SCENARIOS, ANEW = 24, 10
#: Where nobody is done when stage two should begin, it begins at this many times what
#: the first answer takes: all are to be done at once, and one helper would be slow.
AS_FAST = 1.25
#: Change of speeds, as a share, with which loads are made anew.
CHANGED = 0.1
#: How long a patient run waits for enough workers, and how often it looks.
WAIT_S, LOOK_S = 30.0, 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Coding:
    """How gradients are coded."""

    code: str = "two-stage"  #: a name in CODES
    stragglers: int | None = None  #: that may be missing; None: as history predicts
    helpers: Helpers = "finished"
    rate: float = 0.05
    momentum: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Work:
    """One worker's part: Σ coefficient · gradient over parts of the data."""

    worker: int  #: its place in the fleet
    parts: list[Ints]  #: rows of each part
    coefficients: Floats

    @property
    def samples(self) -> int:
        """Samples to go through."""
        return sum(len(rows) for rows in self.parts)

    @property
    def plain(self) -> bool:
        """Whether it is just a sum, which float32 carries without harm."""
        return bool((self.coefficients == 1.0).all())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """What a worker sent, in seconds since the cycle began."""

    work: Work
    downloaded_s: float
    trained_s: float
    after_s: float


class Session(Protocol):
    """One cycle of a fleet of workers."""

    lost: list[Lost]  #: workers who failed so far

    def give(self, works: Sequence[Work]) -> None:
        """Have work done, from now on."""

    async def next(self, until_s: float) -> Answer | None:
        """Return the next answer; None if there is none until then, or will be."""

    async def total(self, answers: Sequence[Answer], weights: Floats) -> Floats:
        """Return Σ weight · answer."""

    def end(self) -> None:
        """Need no more answers; the fleet's clock stands where the last one came."""


class Workers(Fleet, Protocol):
    """A fleet that computes gradients."""

    def session(self, parameters: Parameters, deadline_s: float) -> Session:
        """Begin a cycle."""


async def run_coded(
    task: Task,
    fleet: Workers,
    sink: Sink,
    coding: Coding,
    *,
    past: Iterable[Record] = (),
    kept: Parameters | None = None,
    keep: Callable[[int, Parameters], None] = lambda cycle, parameters: None,
    patient: bool = False,
) -> Parameters:
    """Train ``task`` on ``fleet`` for all its cycles; return the model's parameters.

    As `orchestrator.run`; ``kept`` is a checkpoint to go on from. What cannot be
    decoded by the deadline is decoded as well as it can be, and recorded with its
    error.
    """
    check_additive(task.model)
    standing = Standing(past)
    for name, reason in standing.expelled.items():
        fleet.expel(name, reason)
    parameters = parameters_of(task.model)
    descent = Descent(task.model, rate=coding.rate, momentum=coding.momentum)
    if kept:
        descent.restore(kept)
    coder = Coder(coding, task)
    for number in range(standing.done + 1, task.cycles + 1):
        diary = Diary(task, fleet, sink, standing, number)
        code, t_comp_s = await _begin(fleet, coder, patient)
        parts = _parts(task, number, code.partitions)
        diary.allocated(coder.plan(code, parts))
        session = fleet.session(parameters, task.deadline_s)
        decoding = Decoding(code, parts, session, task.deadline_s)
        await decoding.finish(t_comp_s)
        gradient = await decoding.gradient()
        parameters = descent.step(parameters, gradient / sum(map(len, parts)))
        put(parameters, task.model)
        coder.see(decoding)
        _note(diary, decoding)
        session.end()
        diary.aggregated(coder.plan(code, parts), error=decoding.error)
        diary.evaluated(*evaluate(task.model, task.data.test_x, task.data.test_y))
        diary.expel_offenders()
        keep(number, parameters | descent.state())
    return parameters


async def _begin(
    fleet: Workers, coder: "Coder", patient: bool
) -> tuple[Code, float | None]:
    """See who is there, and code for them; wait for others if they are too few."""
    until_s = fleet.now_s() + (WAIT_S if patient else 0.0)
    while True:
        await fleet.muster()
        try:
            return coder.code(fleet.learners, await fleet.law())
        except InfeasibleError:
            if fleet.now_s() >= until_s:
                raise
            await asyncio.sleep(LOOK_S)


def _parts(task: Task, cycle: int, partitions: int) -> list[Ints]:
    """Rows of each partition: the cycle's shards in a shuffled round, cut evenly."""
    rng = np.random.default_rng([task.seed, Stream.ROWS, cycle])
    pieces = splits.shards(np.arange(len(task.data.train_y)), task.shard)
    turns = rng.permutation(len(pieces))[: task.cycle_samples(None) // task.shard]
    return [pieces[some].ravel() for some in np.array_split(turns, partitions)]


class Coder:
    """Makes codes for who is there, by what their answers have shown so far."""

    def __init__(self, coding: Coding, task: Task) -> None:
        self._coding, self._task = coding, task
        self._shards = task.cycle_samples(None) // task.shard
        self._names: list[str] = []
        self._rng = np.random.default_rng([task.seed, Stream.CODES])
        self._since = 0

    def code(self, names: Sequence[str], law: DelayLaw) -> tuple[Code, float | None]:
        """Return the code of the next cycle, and when its second stage begins."""
        s = self._coding.stragglers
        if s is not None and len(names) <= s:
            raise InfeasibleError(
                f"{len(names)} workers are there, and {s} stragglers are to be borne: "
                "wait for more workers, or lower stragglers"
            )
        if list(names) != self._names:
            self._names = list(names)
            samples = self._task.cycle_samples(None)
            self._history = History(len(names), 1.0 / (samples * law.step_s))
            self._made: tuple[Code, float | None] | None = None
        self._upload_s = law.fixed_s / 2
        speeds, s = self._history.speeds, self._tolerated(len(names))
        if self._made is None or self._is_old(speeds, s):
            self._speeds, self._s, self._since = speeds, s, 0
            self._made = self._make(len(names))
        self._since += 1
        return self._made

    def _tolerated(self, workers: int) -> int:
        s = self._coding.stragglers
        return min(self._history.stragglers() if s is None else s, workers - 1)

    def _is_old(self, speeds: Floats, s: int) -> bool:
        moved = np.abs(speeds / self._speeds - 1.0).max() > CHANGED
        if self._coding.code == "two-stage":
            return bool(moved) or s != self._s or self._since >= ANEW
        return s != self._s or (bool(moved) and self._coding.code == "hetero")

    def _make(self, workers: int) -> tuple[Code, float | None]:
        name, seed = self._coding.code, self._task.seed
        options: dict[str, Any] = {"workers": workers, "stragglers": self._s}
        if name != "cyclic":
            options["speeds"] = self._speeds
        code = CODES[name](seed=seed, **options)
        partitions = None
        if code.partitions > self._shards:
            partitions = self._shards
            code = self._coarser(name, options)
        if name == "two-stage":
            plan = choose(
                self._history.scenarios(SCENARIOS, self._rng),
                stragglers=self._s,
                speeds=self._speeds,
                seed=seed,
                helpers=self._coding.helpers,
                # A predicted s may be too large; one that was asked for is borne.
                trusting=self._coding.stragglers is None
                and self._coding.helpers == "finished",
                coded="blocks",
                partitions=partitions,
                upload_s=self._upload_s,
            )
            # The plan's clock begins when workers have the model.
            return plan.scheme, plan.t_comp_s + float(self._upload_s.mean())
        return code, None

    def _coarser(self, name: str, options: dict[str, Any]) -> Code:
        """The code with one shard a partition; InfeasibleError if there is none."""
        if name == "cyclic":
            raise InfeasibleError(
                f"{options['workers']} workers and {self._shards} shards in a cycle: a "
                "cyclic code needs a shard for each; use smaller shards or more samples"
            )
        return CODES[name](seed=self._task.seed, partitions=self._shards, **options)

    def plan(self, code: Code, parts: Sequence[Ints]) -> Plan:
        """What every worker is to do, as records have it."""
        sizes = np.array([len(rows) // self._task.shard for rows in parts])
        shards = np.array([sizes[code.work(w)].sum() for w in range(code.workers)])
        busy_s = code.loads / code.partitions / self._speeds
        return Plan(
            Allocation(samples=shards, steps=(shards > 0).astype(np.int64)),
            predicted_s=np.where(shards > 0, busy_s + 2 * self._upload_s, 0.0),
        )

    def see(self, decoding: "Decoding") -> None:
        """Learn from when the answers of (the first stage of) a cycle came."""
        code = decoding.code
        answered_s = np.full(code.workers, np.inf)
        for w, answer in decoding.own.items():
            answered_s[w] = max(answer.trained_s - answer.downloaded_s, 1e-9)
        elapsed_s = decoding.ended_s - 2 * float(self._upload_s.min())
        self._history.see(
            code.loads / code.partitions, answered_s, max(elapsed_s, 1e-9)
        )


class Decoding:
    """The answers of one cycle, until they are enough."""

    def __init__(
        self, code: Code, parts: Sequence[Ints], session: Session, deadline_s: float
    ) -> None:
        self.code, self.session = code, session
        self.first: dict[int, Answer] = {}  #: answers by worker, until stage two begins
        self.second: dict[int, Answer] = {}  #: from then on
        self.own: dict[int, Answer] = {}  #: to what each was given first, late or not
        self.error = 0.0  #: ‖aB − 1‖ / √K of what was decoded
        self.ended_s = 0.0
        self._parts, self._deadline_s = parts, deadline_s
        self._used: list[tuple[Answer, float]] = []

    async def finish(self, t_comp_s: float | None) -> None:
        """Wait for the earliest answers that are enough, until the deadline."""
        code, busy = self.code, np.flatnonzero(self.code.loads).tolist()
        self.session.give([self._work(w, code.work(w), code.row(w)) for w in busy])
        if isinstance(code, TwoStage):
            assert t_comp_s is not None
            await self._in_stages(code, min(t_comp_s, self._deadline_s))
            return
        weights = await self._enough(code, self.first)
        self._use(self.first, weights)

    async def _in_stages(self, code: TwoStage, t_comp_s: float) -> None:
        busy = int((code.loads > 0).sum())
        while len(self.first) < busy:
            # Nobody may be missing where nobody can help: wait for the first at least.
            helped = bool(self.first) or busy < code.workers
            until_s = t_comp_s if helped else self._deadline_s
            if (answer := await self.session.next(until_s)) is None:
                break
            if not helped and answer.after_s > t_comp_s:  # too early for all of them
                t_comp_s = min(AS_FAST * answer.after_s, self._deadline_s)
            self._came(self.first, answer)
        self._use(self.first, np.ones(code.workers))
        if len(self.first) == busy:
            return
        rest = code.rest(sorted(self.first))
        helpers = [w for w in rest.helpers.tolist() if rest.loads[w]]
        self.session.give([self._work(w, rest.work(w), rest.row(w)) for w in helpers])
        weights = await self._enough(rest.code, self.second)
        self._use(self.second, weights)
        self.error *= (rest.partitions / code.partitions) ** 0.5

    async def _enough(self, code: Code, answers: dict[int, Answer]) -> Floats:
        arrivals = Arrivals(code)
        while not arrivals.decodable:
            if (answer := await self.session.next(self._deadline_s)) is None:
                weights, self.error = code.best_effort(arrivals.alive)
                self.ended_s = self._deadline_s
                return weights
            self._came(answers, answer)
            arrivals.add(answer.work.worker)
        return arrivals.weights

    def _came(self, answers: dict[int, Answer], answer: Answer) -> None:
        answers[answer.work.worker] = answer
        self.own.setdefault(answer.work.worker, answer)
        self.ended_s = answer.after_s

    def _use(self, answers: dict[int, Answer], weights: Floats) -> None:
        for w, answer in answers.items():
            if weights[w]:
                self._used.append((answer, float(weights[w])))

    def _work(self, w: int, partitions: Ints, coefficients: Floats) -> Work:
        return Work(
            worker=w,
            parts=[self._parts[k] for k in partitions.tolist()],
            coefficients=coefficients,
        )

    @property
    def used(self) -> dict[int, list[Answer]]:
        """The answers of each worker that the gradient is made of, in their order."""
        used: dict[int, list[Answer]] = {}
        for answer, _ in self._used:
            used.setdefault(answer.work.worker, []).append(answer)
        return used

    async def gradient(self) -> Floats:
        """The sum of all samples' gradients."""
        if not self._used:
            raise InfeasibleError(
                f"nobody of {self.code.workers} workers answered by the deadline of "
                f"{self._deadline_s:.6g} s: extend it, or use fewer samples"
            )
        answers, weights = zip(*self._used, strict=True)
        return await self.session.total(answers, np.array(weights))


def _note(diary: Diary, decoding: Decoding) -> None:
    """Record whose answers made the gradient, and what became of the others."""
    used = decoding.used
    reports = [
        Report(
            learner=w,
            downloaded_s=answers[0].downloaded_s,
            trained_s=answers[-1].trained_s,
            uploaded_s=answers[-1].after_s,
            samples=sum(answer.work.samples for answer in answers),
            batches=sum(len(answer.work.parts) for answer in answers),
            loss=float("nan"),
            halted=False,
        )
        for w, answers in sorted(used.items())
    ]
    diary.arrived(Updates(reports, {}), ())
    failed = {lost.learner: lost for lost in decoding.session.lost}
    for w in np.flatnonzero(decoding.code.loads).tolist():
        if w in failed:
            diary.lost(failed[w])
        elif w not in used:
            after_s = decoding.ended_s
            diary.lost(Lost(learner=w, reason=NOT_NEEDED, after_s=after_s))
