"""The coded cycle: one exact step of gradient descent from whoever answers in time.

muster → code the data by what is known of speeds → workers sum gradients of their parts
  → the earliest answers that are enough → decode → step → evaluate → record

A cycle is an iteration: its samples are cut into partitions, and the sum of all their
gradients is the same whoever straggles.
"""

import asyncio
from collections.abc import Iterable

import numpy as np

from melisma.algorithms.averaging import FRUITLESS
from melisma.algorithms.coder import Coder, Coding
from melisma.algorithms.control import Steering
from melisma.algorithms.decoding import Decoding
from melisma.algorithms.log import Diary, Sink
from melisma.algorithms.loop import Cycles, Keep
from melisma.algorithms.task import Task
from melisma.coding import Code
from melisma.errors import InfeasibleError
from melisma.fleets.protocols import Lost, Report, Updates
from melisma.fleets.sums import Workers
from melisma.learning import splits
from melisma.learning.evaluation import evaluate
from melisma.learning.gradients import Descent, check_additive
from melisma.learning.parameters import Parameters, parameters_of, put
from melisma.maths.arrays import Ints
from melisma.runs.records import Record
from melisma.system.streams import Stream

#: Why a worker's answer is not in the gradient.
NOT_NEEDED = "not needed: the gradient was known without it"
#: How long a patient run waits for enough workers, and how often it looks.
WAIT_S, LOOK_S = 30.0, 1.0


async def run_coded(
    task: Task,
    fleet: Workers,
    sink: Sink,
    coding: Coding,
    *,
    past: Iterable[Record] = (),
    kept: Parameters | None = None,
    keep: Keep = lambda cycle, parameters: None,
    patient: bool = False,
    steering: Steering | None = None,
) -> Parameters:
    """Train ``task`` on ``fleet`` for all its cycles; return the model's parameters.

    As `orchestrator.run`; ``kept`` is a checkpoint to go on from. What cannot be
    decoded by the deadline is decoded as well as it can be, and recorded with its
    error; a cycle without any answer is an InfeasibleError, to a ``patient`` run only
    after several in a row.
    """
    check_additive(task.model)
    parameters = parameters_of(task.model)
    descent = Descent(task.model, rate=coding.rate, momentum=coding.momentum)
    if kept:
        descent.restore(kept)
    coder, fruitless = Coder(coding, task), 0
    cycles = Cycles(task, fleet, sink, past, keep, steering)
    async for diary in cycles:
        task = diary.task
        begun = await cycles.unless_stopped(_begin(fleet, coder, patient))
        if begun is None:
            break
        code, t_comp_s = begun
        parts = _parts(task, diary.cycle, code.partitions)
        diary.allocated(coder.plan(code, parts))
        cycles.begun(diary)
        session = fleet.session(parameters, task.deadline_s)
        decoding = Decoding(code, parts, session, task.deadline_s)
        await decoding.finish(t_comp_s)
        fruitless = 0 if decoding.used else fruitless + 1
        if decoding.used:
            gradient = await decoding.gradient()
            parameters = descent.step(parameters, gradient / sum(map(len, parts)))
            put(parameters, task.model)
        elif not patient or fruitless == FRUITLESS:
            raise decoding.nobody()
        coder.see(code, decoding.own, decoding.ended_s)
        _note(diary, decoding)
        session.end()
        diary.aggregated(coder.plan(code, parts), error=decoding.error)
        diary.evaluated(*evaluate(task.model, task.data.test_x, task.data.test_y))
        cycles.end(diary, parameters | descent.state())
    return parameters


async def _begin(
    fleet: Workers, coder: Coder, patient: bool
) -> tuple[Code, float | None]:
    """See who is there, and code for them; wait for others if they are too few."""
    until_s = fleet.now_s() + (WAIT_S if patient else 0.0)
    while True:
        await fleet.ready()
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
