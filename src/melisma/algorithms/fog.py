"""The fog's cycle: devices collect data slot by slot and move it before they train.

ready → start → (collect → plan → keep, send or discard → train) for τ slots
  → average, weighted by samples really trained

Data sent in one slot is trained on in the next, also across cycles; the run's last slot
is followed by one more, which only trains. Devices enter and leave between slots: one
that leaves takes with it what it trained on in this cycle and what was sent to it, and
one that enters begins with the cycle's model.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from melisma.algorithms.log import CycleLog
from melisma.algorithms.loop import POLL_S, WAIT_S, Outcome
from melisma.algorithms.merging import Merger
from melisma.algorithms.state import RunState
from melisma.algorithms.task import Plan
from melisma.errors import InfeasibleError, MelismaError
from melisma.fleets.moves import Done, Move, Moves
from melisma.fleets.protocols import Lost
from melisma.fog import Flows, Movement
from melisma.fog.online import Course, Planner
from melisma.learning.parameters import Parameters
from melisma.maths.arrays import Floats, Ints
from melisma.runs.records import Joined, Moved, Record
from melisma.system.law import DelayLaw
from melisma.system.problem import Allocation

logger = logging.getLogger("melisma.orchestrator")

#: Returns data, costs, links and capacities of devices, given their names, numbers of
#: own samples and delay law.
Environment = Callable[[Sequence[str], Sequence[int], DelayLaw], Movement]


@dataclass(frozen=True, slots=True, kw_only=True)
class FogSettings:
    """How data is moved."""

    period: int  #: τ, slots in a cycle
    planner: Planner
    environment: Environment


class Fog:
    """Devices collect and move data slot by slot, and average at the end of a cycle.

    A device that is new is added to the movement: costs and links are made anew with
    it, and what the others collect stays as it was. ``past`` are the records of a run
    that is resumed.
    """

    def __init__(
        self,
        crew: Moves,
        settings: FogSettings,
        past: Sequence[Record] = (),
        merger: Merger | None = None,
    ) -> None:
        self._crew, self.settings, self._past = crew, settings, past
        self._merger = merger or Merger()
        self._mover: DataMover | None = None
        self._own: dict[str, int] = {}  # samples of devices that were here

    async def begin(self, log: CycleLog, *, patient: bool) -> "DataMover":
        """Ask which devices are ready; before the first cycle, set up the movement."""
        crew, expected = self._crew, RunState(self._past).there
        until_s = crew.now_s() + (WAIT_S if patient and self._mover is None else 0.0)
        await crew.ready()
        while expected.difference(crew.learners) and crew.now_s() < until_s:
            await asyncio.sleep(POLL_S)
            await crew.ready()
        if self._mover is None:
            self._mover = await self._planned()
        await self._mover.admit(crew.learners, (log.cycle - 1) * self.settings.period)
        first_slot = (log.cycle - 1) * self.settings.period
        log.roster(names=self._mover.present(first_slot, crew.learners))
        return self._mover

    async def _planned(self) -> "DataMover":
        """Set up the movement, from where past records end."""
        crew, past = self._crew, self._past
        first, later = _devices(past)
        names = [*first, *later] or list(crew.learners)
        gone = [name for name in names if name not in crew.learners]
        if len(gone) == len(names):
            raise InfeasibleError(
                f"none of {', '.join(names)}, which began this run, is connected"
            )
        if gone:
            logger.warning("the fog goes on without %s", ", ".join(gone))
        collected = Counter[str]()
        for record in past:
            if isinstance(record, Moved):
                collected[record.learner] += record.collected
        self._own = {name: max(1, samples) for name, samples in collected.items()}
        names = first or names
        mover = DataMover(
            names, await self._movement(names), self.settings, self._movement
        )
        for name, slot in later.items():
            await mover.admit([name], slot)
        mover.resume(past)
        return mover

    async def _movement(self, names: Sequence[str]) -> Movement:
        """Return the movement of these devices.

        A device that is gone has no part in it any more. Numbers in its place, the
        samples that it has, or has collected, and the others' mean delays, keep the
        others' draws as they were.
        """
        crew = self._crew
        self._own |= dict(zip(crew.learners, crew.own_samples or (), strict=True))
        law, there = await crew.law(), [n for n in crew.learners if n in names]
        order = [n for n in names if n in there]
        law = law.only(np.array([crew.learners.index(n) for n in order]))
        law = _in_place(law, np.array([name in there for name in names]))
        samples = [self._own.get(name, 1) for name in names]
        return self.settings.environment(names, samples, law)

    async def cycle(
        self, log: CycleLog, begun: "DataMover", parameters: Parameters
    ) -> Outcome:
        """Go through the cycle's slots, and average the models."""
        crew, deadline_s = self._crew, log.task.deadline_s
        first = (log.cycle - 1) * self.settings.period + 1
        lost = await crew.start(parameters, first, deadline_s)
        plan = await begun.cycle(crew, log, lost)
        log.allocated(plan)
        for device in lost:
            log.lost(device)
        better = await self._merger.merge(
            log, crew, parameters, crew.finish(deadline_s)
        )
        # A plan may discard all that is collected: then there is nothing to learn.
        idle = not lost and not plan.allocation.samples.any()
        return Outcome(better, plan, idle=idle)

    def state(self) -> Parameters:
        """Return what merging keeps."""
        return self._merger.state()

    def restore(self, saved: Parameters) -> None:
        """Go on with it."""
        self._merger.restore(saved)

    def fruitless(self, log: CycleLog) -> MelismaError:
        """Return the error to raise when no update counts."""
        return log.fruitless()


def _devices(past: Iterable[Record]) -> tuple[list[str], dict[str, int]]:
    """Return a run's first devices, and the later ones with the slot of each."""
    first, later, slots = list[str](), dict[str, int](), 0
    for record in past:
        if isinstance(record, Moved):
            slots = max(slots, record.slot)
        elif isinstance(record, Joined) and record.learner not in first:
            if slots:
                later.setdefault(record.learner, slots)
            else:
                first.append(record.learner)
    return first, later


def _in_place(law: DelayLaw, there: NDArray[np.bool_]) -> DelayLaw:
    """Return the law of all devices: the mean of the others where one is not there."""

    def filled(values: Floats) -> Floats:
        whole = np.full(len(there), values.mean())
        whole[there] = values
        return whole

    return DelayLaw(
        step_s=filled(law.step_s),
        sample_s=filled(law.sample_s),
        fixed_s=filled(law.fixed_s),
    )


class DataMover:
    """Where all samples go, from the first slot to the last."""

    def __init__(
        self,
        names: Sequence[str],
        problem: Movement,
        settings: FogSettings,
        movement: Callable[[Sequence[str]], Awaitable[Movement]],
    ) -> None:
        self._settings, self._movement = settings, movement
        #: What lies on each device for the next slot, and from whom.
        self._arrived: dict[str, Counter[str]] = {name: Counter() for name in names}
        self._set(names, problem)

    def _set(self, names: Sequence[str], problem: Movement) -> None:
        self._names, self._problem = names, problem
        self._number = {name: i for i, name in enumerate(names)}
        self._course = Course(problem, whole=True)
        collected = np.cumsum(problem.data, axis=0) - problem.data
        self._skipped = collected.round().astype(np.int64)
        self._absent: Ints = np.zeros(0, dtype=np.int64)

    async def admit(self, names: Iterable[str], slot: int) -> None:
        """Add devices that are new, from a slot on, in this order."""
        for name in names:
            if name in self._number:
                continue
            grown, n = [*self._names, name], len(self._names)
            problem = await self._movement(grown)
            data, there = problem.data.copy(), problem.there.copy()
            data[:, :n], there[:, :n] = self._problem.data, self._problem.there
            there[:slot, n] = False
            self._arrived[name] = Counter()
            self._set(grown, replace(problem, data=data, there=there))

    def resume(self, past: Iterable[Record]) -> None:
        """Take up what the last slot of past records has sent."""
        moved = [record for record in past if isinstance(record, Moved)]
        last = max((record.slot for record in moved), default=0)
        for record in moved:
            if record.slot == last:
                self._deliver(record.learner, record.sent)

    async def cycle(self, crew: Moves, log: CycleLog, lost: list[Lost]) -> Plan:
        """Go through the slots of a cycle; return what devices were given to train on.

        A device that fails is added to ``lost``, and sits out until the next cycle.
        What is on its way to a device that is gone is lost with it.
        """
        tau, slots, number = self._settings.period, self._problem.slots, log.cycle
        slot_s = log.task.deadline_s / tau
        given: Counter[str] = Counter()
        out, away = {crew.learners[device.learner] for device in lost}, set[str]()
        end = number * tau + (number * tau == slots)
        for t in range((number - 1) * tau, end):
            came, left = crew.turnover()
            lost += left
            await self.admit(came, t)
            away = (away | {crew.learners[k.learner] for k in left}).difference(came)
            out = out.difference(came)
            here = [n for n in self.present(t, crew.learners) if n not in away]
            log.turnover(here)
            given = Counter({n: given[n] for n in here})
            there = [n for n in self._names if n in here and n not in out]
            stranded = {n: sent for n, sent in self._arrived.items() if n not in there}
            moves = self._moves(t, there)
            done = await crew.slot(t + 1, moves, slot_s)
            for name, sent in stranded.items():
                self._record_stranded(log, t, name, sent)
            for name, move in moves.items():
                given[name] += move.due
                result = done[name]
                discarded = move.discarded
                if isinstance(result, Lost):
                    lost.append(result)
                    out.add(name)
                    result = Done(trained=0, delivered={})
                    discarded = move.collected + sum(move.arrived.values())
                else:
                    self._deliver(name, result.delivered)
                    undelivered = Counter(move.sent) - Counter(result.delivered)
                    self._deliver(name, {name: undelivered.total()})
                self._record(log, t, name, move, result, discarded)
        amounts = np.array([given[name] for name in crew.learners], dtype=np.int64)
        steps = np.where(amounts > 0, log.task.steps, 0)
        return Plan(Allocation(samples=amounts, steps=steps), predicted_s=None)

    def present(self, t: int, names: Sequence[str]) -> list[str]:
        """Return which of these devices are there in slot t."""
        there = self._problem.there[min(t, self._problem.slots - 1)]
        return [n for n in names if n not in self._number or there[self._number[n]]]

    def _deliver(self, sender: str, sent: Mapping[str, int]) -> None:
        for receiver, samples in sent.items():
            if samples and receiver in self._arrived:
                self._arrived[receiver][sender] += samples

    def _moves(self, t: int, there: Sequence[str]) -> dict[str, Move]:
        """Return the moves in slot t of devices that are there; empties the inboxes."""
        arrived, names = self._arrived, self._names
        self._arrived = {name: Counter() for name in names}
        if t == self._problem.slots:
            return {name: Move(arrived=arrived[name]) for name in there}
        course = self._course
        # Absence that was drawn beforehand is in the problem, with its end.
        expected = self.present(t, names)
        absent = np.flatnonzero([n in expected and n not in there for n in names])
        if not np.array_equal(absent, self._absent):
            self._absent = absent
            course.problem = self._problem.without(absent, t)
        course.arrived = np.array([arrived[name].total() for name in names], float)
        plan = self._settings.planner(course.problem, t, course.arrived)
        return self._named(t, course.follow(t, plan), there, arrived)

    def _named(
        self,
        t: int,
        flows: Flows,
        there: Sequence[str],
        arrived: Mapping[str, Mapping[str, int]],
    ) -> dict[str, Move]:
        problem, names = self._course.problem, self._names
        now = problem.links.between(t, t + 1)
        source, target = problem.links.source[now], problem.links.target[now]
        fares = problem.link_cost[now]
        sent: dict[str, dict[str, int]] = {name: {} for name in names}
        self._fares: dict[tuple[str, str], float] = {}  # of a sample
        for e in np.flatnonzero(flows.sent).tolist():
            sender, receiver = names[source[e]], names[target[e]]
            sent[sender][receiver] = int(flows.sent[e])
            self._fares[sender, receiver] = float(fares[e])
        return {
            name: Move(
                skipped=int(self._skipped[t, i]),
                collected=int(problem.data[t, i]),
                kept=int(flows.kept[i]),
                sent=sent[name],
                arrived=arrived[name],
            )
            for i, name in enumerate(names)
            if name in there
        }

    def _record_stranded(
        self, log: CycleLog, t: int, name: str, sent: Mapping[str, int]
    ) -> None:
        """Record samples that were sent to a device that is gone in slot t.

        Each costs what discarding it would have cost its sender.
        """
        if not (samples := sum(sent.values())):
            return
        price = self._problem.discard_cost[t - 1]
        log.moved(
            name,
            slot=t + 1,
            collected=0,
            trained=0,
            arrived=samples,
            discarded=samples,
            sent={},
            process_cost=0.0,
            transfer_cost=0.0,
            error_cost=float(sum(n * price[self._number[s]] for s, n in sent.items())),
        )

    def _record(
        self,
        log: CycleLog,
        t: int,
        name: str,
        move: Move,
        done: Done,
        discarded: int,
    ) -> None:
        """Record what a device did in slot t, with its costs."""
        problem, i = self._problem, self._number[name]
        last = t == problem.slots  # one more, like the last, but without γ
        row = t - last
        short = 0.0 if last else problem.gamma[row, i]
        error = short / (done.trained + problem.idle_samples[row, i]) ** 0.5
        error += problem.discard_cost[row, i] * discarded
        log.moved(
            name,
            slot=t + 1,
            collected=move.collected,
            trained=done.trained,
            arrived=sum(move.arrived.values()),
            discarded=discarded,
            sent=dict(done.delivered),
            process_cost=float(problem.process_cost[row, i] * done.trained),
            transfer_cost=sum(
                samples * self._fares[name, receiver]
                for receiver, samples in done.delivered.items()
            ),
            error_cost=float(error),
        )
