"""What became of coded workers' batteries over a run."""

from collections.abc import Iterable
from dataclasses import dataclass

from melisma.runs.records import Powered


@dataclass(frozen=True, slots=True, kw_only=True)
class Battery:
    """One worker's, over all its cycles."""

    end_j: float
    lowest_j: float
    stored_j: float
    computing_j: float
    sending_j: float
    waited_s: float  #: with an answer, for a channel or for energy


def batteries(powered: Iterable[Powered]) -> dict[str, Battery]:
    """Return each worker's, in the order of their first records."""
    rows: dict[str, list[Powered]] = {}
    for record in powered:
        rows.setdefault(record.learner, []).append(record)
    return {
        name: Battery(
            end_j=own[-1].battery_j,
            lowest_j=min(row.lowest_j for row in own),
            stored_j=sum(row.stored_j for row in own),
            computing_j=sum(row.computing_j for row in own),
            sending_j=sum(row.sending_j for row in own),
            waited_s=sum(row.waited_s for row in own),
        )
        for name, own in rows.items()
    }
