"""The state of a run, restored from its records alone."""

from collections import Counter
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
        self._began_s: dict[str, float] = {}  # of each learner's last cycle
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
            case records.Allocated(learner=name, time_s=time_s):
                self._began_s[name] = time_s
            case records.Trained() | records.Halted():
                before = self.seen.get(record.learner, UNSEEN)
                self.seen[record.learner] = before._replace(
                    cycles=before.cycles + 1,
                    last=record.cycle,
                    samples=record.samples,
                    loss=record.loss or 0.0,
                )
            case records.Uploaded(learner=name, time_s=time_s) if name in self.seen:
                took_s = time_s - self._began_s.get(name, time_s)
                self.seen[name] = self.seen[name]._replace(seconds=took_s)
            case records.Steered(cycle=number, deadline_s=deadline_s, trained=trained):
                self.deadline_s, self.by_hand = deadline_s, not record.why
                if trained is not None:
                    self.trained[number] = trained
            case records.Evaluated(cycle=number, loss=loss):
                self.done, self.broken = number, loss is None
                self.evaluations.append(record)
            case records.Stopped():
                self.stopped = True
