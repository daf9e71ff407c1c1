"""Events that a reader of a report should notice."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from melisma.runs.records import (
    Checked,
    Dropped,
    Expelled,
    Joined,
    LearnerEvent,
    Left,
    Record,
    Refused,
    Steered,
    Stopped,
    Waited,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """An event that a reader of the report should notice."""

    time_s: float
    cycle: int
    learner: str  #: empty if the whole task is concerned
    what: str  #: one of GRAVITY
    detail: str = ""


#: Kinds of incident, the gravest first.
GRAVITY = (
    *("expelled", "refused", "stopped", "dropped"),
    *("waited", "left", "joined", "steered", "checked"),
)


#: Records that may be incidents: others are skipped by a look at their type.
_NOTABLE = {
    *(Joined, Left, Dropped, Checked, Expelled, Refused, Steered, Stopped, Waited),
}


def incidents(records: Iterable[Record]) -> list[Incident]:
    """Return the incidents in order; learners that join the first cycle are none."""
    return [found for record in records if (found := incident_of(record))]


def incident_of(record: Record) -> Incident | None:
    """Return a record as an incident; None if it is not one."""
    if type(record) not in _NOTABLE:
        return None
    match record:
        case Joined(cycle=number) if number > 1:
            what, detail = "joined", ""
        case Left():
            what, detail = "left", ""
        case Dropped(reason=detail, offence=offence):
            what = "refused" if offence else "dropped"
        case Checked(distance=None):
            what, detail = "checked", "distance not finite"
        case Checked(distance=float(distance)):
            what, detail = "checked", f"distance {distance:.2g}"
        case Expelled(reason=detail):
            what = "expelled"
        case Refused(reason=detail):
            what = "refused"
        case Stopped(reason=detail):
            what = "stopped"
        case Waited(reason=detail):
            what = "waited"
        case Steered(deadline_s=deadline_s, why=""):  # by hand
            what, detail = "steered", f"deadline {deadline_s:g} s"
        case _:
            return None
    return Incident(
        time_s=record.time_s,
        cycle=record.cycle,
        learner=record.learner if isinstance(record, LearnerEvent) else "",
        what=what,
        detail=detail,
    )


def gravest(incidents: Sequence[Incident], most: int) -> list[Incident]:
    """Return the ``most`` gravest incidents, still in order of time."""
    ranks = sorted(
        range(len(incidents)), key=lambda i: (GRAVITY.index(incidents[i].what), i)
    )
    return [incidents[i] for i in sorted(ranks[:most])]
