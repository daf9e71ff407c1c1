"""Job files, the table of families, and what is built from a job."""

from typing import TYPE_CHECKING

from melisma.lazy import offer

if TYPE_CHECKING:
    from melisma.jobs.asynchronous_table import AsynchronousTable
    from melisma.jobs.benchmark_table import BenchmarkTable, Known
    from melisma.jobs.building import dataset_of, own_rows, workload_of
    from melisma.jobs.data_table import DataTable, Split
    from melisma.jobs.fog_table import Costs, FogTable
    from melisma.jobs.schema import (
        AggregationTable,
        Job,
        LearnersTable,
        ParticipationTable,
        StateTable,
        StragglingTable,
        TaskTable,
        TrainingTable,
        WorkloadTable,
    )
    from melisma.jobs.transmission_table import TransmissionTable
    from melisma.jobs.wire_table import OptionTable

__all__ = [
    "AggregationTable",
    "AsynchronousTable",
    "BenchmarkTable",
    "Costs",
    "DataTable",
    "FogTable",
    "Job",
    "Known",
    "LearnersTable",
    "OptionTable",
    "ParticipationTable",
    "Split",
    "StateTable",
    "StragglingTable",
    "TaskTable",
    "TrainingTable",
    "TransmissionTable",
    "WorkloadTable",
    "dataset_of",
    "own_rows",
    "workload_of",
]

offer(
    globals(),
    asynchronous_table="AsynchronousTable",
    benchmark_table="BenchmarkTable Known",
    building="dataset_of own_rows workload_of",
    data_table="DataTable Split",
    fog_table="Costs FogTable",
    schema="AggregationTable Job LearnersTable ParticipationTable StateTable "
    "StragglingTable TaskTable TrainingTable WorkloadTable",
    transmission_table="TransmissionTable",
    wire_table="OptionTable",
)
