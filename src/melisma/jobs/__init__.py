"""Job files, the table of families, and what is built from a job."""

from typing import TYPE_CHECKING

from melisma.lazy import offer

if TYPE_CHECKING:
    from melisma.jobs.data_table import DataTable
    from melisma.jobs.fog_table import Costs, FogTable
    from melisma.jobs.schema import (
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
    data_table="DataTable",
    fog_table="Costs FogTable",
    schema="Job LearnersTable TrainingTable WorkloadTable",
)
