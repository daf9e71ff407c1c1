"""The loop of global cycles: one for every algorithm, simulated and live.

begin: roster, plan → cycle: learners work, results are merged
  → evaluate → record → checkpoint
"""

import math
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from melisma.algorithms.control import Control, CycleUnderWay
from melisma.algorithms.log import CycleLog, Sink
from melisma.algorithms.state import RunState
from melisma.algorithms.task import Plan, ScheduledTask
from melisma.errors import MelismaError
from melisma.fleets.protocols import Crew
from melisma.learning.evaluation import Scores, estimate_buffers, evaluate
from melisma.learning.losses import loss_of
from melisma.learning.parameters import (
    Parameters,
    all_finite,
    parameters_of,
    put,
    state_of,
)
from melisma.runs.records import Evaluated, Expelled, Record, Steered
from melisma.runs.store import RunWriter, ignore

T = TypeVar("T")
Begun = TypeVar("Begun")

#: Cycles in a row without an update that counts after which a patient run ends.
FRUITLESS = 5
#: How long a patient run waits for learners with which a plan is feasible, and the time
#: between two tries.
WAIT_S, POLL_S = 30.0, 1.0


class Outcome(NamedTuple):
    """The result of a cycle."""

    parameters: Parameters | None  #: of the new model; None: nothing counted
    plan: Plan
    error: float | None = None  #: of a decoded gradient
    idle: bool = False  #: the plan gave no learner anything to train on
    ages: Sequence[int] | None = None  #: of updates, where nobody waits for others


class Algorithm(Protocol[Begun]):
    """What a global cycle does, in two halves.

    A run may be stopped while ``begin`` waits for learners; ``cycle`` is never
    interrupted.
    """

    async def begin(self, log: CycleLog, *, patient: bool) -> Begun:
        """Ask which learners are ready, and plan their work; wait if ``patient``.

        Raises InfeasibleError if there is no feasible plan.
        """

    async def cycle(
        self, log: CycleLog, begun: Begun, parameters: Parameters
    ) -> Outcome:
        """Dispatch the work, merge the results, and record both."""

    def state(self) -> Parameters:
        """Return what a checkpoint is to hold beside the model."""

    def restore(self, saved: Parameters) -> None:
        """Restore it from a checkpoint."""

    def fruitless(self, log: CycleLog) -> MelismaError:
        """Return the error to raise when no result counts."""


@runtime_checkable
class Replayable(Crew, Protocol):
    """A crew on a virtual clock, whose past cycles can be replayed without training."""

    learning: bool  #: compute gradients; else time passes and models stay as they are


@runtime_checkable
class Keeps(Crew, Protocol):
    """A crew whose learners keep tensors of their own, which no replay restores."""

    def state(self) -> Parameters:
        """Return them, for a checkpoint."""

    def restore(self, saved: Parameters) -> None:
        """Restore them from a checkpoint."""


async def train(
    task: ScheduledTask,
    crew: Crew,
    algorithm: Algorithm[Any],
    run: RunWriter,
    *,
    patient: bool = False,
    control: Control | None = None,
    observe: Callable[[Record], None] = ignore,
) -> Parameters:
    """Train ``task`` for all its cycles, or on from the run's checkpoint.

    Returns the parameters of the model. Real learners come and go, so a live run is
    ``patient``: it goes on after a cycle in which no update counts, and waits for
    learners with which the deadline can be met. A run that is not, or `FRUITLESS` such
    cycles in a row, or `WAIT_S` without them, raise TrainingError or InfeasibleError,
    and so does a live cycle in which most learners diverge.
    ``control`` pauses or stops the run, or changes its deadline. ``observe`` is called
    with every record.
    """

    def note(record: Record) -> None:
        run.note(record)
        observe(record)

    if isinstance(crew, Replayable):
        await replay(task, crew, algorithm, run.past, observe)
    run.restore(task.model)
    if run.checkpoint:
        algorithm.restore(run.checkpoint.parameters)
        if isinstance(crew, Keeps):
            crew.restore(run.checkpoint.parameters)
    cycles = Cycles(task, crew, note, run, control or Control())
    parameters, fruitless = parameters_of(task.model), 0
    async for log in cycles:
        begun = await cycles.unless_stopped(algorithm.begin(log, patient=patient))
        if begun is None:
            break
        cycles.begun(log)
        before = algorithm.state()
        outcome = await algorithm.cycle(log, begun, parameters)
        if patient and (error := log.diverged()):
            raise error
        scores = _scores(task, outcome.parameters, finite_loss=patient)
        fruitless = 0 if scores or outcome.idle else fruitless + 1
        if outcome.parameters is not None and not scores:
            log.broken()
            algorithm.restore(before)
        elif outcome.parameters is not None:
            parameters = outcome.parameters
        if not scores and not outcome.idle and (not patient or fruitless == FRUITLESS):
            raise algorithm.fruitless(log)
        log.aggregated(outcome.plan, outcome.error, outcome.ages)
        log.evaluated(scores or _scores(task, parameters) or _unknown(task))
        kept = crew.state() if isinstance(crew, Keeps) else {}
        cycles.end(log, parameters | algorithm.state() | kept)
    place(task, parameters)
    run.finish(state_of(task.model))
    return parameters


def _unknown(task: ScheduledTask) -> Scores:
    """Return what a model scores that is not finite."""
    return Scores(dict.fromkeys((m.name for m in task.metrics), math.nan), math.nan)


def place(task: ScheduledTask, parameters: Parameters) -> None:
    """Put parameters into the task's model, and estimate buffers that do not travel.

    From training samples where the orchestrator serves them, else from its test set.
    """
    put(parameters, task.model)
    samples = task.taken.test if task.federated else task.taken.train
    estimate_buffers(task.model, samples, loss_of(task.training))


def _scores(
    task: ScheduledTask, parameters: Parameters | None, *, finite_loss: bool = False
) -> Scores | None:
    """Put a model in place; return its scores, None if it is of no use.

    It has to be finite. Of learners that may lie, huge updates that are finite make a
    model whose loss is not, and from which nobody can train on.
    """
    if parameters is None or not all_finite(parameters):
        return None
    place(task, parameters)
    scores = evaluate(task.model, task.taken.test, loss_of(task.training), task.metrics)
    return None if finite_loss and not math.isfinite(scores.loss) else scores


async def replay(
    task: ScheduledTask,
    crew: Replayable,
    algorithm: Algorithm[Any],
    past: Sequence[Record],
    observe: Callable[[Record], None] = ignore,
) -> None:
    """Bring a simulated crew to where it stood after its past cycles.

    Everything but the gradients is computed again, in the same order and from the same
    random numbers. So clocks, learner states, queues and histories are as they were,
    and checkpoints need not hold them. Losses, by which some choose, are those of the
    records. The model and the algorithm's state are restored from the checkpoint
    afterwards.
    """
    state, parameters = RunState(), parameters_of(task.model)
    expelled = [record for record in past if isinstance(record, Expelled)]
    steered = {r.cycle: r for r in past if isinstance(r, Steered) and not r.why}
    evaluated = {r.cycle: r for r in past if isinstance(r, Evaluated)}
    told, recorded = RunState(), defaultdict[int, list[Record]](list)
    for record in past:
        recorded[record.cycle].append(record)
    learning, crew.learning = crew.learning, False
    for number in range(1, RunState(past).done + 1):
        if by_hand := steered.get(number):
            state.see(by_hand)
            task = replace(task, deadline_s=by_hand.deadline_s)
        log = CycleLog(task, crew, observe, state, number)
        begun = await algorithm.begin(log, patient=False)
        outcome = await algorithm.cycle(log, begun, parameters)
        log.aggregated(outcome.plan, outcome.error, outcome.ages)
        state.evaluations.append(evaluated[number])
        for record in recorded[number]:
            told.see(record)
        state.seen = dict(told.seen)
        for record in expelled:
            if record.cycle == number:
                crew.expel(record.learner, record.reason)
    crew.learning = learning


class Cycles:
    """Yields a log for each cycle still to run; ``end`` it once it is recorded.

    Requests to the control are recorded and checkpointed before the next cycle begins,
    so that a run which is cut short in that cycle resumes with them.
    """

    def __init__(
        self,
        task: ScheduledTask,
        crew: Crew,
        note: Sink,
        run: RunWriter,
        control: Control,
    ) -> None:
        self._crew, self._note, self._run, self._control = crew, note, run, control
        self._control.now_s = crew.now_s
        self._state = RunState(run.past)
        for name, reason in self._state.expelled.items():
            crew.expel(name, reason)
        self._task = replace(task, deadline_s=self._state.deadline_s or task.deadline_s)
        self._kept: tuple[int, Parameters] | None = None

    async def __aiter__(self) -> AsyncIterator[CycleLog]:
        while self._state.done < self._task.cycles and not self._state.stopped:
            goes_on = await self._control.goes_on()
            number = self._state.done + 1
            log = CycleLog(self._task, self._crew, self._note, self._state, number)
            self._obey(log)
            if not goes_on:
                return
            yield log

    def _obey(self, log: CycleLog) -> None:
        """Apply and checkpoint what was requested since the last cycle."""
        changed = self._expel(log)
        if deadline_s := self._control.take_deadline():
            log.steered(deadline_s)
            self._task = log.task
            changed = True
        if changed and self._kept:
            self._keep(*self._kept)

    def _expel(self, log: CycleLog) -> bool:
        expelled = self._control.take_expelled()
        for name, reason in expelled:
            log.expelled(name, reason)
        return bool(expelled)

    async def unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Return what ``work`` returns, or None if the run is to stop instead."""
        return await self._control.unless_stopped(work)

    def begun(self, log: CycleLog) -> None:
        """Let the control know that a cycle is under way."""
        self._control.under_way[self._task.name] = CycleUnderWay(
            cycle=log.cycle, began_s=log.began_s, deadline_s=log.task.deadline_s
        )

    def end(self, log: CycleLog, parameters: Parameters) -> None:
        """Expel offenders, and write the checkpoint."""
        log.expel_offenders()
        self._expel(log)
        self._control.under_way.pop(self._task.name, None)
        self._kept = log.cycle, parameters
        self._keep(log.cycle, parameters)

    def _keep(self, cycle: int, parameters: Parameters) -> None:
        self._run.keep(cycle, self._crew.now_s(), parameters)
