"""The state of a run, restored from its records alone."""

from collections import Counter, defaultdict
from collections.abc import Iterable

from melisma.runs import records
from melisma.schemes.participation import Seen

#: A learner that has not taken part.
UNSEEN = Seen(cycles=0, last=0, samples=0, loss=0.0, seconds=0.0)


class RunState:
    """Learners present, offences of each, learners expelled, cycles done.

    It is restored from records alone, so a run that was cut short goes on with it.
    """

    def __init__(self, past: Iterable[records.Record] = ()) -> None:
        self.there: set[str] = set()
        self.expelled: dict[str, str] = {}
        self.offences: Counter[str] = Counter()
        self.deadline_s: float | None = None  #: if it was changed
        self.by_hand = False  #: it was, and not by the run itself
        self.trained: dict[int, float] = {}  #: planned, where the run chose a deadline
        self.began = False  #: there are records
        self.done = 0  #: cycles
        self.evaluations: list[records.Evaluated] = []  #: one a cycle
        self.stopped = False  #: before its last cycle
        self.broken = False  #: the model's loss was not finite after the last cycle
        self.seen: dict[str, Seen] = {}  #: what learners have shown, by name
        self.spent_j = self.cost = 0.0  #: of all learners, measured where it is known
        self.joules = defaultdict[str, float](float)  #: the same of each learner
        self.batteries: dict[str, tuple[float, float]] = {}  #: last time and joules
        self._predicted_j: dict[str, float] = {}  # of each learner's last cycle
        self._orders: dict[str, records.Allocated] = {}  # the last of each learner
        for record in past:
            self.see(record)

    def see(self, record: records.Record) -> None:
        """Apply a record."""
        self.began = True
        match record:
            case records.Joined(learner=name):
                self.there.add(name)
            case records.Left(learner=name):
                self.there.discard(name)
            case records.Expelled(learner=name, reason=reason):
                self.expelled[name] = reason
                # Who has the name afterwards has another token: it starts anew.
                self.offences.pop(name, None)
            case records.Dropped(learner=name, offence=True):
                self.offences[name] += 1
            case records.Dropped(reason=reason) if reason == records.RECLAIMED:
                self._cut_short(record)
            case records.Allocated(learner=name):
                self._orders[name] = record
                self._spend(record)
            case records.Trained() | records.Halted():
                before = self.seen.get(record.learner, UNSEEN)
                self.seen[record.learner] = before._replace(
                    cycles=before.cycles + 1,
                    last=record.cycle,
                    samples=record.samples,
                    loss=record.loss or 0.0,
                )
            case records.Uploaded(learner=name, time_s=time_s) if name in self.seen:
                order = self._orders.get(name)
                took_s = time_s - order.time_s if order else 0.0
                self.seen[name] = self.seen[name]._replace(seconds=took_s)
                self._correct(record)
            case records.Steered(cycle=number, deadline_s=deadline_s, trained=trained):
                self.deadline_s, self.by_hand = deadline_s, not record.why
                if trained is not None:
                    self.trained[number] = trained
            case records.Evaluated(cycle=number, loss=loss):
                self.done, self.broken = number, loss is None
                self.evaluations.append(record)
            case records.Stopped():
                self.stopped = True

    def _spend(self, order: records.Allocated) -> None:
        """Count what an order is predicted to spend."""
        self.cost += order.cost or 0.0
        self.spent_j += order.predicted_j or 0.0
        self.joules[order.learner] += order.predicted_j or 0.0
        self._predicted_j[order.learner] = order.predicted_j or 0.0
        if order.battery_j is not None:
            self.batteries[order.learner] = order.time_s, order.battery_j

    def _correct(self, uploaded: records.Uploaded) -> None:
        """Count what was measured in place of what was predicted."""
        if uploaded.spent_j is not None:
            self._count(uploaded.learner, uploaded.spent_j)

    def _cut_short(self, dropped: records.Dropped) -> None:
        """Count no more of an order than until its machine was reclaimed, by time."""
        order = self._orders.get(dropped.learner)
        if order is None or not order.predicted_s:
            return
        share = min((dropped.time_s - order.time_s) / order.predicted_s, 1.0)
        self.cost -= (1 - share) * (order.cost or 0.0)
        self._count(order.learner, share * (order.predicted_j or 0.0))

    def _count(self, name: str, spent_j: float) -> None:
        """Count joules in place of those that an order was predicted to spend."""
        more_j = spent_j - self._predicted_j.pop(name, spent_j)
        self.spent_j += more_j
        self.joules[name] += more_j
        if name in self.batteries:
            time_s, level_j = self.batteries[name]
            self.batteries[name] = time_s, max(0.0, level_j - more_j)
