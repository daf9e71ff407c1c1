"""Job files, the table of families, and what is built from a job."""

from typing import TYPE_CHECKING

from melisma.lazy import offer

if TYPE_CHECKING:
    from melisma.jobs.schema import (
        Costs,
        DataTable,
        FogTable,
        Job,
        LearnersTable,
        TrainingTable,
        WorkloadTable,
    )

__all__ = [
    "Costs",
    "DataTable",
    "FogTable",
    "Job",
    "LearnersTable",
    "TrainingTable",
    "WorkloadTable",
]

offer(
    globals(),
    schema="Costs DataTable FogTable Job LearnersTable TrainingTable WorkloadTable",
)
