"""The job of `melisma run` without a file."""

from melisma.jobs.benchmark_table import BenchmarkTable
from melisma.jobs.schema import Job, LearnersTable
from melisma.units import BytesPerSecond, Deadline, SamplesPerSecond


def _device(name: str, rate: float, bandwidth: float) -> LearnersTable:
    return LearnersTable(
        name=name, rate=SamplesPerSecond(rate), bandwidth=BytesPerSecond(bandwidth)
    )


#: Four unlike learners. Links are so slow that their share of a cycle can be seen, and
#: the benchmark is so short that the first cycle comes soon.
DEMO = Job(
    name="live",
    scheme="csa",
    samples=1200,
    shard=20,
    cycles=8,
    deadline=Deadline(2.0),
    benchmark=BenchmarkTable(shards=5),
    learners=(
        _device("laptop", 4000, 1e6),
        _device("jetson", 2000, 0.8e6),
        _device("pi1", 1000, 0.6e6),
        _device("pi2", 600, 0.5e6),
    ),
)
