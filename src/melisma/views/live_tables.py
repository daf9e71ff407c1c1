"""The tables of `ledger`, updated record by record while a run is watched.

`ledger` itself computes the rows of a cycle, so they are the same as in a report. Only
the records of cycles that are not yet evaluated are kept in memory.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from melisma.runs.records import (
    ACCURACY,
    Aggregated,
    Allocated,
    Downloaded,
    Evaluated,
    Halted,
    LearnerEvent,
    Metric,
    Metrics,
    Moved,
    Record,
    Refused,
    Steered,
    Stopped,
    Trained,
    Uploaded,
)
from melisma.views import ledger
from melisma.views.fog_tables import FogTables
from melisma.views.incidents import Incident, incident_of
from melisma.views.ledger import (
    COUNTED,
    GOES_ON,
    SITS_OUT,
    UNDER_WAY,
    Cycle,
    Facts,
    LearnerCycle,
)
from melisma.views.names import Names
from melisma.views.tables import COUNT, NUMBER, SECONDS, TEXT, Table

#: Records of a learner's work on its order: nearly all there are.
_WORK = {Allocated, Downloaded, Trained, Halted, Uploaded}
#: Columns of the table of learner cycles; those of words are places in `Names`.
_FIELDS = LearnerCycle.__struct_fields__
_CYCLE_COUNTS = ("counted", "carried", "samples", "max_staleness")
_CYCLE_NUMBERS = ("mean_staleness", "truancy", "utilisation", "error")
#: Before the name of a metric's column: it may have the name of another.
_METRIC = "metric:"


def _kind(name: str) -> str:
    """Return the kind of column that a field of `LearnerCycle` needs."""
    if name.endswith("_s"):
        return SECONDS
    is_number = name.endswith("_j") or name in ("distance", "cost")
    return NUMBER if is_number else COUNT


class TaskProgress:
    """How far one task has got, and the records of its unfinished cycles."""

    def __init__(self, deadline_s: float) -> None:
        #: None until the run has chosen one, where it does.
        self.deadline_s = deadline_s if math.isfinite(deadline_s) else None
        self.why = ""  #: the run chose it
        self.expected: dict[int, float | None] = {}  #: loss after a cycle, if it did
        self.is_over = False  #: refused, or stopped before its last cycle
        self.metrics: tuple[Metric, ...] = ()  #: empty until they are known
        self.last: Evaluated | None = None
        self.samples = 0  #: trained, of the updates that count
        self.updates: Counter[str] = Counter()  #: how many "counted" and "lost"
        self._pending: dict[int, list[Record]] = {}
        self._stale: set[int] = set()  # cycles with new records
        self._facts: dict[int, Facts] = {}  # as of the last `changed()`
        self._merged: dict[int, Aggregated] = {}

    @property
    def done(self) -> int:
        """Number of whole cycles."""
        return self.last.cycle if self.last else 0

    def hold(self, records: Sequence[Record]) -> None:
        """Keep learners' records until their cycles are evaluated."""
        for cycle, group in groupby(records, attrgetter("cycle")):
            self._stale.add(cycle)
            self._pending.setdefault(cycle, []).extend(group)

    def merge(self, record: Aggregated) -> None:
        """Keep the aggregate of a cycle."""
        self._merged[record.cycle] = record
        self.samples += record.samples

    def changed(self) -> list[Facts]:
        """Return the rows that are new or different since the last call, by cycle."""
        found = []
        for cycle in sorted(self._stale):
            before = self._facts.get(cycle)
            self._facts[cycle] = facts = ledger.facts_of(self._pending[cycle])
            found.append(_new(facts, before) if before else facts)
        self._stale.clear()
        return found

    def cycle(self, number: int) -> Cycle | None:
        """Return the row of a cycle; None until it is aggregated."""
        if number not in self._merged:
            return None
        facts = self._facts.get(number) or ledger.facts_of(())
        tested = self.last if self.last and self.last.cycle == number else None
        return ledger.cycle_of(number, facts, self._merged[number], tested)

    def let_go(self) -> None:
        """Free the records of evaluated cycles, and add their updates to the counts."""
        for number in [n for n in self._pending if n <= self.done]:
            facts = self._facts.pop(number)
            counted, given = facts["outcome"].count(COUNTED), facts["samples"]
            carried = sum(age is not None for age in facts["carried"])
            self.updates["counted"] += counted + carried
            kept = counted + facts["outcome"].count(GOES_ON)
            self.updates["lost"] += sum(map(bool, given)) - kept
            del self._pending[number]
            self._merged.pop(number, None)


def _new(facts: Facts, before: Facts) -> Facts:
    """Return the rows of ``facts`` that ``before`` does not have."""
    known = set(zip(*before.values(), strict=True))
    rows = [row for row in zip(*facts.values(), strict=True) if row not in known]
    return {name: [row[n] for row in rows] for n, name in enumerate(facts)}


class LiveTables:
    """Tables of learner cycles, cycles and incidents, of one task or several."""

    def __init__(self, deadlines_s: Sequence[float]) -> None:
        self.position = 0  #: records seen
        self.time_s = 0.0  #: of the latest event
        self.progress = [TaskProgress(deadline_s) for deadline_s in deadlines_s]
        self.learners = Names()
        self.outcomes = Names(COUNTED, SITS_OUT, UNDER_WAY)
        self.options = Names("")  #: none, where there is nothing to choose from
        self.fog = FogTables(self.learners)
        self.learner_cycles = Table(
            task=COUNT, **{name: _kind(name) for name in _FIELDS}
        )
        self.cycles = Table(
            **dict.fromkeys(("task", "cycle"), COUNT),
            time_s=SECONDS,
            loss=NUMBER,
            cycle_s=SECONDS,
            **dict.fromkeys(_CYCLE_COUNTS, COUNT),
            **dict.fromkeys(_CYCLE_NUMBERS, NUMBER),
            **dict.fromkeys(("cost", "deadline_s", "expected_loss"), NUMBER),
        )
        self.incidents = Table(
            time_s=SECONDS,
            **dict.fromkeys(("task", "cycle", "learner"), COUNT),
            **dict.fromkeys(("what", "why"), TEXT),
        )
        #: Position of the last change of a deadline, or of what the metrics are.
        self.tasks_changed = 0
        # Pending until `settle`, which numbers learners with orders first.
        self._stale_cycles: dict[tuple[int, int], None] = {}
        self._present: dict[str, None] = {}
        self._incidents: list[tuple[int, Incident]] = []

    def see(self, task: int, records: Sequence[Record]) -> None:
        """Apply new records of a task."""
        began, seen = self.position, 0
        # Runs of work records between the few others are stored a slice at a time.
        for n in [n for n, r in enumerate(records) if type(r) not in _WORK]:
            self.progress[task].hold(records[seen:n])
            self.position, seen = began + n + 1, n + 1
            self._see(task, records[n])
        self.progress[task].hold(records[seen:])
        self.position = began + len(records)
        self.time_s = max([self.time_s, *(record.time_s for record in records)])

    def _see(self, task: int, record: Record) -> None:
        """Apply a record that is not about a learner's work."""
        if found := incident_of(record):
            self._incidents.append((task, found))
        if isinstance(record, Moved):
            self.fog.see(record, self.position)
        elif isinstance(record, LearnerEvent):
            self.progress[task].hold([record])
            self._present[record.learner] = None
        else:
            self._see_task(task, record)

    def _see_task(self, task: int, record: Record) -> None:
        """Apply a record that concerns the whole task."""
        progress = self.progress[task]
        match record:
            case Aggregated(cycle=cycle):
                progress.merge(record)
                self._stale_cycles[task, cycle] = None
            case Metrics(metrics=metrics):
                self._measure(task, metrics)
            case Evaluated(cycle=cycle):
                if not progress.metrics:
                    self._measure(task, (ACCURACY,))
                progress.last = record
                self._stale_cycles[task, cycle] = None
                self.settle()
                progress.let_go()
            case Steered(cycle=cycle, deadline_s=deadline_s, expected=expected):
                progress.deadline_s, progress.why = deadline_s, record.why
                progress.expected[cycle] = expected
                self.tasks_changed = self.position
            case Refused() | Stopped():
                progress.is_over = True

    def _measure(self, task: int, metrics: tuple[Metric, ...]) -> None:
        """Apply what a task's metrics are."""
        self.progress[task].metrics, self.tasks_changed = metrics, self.position
        for metric in metrics:
            self.cycles.add_column(_METRIC + metric.name, NUMBER)

    def settle(self) -> None:
        """Write the rows that changed into the tables."""
        for task, progress in enumerate(self.progress):
            for facts in progress.changed():
                self._put_learner_cycles(task, facts)
        for task, number in self._stale_cycles:
            if row := self.progress[task].cycle(number):
                self._put_cycle(task, row)
        for learner in self._present:
            self.learners.place(learner, self.position)
        for task, incident in self._incidents:
            self._put_incident(task, incident)
        for waiting in (self._stale_cycles, self._present, self._incidents):
            waiting.clear()
        self.fog.settle(self.position)

    def _put_incident(self, task: int, found: Incident) -> None:
        learner = None
        if found.learner:
            learner = self.learners.place(found.learner, self.position)
        row = (found.time_s, task, found.cycle, learner, found.what, found.detail)
        self.incidents.put(self.position, len(self.incidents), row)

    def _put_learner_cycles(self, task: int, facts: Facts) -> None:
        columns = facts | {"task": [task] * len(facts["cycle"])}
        words = {"learner": self.learners, "outcome": self.outcomes}
        for name, known in (words | {"option": self.options}).items():
            columns[name] = [known.place(word, self.position) for word in facts[name]]
        keys = zip(
            *(columns[name] for name in ("task", "cycle", "learner")), strict=True
        )
        self.learner_cycles.put_all(self.position, list(keys), columns)

    def _put_cycle(self, task: int, cycle: Cycle) -> None:
        cost = self.fog.cycle_cost(cycle.cycle)
        values = {_METRIC + name: value for name, value in cycle.metrics.items()}
        row = (
            *(task, cycle.cycle, cycle.time_s),
            *(cycle.loss, cycle.cycle_s),
            *(getattr(cycle, name) for name in _CYCLE_COUNTS),
            *(getattr(cycle, name) for name in _CYCLE_NUMBERS),
            cycle.cost if cost is None else cost,
            self.progress[task].deadline_s,
            self.progress[task].expected.get(cycle.cycle),
            *(values.get(name) for name in self.cycles.names if _is_metric(name)),
        )
        self.cycles.put(self.position, (task, cycle.cycle), row)

    def since(self, position: int) -> dict[str, Any]:
        """Return the rows that changed after ``position``, by the document's names."""
        self.settle()
        found: dict[str, Any] = {}
        for name in ("learners", "outcomes", "options"):
            names: Names = getattr(self, name)
            if names.grew_after(position):
                found[name] = list(names)
        tables = {
            "turns": self.learner_cycles,
            "cycles": self.cycles,
            "incidents": self.incidents,
        }
        for name, table in tables.items():
            if rows := table.since(position):
                found[name] = rows
        if "cycles" in found:
            found["cycles"] = _with_metrics(found["cycles"])
        fog = self.fog.since(position)
        return found | ({"fog": fog} if fog or position == 0 else {})


def _is_metric(column: str) -> bool:
    return column.startswith(_METRIC)


def _with_metrics(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of cycles with those of metrics in one field, by name."""
    found = {name: values for name, values in columns.items() if not _is_metric(name)}
    metrics = {n.removeprefix(_METRIC): columns[n] for n in columns if _is_metric(n)}
    return found | {"metrics": metrics}
