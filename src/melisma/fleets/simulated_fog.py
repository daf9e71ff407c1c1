"""Fog devices on a virtual clock: slots last their nominal time, gradients are real.

A device trains on its slots' samples in order, by an optimiser that lasts for a cycle.
So the slots of a cycle are trained together when it ends, for all devices at once.
"""

from collections.abc import AsyncIterator, Mapping, Sequence

import numpy as np

from melisma.fleets.classroom import Classroom
from melisma.fleets.moves import Done, Move
from melisma.fleets.protocols import Lost, Report, Updates
from melisma.fleets.virtual import VirtualCrew
from melisma.learning.parameters import Model, Parameters
from melisma.learning.samples import Samples
from melisma.learning.settings import HERE, Hardware, Training
from melisma.learning.training import batch_plan
from melisma.maths.arrays import Ints
from melisma.system.law import DelayLaw
from melisma.system.streams import Stream


class SimulatedDevices(VirtualCrew):
    """Devices that exist as rows of tensors, on a clock that jumps."""

    def __init__(
        self,
        names: Sequence[str],
        law: DelayLaw,
        *,
        model: Model,
        samples: Samples,
        own_rows: Sequence[Ints],
        training: Training,
        steps: int,
        seed: int,
        hardware: Hardware = HERE,
    ) -> None:
        super().__init__(names, law, [len(rows) for rows in own_rows])
        self._rng = np.random.default_rng([seed, Stream.FLEET])
        shuffled = [self._rng.permutation(rows) for rows in own_rows]
        #: Samples that lie on each device, in the order in which it collects them.
        self.own_rows = dict(zip(names, shuffled, strict=True))
        self._steps, self._training = steps, training
        self._classroom = Classroom(model, samples, training, hardware)
        self._inbox: dict[str, list[Ints]] = {name: [] for name in names}
        self._began_s, self._cycle = 0.0, 0

    async def start(
        self, parameters: Parameters, slot: int, deadline_s: float
    ) -> list[Lost]:
        """Begin a cycle; no simulated device fails."""
        self._began_s, self._parameters = self._now_s, parameters
        self._cycle += 1
        self._plans: dict[str, list[Ints]] = {name: [] for name in self.learners}
        self._trained = dict.fromkeys(self.learners, 0)
        return []

    async def slot(
        self, number: int, moves: Mapping[str, Move], slot_s: float
    ) -> dict[str, Done | Lost]:
        """Move samples; training on them waits until the cycle ends."""
        inbox, done = {name: list[Ints]() for name in self.own_rows}, {}
        for name in set(self.learners).difference(moves):  # it is gone, with its work
            self._plans[name], self._trained[name] = [], 0
        for name, move in moves.items():
            rows = self.own_rows[name][move.skipped : move.skipped + move.collected]
            parts = np.split(rows, np.cumsum([move.kept, *move.sent.values()]))
            for receiver, part in zip(move.sent, parts[1:-1], strict=True):
                inbox[receiver].append(part)
            due = np.concatenate([parts[0], *self._inbox[name]])
            if due.size:
                plan = batch_plan(due, self._steps, self._training, self._rng)
                self._plans[name].append(plan)
            self._trained[name] += due.size
            done[name] = Done(trained=due.size, delivered=move.sent)
        self._inbox = inbox
        self._now_s += slot_s
        return dict(done)

    def turnover(self) -> tuple[list[str], list[Lost]]:
        """Who enters and leaves is drawn beforehand, and part of the movement."""
        return [], []

    def state(self) -> Parameters:
        """Return the buffers that devices keep to themselves."""
        return self._classroom.state()

    def restore(self, saved: Parameters) -> None:
        """Restore those buffers."""
        self._classroom.restore(saved)

    def how(self) -> str:
        """Say how devices are trained here, and why not faster."""
        return self._classroom.how(self.learners)

    async def finish(self, deadline_s: float) -> AsyncIterator[Updates | Lost]:
        """Train all slots of the cycle for real."""
        busy = [k for k, name in enumerate(self.learners) if self._plans[name]]
        plans = [np.concatenate(self._plans[self.learners[k]]) for k in busy]
        names = [self.learners[k] for k in busy]
        after_s = self._now_s - self._began_s
        if not self.learning:
            return
        together = self._classroom.train(self._parameters, self._cycle, names, plans)
        for chunk, stack in together:
            reports = [
                Report(
                    learner=busy[i],
                    downloaded_s=0.0,
                    trained_s=after_s,
                    uploaded_s=after_s,
                    samples=self._trained[self.learners[busy[i]]],
                    batches=len(plans[i]),
                    loss=float(loss),
                    halted=False,
                )
                for i, loss in zip(chunk.learners, chunk.loss, strict=True)
            ]
            yield Updates(reports, stack)
