"""What happened, one typed row per event.

The orchestrator writes rows in the order in which it hears of them; everything else
only reads them. ``time_s`` counts from the start of the run on the fleet's clock. A
row is one line of JSON whose ``event`` names its type.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from melisma.errors import DataError


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", gc=False):
    """Something that happened to a task in one of its cycles."""

    time_s: float
    task: str
    cycle: int  #: from 1


class LearnerEvent(Event, frozen=True, kw_only=True):
    """Something that happened to one learner."""

    learner: str


class Refused(Event, frozen=True, kw_only=True, tag="refused"):
    """A task was not let in beside those that were there."""

    reason: str


class Joined(LearnerEvent, frozen=True, kw_only=True, tag="joined"):
    """A learner takes part from this cycle on."""


class Left(LearnerEvent, frozen=True, kw_only=True, tag="left"):
    """A learner that took part before is not there in this cycle."""


class Expelled(LearnerEvent, frozen=True, kw_only=True, tag="expelled"):
    """A learner was sent away for good."""

    reason: str


class Steered(Event, frozen=True, kw_only=True, tag="steered"):
    """Somebody who watches gave the task another deadline, from this cycle on."""

    deadline_s: float


class Allocated(LearnerEvent, frozen=True, kw_only=True, tag="allocated"):
    """A learner was given work, or none."""

    samples: int
    steps: int
    predicted_s: float | None  #: None where only the learner itself knows (DAB)
    cost: float | None = None  #: where learners have prices


class Downloaded(LearnerEvent, frozen=True, kw_only=True, tag="downloaded"):
    """A learner has its model and data."""


class Moved(LearnerEvent, frozen=True, kw_only=True, tag="moved"):
    """A device of a fog kept, sent or discarded what it collected in a slot."""

    slot: int  #: from 1; one after the last only trains on what was sent in that
    collected: int  #: samples
    trained: int  #: of its own, and of those that had arrived
    arrived: int  #: from others, or back from those who could not be reached
    discarded: int
    sent: dict[str, int]  #: to whom
    process_cost: float
    transfer_cost: float
    error_cost: float  #: of discarding, and of training on few samples


class Worked(LearnerEvent, frozen=True, kw_only=True):
    """A learner trained, to the end or not."""

    samples: int  #: seen at least once
    batches: int
    loss: float | None  #: mean over its training samples; None: not finite


class Trained(Worked, frozen=True, kw_only=True, tag="trained"):
    """A learner finished all its steps."""


class Halted(Worked, frozen=True, kw_only=True, tag="halted"):
    """A learner stopped at the deadline, part of its work done."""


class Uploaded(LearnerEvent, frozen=True, kw_only=True, tag="uploaded"):
    """A learner's update arrived."""


class Checked(LearnerEvent, frozen=True, kw_only=True, tag="checked"):
    """A learner's work was redone and compared with what it sent."""

    #: Between the two, as a share of how far the work leads; None: not finite.
    distance: float | None


class Dropped(LearnerEvent, frozen=True, kw_only=True, tag="dropped"):
    """A learner's update does not count."""

    reason: str
    offence: bool = False  #: it sent what nobody asked for


class Aggregated(Event, frozen=True, kw_only=True, tag="aggregated"):
    """The updates of a cycle became one model."""

    learners: int  #: whose updates count
    samples: int  #: that they trained on
    cycle_s: float  #: from allocation to the last update
    max_staleness: int
    mean_staleness: float
    truancy: float
    utilisation: float
    error: float | None = None  #: of a decoded gradient, ‖aB − 1‖ / √K; 0: exact


class Evaluated(Event, frozen=True, kw_only=True, tag="evaluated"):
    """The model met the test set."""

    accuracy: float
    loss: float | None  #: None: not finite


Record = (
    Refused
    | Joined
    | Left
    | Expelled
    | Steered
    | Allocated
    | Downloaded
    | Moved
    | Trained
    | Halted
    | Uploaded
    | Checked
    | Dropped
    | Aggregated
    | Evaluated
)

_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


def write(record: Record, file: BinaryIO) -> None:
    """Append one row; numbers that are not finite become null."""
    file.write(_ENCODER.encode(record) + b"\n")


def read(path: Path) -> list[Record]:
    """Read all rows; a last line that was cut short is left out.

    A damaged line anywhere else is a DataError.
    """
    return list(_rows(path))


def _rows(path: Path) -> Iterator[Record]:
    try:
        lines = path.read_bytes().splitlines(keepends=True)
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
    """Read whole lines; DataError if one is damaged."""
    try:
        return _DECODER.decode_lines(lines)
    except msgspec.DecodeError as error:
        raise DataError(f"not records: {error}") from error


def evaluations(records: Iterable[Record]) -> list[Evaluated]:
    """Pick the evaluations, one a cycle."""
    return [record for record in records if isinstance(record, Evaluated)]
