"""The fog's cycle: devices collect data slot by slot and move it before they train.

muster → begin → (collect → plan → keep, send or discard → train) for τ slots
  → average, weighted by samples really trained → evaluate → record

Data sent in one slot are trained on in the next, across cycles too; what the very last
slot sends is trained on in one slot more.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from melisma.algorithms.averaging import FRUITLESS, merged
from melisma.algorithms.control import Steering
from melisma.algorithms.log import Diary, Sink
from melisma.algorithms.loop import Cycles, Keep
from melisma.algorithms.task import Plan, Task
from melisma.errors import InfeasibleError
from melisma.fleets.moves import Devices, Done, Move
from melisma.fleets.protocols import Lost
from melisma.fog import Flows, Movement
from melisma.fog.online import Course, Planner
from melisma.learning.evaluation import evaluate
from melisma.learning.parameters import Parameters, parameters_of, put
from melisma.maths.arrays import Ints
from melisma.runs.records import Joined, Moved, Record
from melisma.system.law import DelayLaw
from melisma.system.problem import Allocation

#: Data, costs, links and capacities of devices with so many samples of their own.
Nature = Callable[[Sequence[str], Sequence[int], DelayLaw], Movement]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fogging:
    """How data is moved."""

    period: int  #: τ, slots in a cycle
    planner: Planner
    nature: Nature


async def run_fog(
    task: Task,
    fleet: Devices,
    sink: Sink,
    fogging: Fogging,
    *,
    past: Sequence[Record] = (),
    keep: Keep = lambda cycle, parameters: None,
    patient: bool = False,
    steering: Steering | None = None,
) -> Parameters:
    """Train ``task`` on ``fleet`` for all its cycles; return the model's parameters.

    As `orchestrator.run`. The movement is that of the devices which are there at the
    start: one that comes back goes on, one that is new sits out.
    """
    parameters = parameters_of(task.model)
    journey: Journey | None = None
    fruitless = 0
    cycles = Cycles(task, fleet, sink, past, keep, steering)
    async for diary in cycles:
        task, number = diary.task, diary.cycle
        if await cycles.unless_stopped(_mustered(fleet)) is None:
            break
        diary.mustered()
        cycles.begun(diary)
        if journey is None:
            journey = await _journey(fleet, fogging, past)
        first = (number - 1) * fogging.period + 1
        lost = await fleet.start(parameters, first, task.deadline_s)
        given = await journey.cycle(task, fleet, diary, number, lost)
        diary.allocated(given)
        for one in lost:
            diary.lost(one)
        updates = fleet.finish(task.deadline_s)
        better = await merged(task, diary, parameters, updates)
        # A plan may discard all that is collected: then there is nothing to learn.
        idle = not lost and not given.allocation.samples.any()
        fruitless = 0 if better or idle else fruitless + 1
        if better:
            parameters = better
            put(parameters, task.model)
        elif not idle and (not patient or fruitless == FRUITLESS):
            raise diary.fruitless()
        diary.aggregated(given)
        diary.evaluated(*evaluate(task.model, task.data.test_x, task.data.test_y))
        cycles.end(diary, parameters)
    return parameters


async def _mustered(fleet: Devices) -> bool:
    await fleet.ready()
    return True


async def _journey(
    fleet: Devices, fogging: Fogging, past: Sequence[Record]
) -> "Journey":
    """Begin, or go on where the past ended."""
    first = [r.learner for r in past if isinstance(r, Joined) and r.cycle == 1]
    names = first or list(fleet.learners)
    own = dict(zip(fleet.learners, fleet.own_samples or (), strict=True))
    if missing := [name for name in names if name not in own]:
        raise InfeasibleError(
            f"{', '.join(missing)} began this run and cannot be asked what data lies "
            "there: wait for them, then resume"
        )
    law = await fleet.law()
    places = np.array([fleet.learners.index(name) for name in names])
    problem = fogging.nature(names, [own[name] for name in names], law.only(places))
    return Journey(names, problem, fogging, past)


class Journey:
    """Where all samples go, from the first slot to the last."""

    def __init__(
        self,
        names: Sequence[str],
        problem: Movement,
        fogging: Fogging,
        past: Iterable[Record] = (),
    ) -> None:
        self._names, self._problem, self._fogging = names, problem, fogging
        self._number = {name: i for i, name in enumerate(names)}
        self._course = Course(problem, whole=True)
        collected = np.cumsum(problem.data, axis=0) - problem.data
        self._skipped = collected.round().astype(np.int64)
        self._absent: Ints = np.zeros(0, dtype=np.int64)
        #: What lies on each device for the next slot, and from whom.
        self._arrived: dict[str, Counter[str]] = {name: Counter() for name in names}
        moved = [record for record in past if isinstance(record, Moved)]
        last = max((record.slot for record in moved), default=0)
        for record in moved:
            if record.slot == last:
                self._deliver(record.learner, record.sent)

    async def cycle(
        self,
        task: Task,
        fleet: Devices,
        diary: Diary,
        number: int,
        lost: list[Lost],
    ) -> Plan:
        """Go through the slots of a cycle; return what devices were given to train on.

        Who fails is added to ``lost``, and takes no part until the next cycle.
        """
        tau, slots = self._fogging.period, self._problem.slots
        slot_s = task.deadline_s / tau
        given: Counter[str] = Counter()
        end = number * tau + (number * tau == slots)
        for t in range((number - 1) * tau, end):
            gone = {fleet.learners[one.learner] for one in lost}
            there = [n for n in self._names if n in fleet.learners and n not in gone]
            moves = self._moves(t, there)
            done = await fleet.slot(t + 1, moves, slot_s)
            for name, move in moves.items():
                given[name] += move.due
                came = done[name]
                if isinstance(came, Lost):
                    lost.append(came)
                    came = Done(trained=0, delivered={})
                else:
                    self._deliver(name, came.delivered)
                    kept = Counter(move.sent) - Counter(came.delivered)
                    self._deliver(name, {name: kept.total()})
                self._note(diary, t, name, move, came)
        amounts = np.array([given[name] for name in fleet.learners], dtype=np.int64)
        steps = np.where(amounts > 0, task.steps, 0)
        return Plan(Allocation(samples=amounts, steps=steps), predicted_s=None)

    def _deliver(self, sender: str, sent: Mapping[str, int]) -> None:
        for receiver, samples in sent.items():
            if samples and receiver in self._arrived:
                self._arrived[receiver][sender] += samples

    def _moves(self, t: int, there: Sequence[str]) -> dict[str, Move]:
        """What those who are there do in slot t; all that has arrived is used up."""
        arrived, names = self._arrived, self._names
        self._arrived = {name: Counter() for name in names}
        if t == self._problem.slots:
            return {name: Move(arrived=arrived[name]) for name in there}
        course = self._course
        absent = np.flatnonzero([name not in there for name in names])
        if not np.array_equal(absent, self._absent):
            self._absent = absent
            course.problem = self._problem.without(absent, t)
        course.arrived = np.array([arrived[name].total() for name in names], float)
        plan = self._fogging.planner(course.problem, t, course.arrived)
        return self._named(t, course.follow(t, plan), there, arrived)

    def _named(
        self,
        t: int,
        flows: Flows,
        there: Sequence[str],
        arrived: Mapping[str, Mapping[str, int]],
    ) -> dict[str, Move]:
        problem, names = self._course.problem, self._names
        some = problem.links.between(t, t + 1)
        source, target = problem.links.source[some], problem.links.target[some]
        fares = problem.link_cost[some]
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

    def _note(self, diary: Diary, t: int, name: str, move: Move, done: Done) -> None:
        """Record what a device did in slot t, and what that costs."""
        problem, i = self._problem, self._number[name]
        last = t == problem.slots  # one more, like the last, but without γ
        row = t - last
        short = 0.0 if last else problem.gamma[row, i]
        error = short / (done.trained + problem.idle_samples[row, i]) ** 0.5
        error += problem.discard_cost[row, i] * move.discarded
        diary.moved(
            name,
            slot=t + 1,
            collected=move.collected,
            trained=done.trained,
            arrived=sum(move.arrived.values()),
            discarded=move.discarded,
            sent=dict(done.delivered),
            process_cost=float(problem.process_cost[row, i] * done.trained),
            transfer_cost=sum(
                samples * self._fares[name, receiver]
                for receiver, samples in done.delivered.items()
            ),
            error_cost=float(error),
        )
