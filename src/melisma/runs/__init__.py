"""Records of a run, its folder, and following it as it grows."""

from melisma.runs import records
from melisma.runs.records import Record, evaluations

__all__ = ["Record", "evaluations", "records"]
