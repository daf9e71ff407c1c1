"""Job files, the table of families, and what is built from a job."""

from typing import TYPE_CHECKING

from melisma.lazy import offer

if TYPE_CHECKING:
    from melisma.jobs.asynchronous_table import AsynchronousTable
    from melisma.jobs.building import dataset_of, own_rows, workload_of
    from melisma.jobs.data_table import DataTable, Split
    from melisma.jobs.fog_table import Costs, FogTable
    from melisma.jobs.schema import (
        AggregationTable,
        Job,
        LearnersTable,
        ParticipationTable,
        StateTable,
        TrainingTable,
        WorkloadTable,
    )
    from melisma.jobs.wire_table import OptionTable

__all__ = [
    "AggregationTable",
    "AsynchronousTable",
    "Costs",
    "DataTable",
    "FogTable",
    "Job",
    "LearnersTable",
    "OptionTable",
    "ParticipationTable",
    "Split",
    "StateTable",
    "TrainingTable",
    "WorkloadTable",
    "dataset_of",
    "own_rows",
    "workload_of",
]

offer(
    globals(),
    asynchronous_table="AsynchronousTable",
    building="dataset_of own_rows workload_of",
    data_table="DataTable Split",
    fog_table="Costs FogTable",
    schema="AggregationTable Job LearnersTable ParticipationTable StateTable "
    "TrainingTable WorkloadTable",
    wire_table="OptionTable",
)
