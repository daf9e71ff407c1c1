"""The rows of `ledger` as records come, for who watches.

What a learner's records of a cycle come to is asked of `ledger` itself, so the rows are
the same. Records are held until their cycle is evaluated, and no longer.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from melisma.runs import ledger
from melisma.runs.fog_tables import FogTables
from melisma.runs.ledger import (
    COUNTED,
    SITS_OUT,
    UNDER_WAY,
    Cycle,
    Incident,
    Turn,
)
from melisma.runs.names import Names
from melisma.runs.tables import COUNT, NUMBER, SECONDS, TEXT, Table
from melisma.runtime.records import (
    Aggregated,
    Evaluated,
    LearnerEvent,
    Moved,
    Record,
    Refused,
    Steered,
)

#: What is known of a turn, as a row has it; its learner and outcome are places there.
_TURN = Turn.__struct_fields__
_CYCLE_COUNTS = ("counted", "samples", "max_staleness")
_CYCLE_NUMBERS = ("mean_staleness", "truancy", "utilisation", "error")


def _kind(name: str) -> str:
    """What a fact of a turn is."""
    if name.endswith("_s"):
        return SECONDS
    return NUMBER if name in ("distance", "cost") else COUNT


class Course:
    """How far one task is."""

    def __init__(self, deadline_s: float) -> None:
        self.deadline_s = deadline_s
        self.refused = False
        self.last: Evaluated | None = None
        self.samples = 0  #: of updates that count
        self.updates: Counter[str] = Counter()  #: counted and lost
        self._held: dict[int, dict[str, list[Record]]] = {}
        self._stale: set[int] = set()  # cycles with records that are new
        self._turns: dict[int, dict[str, Turn]] = {}  # as of the last time asked
        self._merged: dict[int, Aggregated] = {}

    @property
    def done(self) -> int:
        """Whole cycles."""
        return self.last.cycle if self.last else 0

    def group(self, cycle: int) -> dict[str, list[Record]]:
        """Where a cycle's records are kept by learner until it is over."""
        self._stale.add(cycle)
        return self._held.setdefault(cycle, {})

    def merge(self, record: Aggregated) -> None:
        """Keep what a cycle came to."""
        self._merged[record.cycle] = record
        self.samples += record.samples

    def changed(self) -> list[Turn]:
        """What the records come to now, where that is new since the last time."""
        found = []
        for cycle in sorted(self._stale):
            known = self._turns.setdefault(cycle, {})
            for learner, group in self._held[cycle].items():
                turn = ledger.turn_of(group)
                if turn and turn != known.get(learner):
                    known[learner] = turn
                    found.append(turn)
        self._stale.clear()
        return found

    def cycle(self, number: int) -> Cycle | None:
        """What a cycle came to, once it is aggregated."""
        if number not in self._merged:
            return None
        turns = list(self._turns.get(number, {}).values())
        tested = self.last if self.last and self.last.cycle == number else None
        return ledger.cycle_of(number, turns, self._merged[number], tested)

    def let_go(self) -> None:
        """Forget the records of cycles that are over."""
        for number in [n for n in self._held if n <= self.done]:
            for turn in self._turns.pop(number, {}).values():
                if turn.samples:
                    self.updates["counted" if turn.outcome == COUNTED else "lost"] += 1
            del self._held[number]
            self._merged.pop(number, None)


class Growing:
    """Tables of turns, cycles and incidents, of one task or several."""

    def __init__(self, deadlines_s: Sequence[float]) -> None:
        self.position = 0  #: records seen
        self.time_s = 0.0  #: of the latest event
        self.courses = [Course(deadline_s) for deadline_s in deadlines_s]
        self.learners = Names()
        self.outcomes = Names(COUNTED, SITS_OUT, UNDER_WAY)
        self.fog = FogTables(self.learners)
        self.turns = Table(task=COUNT, **{name: _kind(name) for name in _TURN})
        self.cycles = Table(
            **dict.fromkeys(("task", "cycle"), COUNT),
            time_s=SECONDS,
            **dict.fromkeys(("accuracy", "loss"), NUMBER),
            cycle_s=SECONDS,
            **dict.fromkeys(_CYCLE_COUNTS, COUNT),
            **dict.fromkeys(_CYCLE_NUMBERS, NUMBER),
            **dict.fromkeys(("cost", "deadline_s"), NUMBER),
        )
        self.incidents = Table(
            time_s=SECONDS,
            **dict.fromkeys(("task", "cycle", "learner"), COUNT),
            **dict.fromkeys(("what", "why"), TEXT),
        )
        self.steered = 0  #: the position at which a deadline changed last
        self._stale_cycles: dict[tuple[int, int], None] = {}

    def see(self, task: int, records: Iterable[Record]) -> None:
        """Take in what has happened to a task."""
        course = self.courses[task]
        for record in records:
            self.position += 1
            if record.time_s > self.time_s:
                self.time_s = record.time_s
            if not isinstance(record, LearnerEvent):
                self._see_task(task, record)
            elif isinstance(record, Moved):
                self.fog.see(record, self.position)
            else:
                group = course.group(record.cycle)
                if known := group.get(record.learner):
                    known.append(record)
                else:
                    group[record.learner] = [record]
                    self.learners.place(record.learner, self.position)
            if ledger.is_notable(record) and (found := ledger.incident_of(record)):
                self._note(task, found)

    def _see_task(self, task: int, record: Record) -> None:
        """Take in what is no learner's."""
        course = self.courses[task]
        match record:
            case Aggregated(cycle=cycle):
                course.merge(record)
                self._stale_cycles[task, cycle] = None
            case Evaluated(cycle=cycle):
                course.last = record
                self._stale_cycles[task, cycle] = None
                self.settle()
                course.let_go()
            case Steered(deadline_s=deadline_s):
                course.deadline_s, self.steered = deadline_s, self.position
            case Refused():
                course.refused = True

    def _note(self, task: int, found: Incident) -> None:
        """Keep what is out of the ordinary."""
        learner = None
        if found.learner:
            learner = self.learners.place(found.learner, self.position)
        row = (found.time_s, task, found.cycle, learner, found.what, found.detail)
        self.incidents.put(self.position, len(self.incidents), row)

    def settle(self) -> None:
        """Bring the tables up to date with all that was seen."""
        for task, course in enumerate(self.courses):
            for turn in course.changed():
                self._put_turn(task, turn)
        for task, number in self._stale_cycles:
            if row := self.courses[task].cycle(number):
                self._put_cycle(task, row)
        self._stale_cycles.clear()
        self.fog.settle(self.position)

    def _put_turn(self, task: int, turn: Turn) -> None:
        cycle, name, *facts, outcome = msgspec.structs.astuple(turn)
        learner = self.learners.place(name, self.position)
        key = task, cycle, learner
        row = *key, *facts, self.outcomes.place(outcome, self.position)
        self.turns.put(self.position, key, row)

    def _put_cycle(self, task: int, cycle: Cycle) -> None:
        cost = self.fog.cycle_cost(cycle.cycle)
        row = (
            *(task, cycle.cycle, cycle.time_s),
            *(cycle.accuracy, cycle.loss, cycle.cycle_s),
            *(getattr(cycle, name) for name in _CYCLE_COUNTS),
            *(getattr(cycle, name) for name in _CYCLE_NUMBERS),
            cycle.cost if cost is None else cost,
            self.courses[task].deadline_s,
        )
        self.cycles.put(self.position, (task, cycle.cycle), row)

    def since(self, position: int) -> dict[str, Any]:
        """Return what changed after ``position``, as in the document."""
        self.settle()
        found: dict[str, Any] = {}
        for name in ("learners", "outcomes"):
            names: Names = getattr(self, name)
            if names.grew_after(position):
                found[name] = list(names)
        for name in ("turns", "cycles", "incidents"):
            if rows := getattr(self, name).since(position):
                found[name] = rows
        fog = self.fog.since(position)
        return found | ({"fog": fog} if fog or position == 0 else {})
