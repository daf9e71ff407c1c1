"""The table of a job that says how learners are benchmarked: `[benchmark]`."""

from enum import StrEnum

from melisma.errors import ConfigError
from melisma.jobs.table import Table


class Known(StrEnum):
    """What the orchestrator knows of learners whose rates the job gives."""

    TRUE = "true"  #: these rates
    MEASURED = "measured"  #: what a benchmark in each of their states found


class BenchmarkTable(Table, frozen=True, kw_only=True):
    """How learners are benchmarked, and what is known of them."""

    shards: int = 8  #: of a benchmark; the thesis has 20, for each task and state
    known: Known = Known.TRUE

    def _check(self) -> None:
        if self.shards < 1:
            raise ConfigError(f"shards = {self.shards}: give at least 1 to benchmark")
