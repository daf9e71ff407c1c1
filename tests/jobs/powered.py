"""The small demo, whose learners draw, cost and emit something."""

from collections import defaultdict
from typing import Any

import msgspec
from tests.jobs.small import small

from melisma.jobs.energy_table import PowerTable
from melisma.jobs.schema import Job
from melisma.runs.records import Allocated, Record

HUNGRY = {"computing": "60 W", "sending": "10 W", "waking": "0.5 J"}
FRUGAL = {"computing": "10 W", "sending": "5 W"}
SLOW = {"computing": "3.5 W", "sending": "3 W"}


def powered(*powers: dict[str, Any], **changes: Any) -> Job:
    """The small demo, whose laptops, jetsons and pis draw what is given."""
    job = small()
    tables = [PowerTable(**power) for power in powers or (HUNGRY, FRUGAL, SLOW)]
    learners = tuple(
        msgspec.structs.replace(group, power=table)
        for group, table in zip(job.learners, tables, strict=True)
    )
    usual: dict[str, Any] = {"scheme": "energy-most", "cycles": 4, "steps": 2}
    return small(**(usual | {"learners": learners} | changes))


def sums(records: list[Record], field: str, kind: type = Allocated) -> list[float]:
    """Return a field of all learners, for each cycle."""
    found: defaultdict[int, float] = defaultdict(float)
    for record in records:
        if isinstance(record, kind):
            found[record.cycle] += getattr(record, field)
    return [found[cycle] for cycle in sorted(found)]
