"""A run's event log: one typed record per event.

The orchestrator appends records in the order in which it learns of the events;
everything else only reads them. ``time_s`` counts from the start of the run on the
fleet's clock. A record is one line of JSON whose ``event`` names its type.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from melisma.errors import DataError

#: Why the work of a spot instance is lost, in a `Dropped` record.
RECLAIMED = "reclaimed before it was done"


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", gc=False):
    """Something that happened to a task in one of its cycles."""

    time_s: float
    task: str
    cycle: int  #: from 1


class LearnerEvent(Event, frozen=True, kw_only=True):
    """Something that happened to one learner."""

    learner: str


class Refused(Event, frozen=True, kw_only=True, tag="refused"):
    """A task was not admitted beside those under way."""

    reason: str


class Joined(LearnerEvent, frozen=True, kw_only=True, tag="joined"):
    """A learner takes part from this cycle on; in a fog, from this moment on."""


class Left(LearnerEvent, frozen=True, kw_only=True, tag="left"):
    """A learner that took part before is absent from this cycle or moment on."""


class Expelled(LearnerEvent, frozen=True, kw_only=True, tag="expelled"):
    """A learner was removed for good."""

    reason: str


class Steered(Event, frozen=True, kw_only=True, tag="steered"):
    """The task has another deadline from this cycle on.

    It was changed by hand, or the run chose it: then it says why.
    """

    deadline_s: float
    why: str = ""  #: the run chose it
    trained: float | None = None  #: samples of a learner in the mean, that fit into it
    expected: float | None = None  #: loss after the cycle


class Stopped(Event, frozen=True, kw_only=True, tag="stopped"):
    """The task ends after this cycle, as its job's ``stop`` says."""

    reason: str


class Waited(Event, frozen=True, kw_only=True, tag="waited"):
    """A cycle waits to be planned: for learners that come back, or for batteries."""

    reason: str  #: why it cannot be planned yet


class Allocated(
    LearnerEvent, frozen=True, kw_only=True, tag="allocated", omit_defaults=True
):
    """A learner was allocated work for a cycle; 0 samples: it sits out."""

    samples: int
    steps: int
    predicted_s: float | None  #: None where only the learner itself knows (DAB)
    cost: float | None = None  #: where learners have prices
    planned_s: float | None = None  #: predicted with care, where lateness is limited
    why: str = ""  #: it sits out, where that is known
    option: str = ""  #: by which it takes part, where there are several
    saved_bytes: int = 0  #: that travel less than by the first of them
    predicted_j: float | None = None  #: where it is known what the learner draws
    battery_j: float | None = None  #: left once that is spent, where it has a battery
    risk: float | None = None  #: chance that it is reclaimed before it is done


class Downloaded(LearnerEvent, frozen=True, kw_only=True, tag="downloaded"):
    """A learner has its model and data."""


class Moved(LearnerEvent, frozen=True, kw_only=True, tag="moved"):
    """A device of a fog kept, sent or discarded what it collected in a slot.

    One that is gone has such a record if samples were on their way to it: it discards
    them.
    """

    slot: int  #: from 1; an extra last slot only trains on what the one before sent
    collected: int  #: samples
    trained: int  #: its own samples, and those that had arrived
    arrived: int  #: from others, or returned because the receiver could not be reached
    discarded: int
    sent: dict[str, int]  #: samples by receiver
    process_cost: float
    transfer_cost: float
    error_cost: float  #: of discarding, and of training on few samples


class Powered(LearnerEvent, frozen=True, kw_only=True, tag="powered"):
    """What became of a coded worker's battery and queues in a cycle.

    The battery as the next cycle begins is what it was as this one did, and what was
    stored, less what was spent.
    """

    battery_j: float  #: at the end
    lowest_j: float
    harvested_j: float
    stored_j: float  #: of what was harvested; the rest found the battery full enough
    computing_j: float  #: spent
    sending_j: float  #: spent
    waited_s: float  #: an answer, for a channel or for energy
    waiting: float  #: answers to be sent, at most
    owed: float  #: answers, by the fair scheduler, at most


class Worked(LearnerEvent, frozen=True, kw_only=True):
    """A learner trained, completely or in part."""

    samples: int  #: seen at least once
    batches: int
    loss: float | None  #: mean over its training samples; None: not finite


class Trained(Worked, frozen=True, kw_only=True, tag="trained"):
    """A learner finished all its steps."""


class Halted(Worked, frozen=True, kw_only=True, tag="halted"):
    """A learner stopped at the deadline with part of its steps done."""


class Uploaded(
    LearnerEvent, frozen=True, kw_only=True, tag="uploaded", omit_defaults=True
):
    """A learner's update arrived."""

    late: bool = False  #: after the deadline
    spent_j: float | None = None  #: what the learner draws, times how long it took


class GoesOn(LearnerEvent, frozen=True, kw_only=True, tag="goes on"):
    """A learner was not done by the deadline: its update counts when it comes."""


class Carried(Worked, frozen=True, kw_only=True, tag="carried"):
    """The update of an order of an earlier cycle arrived, and counts in this one."""

    age: int  #: cycles since its order
    weight: float  #: of each of its samples: less with age


class Checked(LearnerEvent, frozen=True, kw_only=True, tag="checked"):
    """A learner's update was audited: recomputed and compared."""

    #: Between both updates, relative to the recomputed one; None: not finite.
    distance: float | None


class Dropped(LearnerEvent, frozen=True, kw_only=True, tag="dropped"):
    """A learner's update does not count."""

    reason: str
    offence: bool = False  #: the learner is to blame for the loss
    late: bool = False  #: for want of time


class Aggregated(Event, frozen=True, kw_only=True, tag="aggregated"):
    """The updates of a cycle were merged into one model."""

    learners: int  #: whose updates count
    samples: int  #: that they trained on
    cycle_s: float  #: from allocation to the last update
    max_staleness: int
    mean_staleness: float
    truancy: float
    utilisation: float
    error: float | None = None  #: of a decoded gradient, ‖aB − 1‖ / √K; 0: exact


class Metric(msgspec.Struct, frozen=True, gc=False):
    """What a figure of the test set is called, and how it is read."""

    name: str
    more_is_better: bool = True
    percent: bool = False  #: shown as a percentage: 0.875 as 87.5 %


#: The metric of runs that do not say which they have: those of version 0.2.
ACCURACY = Metric("accuracy", percent=True)


class Metrics(Event, frozen=True, kw_only=True, tag="metrics"):
    """By which metrics the task's model is evaluated; a run's first record."""

    metrics: tuple[Metric, ...]  #: the first is *the* metric
    batch: int | None = None  #: samples in one; None: the job of an older run has it


class Evaluated(Event, frozen=True, kw_only=True, tag="evaluated"):
    """The model was evaluated on the test set."""

    metrics: dict[str, float | None] = {}  #: in the task's order; None: not finite
    loss: float | None  #: None: not finite
    #: Of a record of version 0.2; it is moved into `metrics`, and never written.
    old_accuracy: float | msgspec.UnsetType = msgspec.field(
        default=msgspec.UNSET, name="accuracy"
    )

    def __post_init__(self) -> None:
        """Move the accuracy of a record of version 0.2 into the metrics."""
        if isinstance(self.old_accuracy, float):
            metrics = {ACCURACY.name: self.old_accuracy}
            msgspec.structs.force_setattr(self, "metrics", metrics)
            msgspec.structs.force_setattr(self, "old_accuracy", msgspec.UNSET)


Record = (
    Refused
    | Metrics
    | Joined
    | Left
    | Expelled
    | Steered
    | Stopped
    | Waited
    | Allocated
    | Downloaded
    | Moved
    | Powered
    | Trained
    | Halted
    | Uploaded
    | GoesOn
    | Carried
    | Checked
    | Dropped
    | Aggregated
    | Evaluated
)

_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


def line_of(record: Record) -> bytes:
    """Return a record as a line; numbers that are not finite become null."""
    return _ENCODER.encode(record) + b"\n"


def write(record: Record, file: BinaryIO) -> None:
    """Append one record."""
    file.write(line_of(record))


def read(path: Path, size: int | None = None) -> list[Record]:
    """Read all records, or those in the first ``size`` bytes.

    An incomplete last line is left out. DataError if any other line is damaged.
    """
    return list(_rows(path, size))


def _rows(path: Path, size: int | None) -> Iterator[Record]:
    try:
        with path.open("rb") as file:
            lines = file.read(size).splitlines(keepends=True)
    except OSError as error:
        raise DataError(f"no records at {path}: {error.strerror}") from error
    for number, line in enumerate(lines, start=1):
        try:
            yield _DECODER.decode(line)
        except msgspec.DecodeError as error:
            if number == len(lines) and not line.endswith(b"\n"):
                return
            raise DataError(f"{path}, line {number}: {error}") from error


def decode(lines: bytes) -> list[Record]:
    """Decode whole lines; DataError if one is damaged."""
    try:
        return _DECODER.decode_lines(lines)
    except msgspec.DecodeError as error:
        raise DataError(f"not records: {error}") from error


def metrics_by_task(records: Iterable[Record]) -> dict[str, tuple[Metric, ...]]:
    """Return the metrics of each task that was evaluated, or said which it has."""
    found: dict[str, tuple[Metric, ...]] = {}
    for record in records:
        if isinstance(record, Metrics):
            found[record.task] = record.metrics
        elif isinstance(record, Evaluated):
            found.setdefault(record.task, (ACCURACY,))
    return found


def evaluations(records: Iterable[Record]) -> list[Evaluated]:
    """Pick the evaluations, one a cycle."""
    return [record for record in records if isinstance(record, Evaluated)]
