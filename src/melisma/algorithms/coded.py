"""The coded cycle: one exact step of gradient descent, whichever workers straggle.

ready → code the data by estimated speeds → workers sum gradients of their parts
  → decode the earliest answers that suffice → step

A cycle is an iteration: its samples are cut into partitions, and the sum of all their
gradients does not depend on which workers answered.
"""

import asyncio
from typing import NamedTuple

import numpy as np

from melisma.algorithms.coder import Coder, Coding
from melisma.algorithms.decoding import Decoding
from melisma.algorithms.log import CycleLog
from melisma.algorithms.loop import POLL_S, WAIT_S, Outcome
from melisma.algorithms.task import ScheduledTask
from melisma.coding import Code
from melisma.errors import InfeasibleError, MelismaError
from melisma.fleets.protocols import Lost, Report, Updates
from melisma.fleets.sums import Sums
from melisma.learning import splits
from melisma.learning.descent import descent_for
from melisma.learning.gradients import check_additive
from melisma.learning.parameters import Parameters
from melisma.maths.arrays import Ints
from melisma.system.streams import Stream

#: Why a worker's answer is not in the gradient.
NOT_NEEDED = "not needed: the gradient was known without it"


class Begun(NamedTuple):
    """How a cycle is coded."""

    code: Code
    t_comp_s: float | None  #: when its second stage begins, if it has one
    parts: list[Ints]  #: rows of each partition


class Coded:
    """Exact gradient descent on a crew of which some may straggle.

    If too few answers arrive by the deadline for an exact gradient, the one with the
    least error is used, and its error recorded.
    """

    def __init__(self, task: ScheduledTask, crew: Sums, coding: Coding) -> None:
        check_additive(task.model)
        self._crew, self._coder = crew, Coder(coding, task)
        self._descent = descent_for(task.model, task.training)
        self._decoding: Decoding | None = None

    async def begin(self, log: CycleLog, *, patient: bool) -> Begun:
        """Ask which workers are ready, and make a code for them.

        A ``patient`` run waits up to `WAIT_S` for more if they are too few.
        """
        crew = self._crew
        until_s = crew.now_s() + (WAIT_S if patient else 0.0)
        while True:
            await crew.ready()
            try:
                law = await crew.law()
                code, t_comp_s = self._coder.code(crew.learners, law, log.cycle)
            except InfeasibleError:
                if crew.now_s() >= until_s:
                    raise
                await asyncio.sleep(POLL_S)
            else:
                parts = _parts(log.task, log.cycle, code.partitions)
                plan = self._coder.plan(code, parts)
                log.allocated(plan)
                return Begun(code, t_comp_s, parts)

    async def cycle(
        self, log: CycleLog, begun: Begun, parameters: Parameters
    ) -> Outcome:
        """Have workers sum gradients until the answers decode, and take a step."""
        deadline_s, code, parts = log.task.deadline_s, begun.code, begun.parts
        session = self._crew.session(parameters, deadline_s)
        decoding = self._decoding = Decoding(code, parts, session, deadline_s)
        await decoding.finish(begun.t_comp_s)
        better = None
        if decoding.used:
            gradient = await decoding.gradient()
            rate = log.task.training.at(log.cycle).rate
            mean = gradient / sum(map(len, parts))
            better = self._descent.step(parameters, mean, rate)
        self._coder.see(code, decoding.own, decoding.ended_s)
        _record(log, decoding)
        session.end()
        for energy in session.energy():
            log.powered(energy)
        return Outcome(better, self._coder.plan(code, parts), decoding.error)

    def state(self) -> Parameters:
        """What the optimiser keeps: the momentum."""
        return self._descent.state()

    def restore(self, saved: Parameters) -> None:
        """Restore what the optimiser kept."""
        self._descent.restore(saved)

    def fruitless(self, log: CycleLog) -> MelismaError:
        """Return the error to raise when no worker answers, or to no use."""
        if self._decoding is None or self._decoding.used:
            return log.fruitless()
        return self._decoding.nobody()


def _parts(task: ScheduledTask, cycle: int, partitions: int) -> list[Ints]:
    """Rows of each partition: the cycle's shards in a shuffled round, cut evenly."""
    rng = np.random.default_rng([task.seed, Stream.ROWS, cycle])
    pieces = splits.shards(np.arange(len(task.data.train)), task.shard)
    turns = rng.permutation(len(pieces))[: task.cycle_samples(None) // task.shard]
    return [pieces[places].ravel() for places in np.array_split(turns, partitions)]


def _record(log: CycleLog, decoding: Decoding) -> None:
    """Record the answers that the gradient is made of; the others as lost."""
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
    log.arrived(Updates(reports, {}), ())
    failed = {lost.learner: lost for lost in decoding.session.lost}
    for w in np.flatnonzero(decoding.code.loads).tolist():
        if w in failed:
            log.lost(failed[w])
        elif w not in used:
            after_s = decoding.ended_s
            log.lost(Lost(learner=w, reason=NOT_NEEDED, after_s=after_s))
