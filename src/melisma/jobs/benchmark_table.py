"""The table of a job that says how learners are benchmarked: `[benchmark]`."""

from enum import StrEnum

from melisma.errors import ConfigError
from melisma.jobs.table import Table
from melisma.learning.settings import MOST_REPEATS
from melisma.schemes import AS_PRINTED

#: Unless a job says otherwise: docs/benchmarking.md has what decided it.
SIZES, REPEATS = 2, 3


class Known(StrEnum):
    """What the orchestrator knows of learners whose rates the job gives."""

    TRUE = "true"  #: these rates
    MEASURED = "measured"  #: what a benchmark in each of their states found


class BenchmarkTable(Table, frozen=True, kw_only=True):
    """How learners are benchmarked, and what is known of them."""

    shards: int = 8  #: of a benchmark; the thesis has 20, for each task and state
    sizes: int | None = None  #: all shards, or half of them too; None: by the scheme
    repeats: int | None = None  #: of each size, whose median counts; None: likewise
    known: Known = Known.TRUE

    def _check(self) -> None:
        if self.shards < 1:
            raise ConfigError(f"shards = {self.shards}: give at least 1 to benchmark")
        if self.sizes not in (None, 1, 2):
            raise ConfigError(f"sizes = {self.sizes}: benchmark with 1 or 2 sizes")
        if self.repeats is not None and not 1 <= self.repeats <= MOST_REPEATS:
            raise ConfigError(
                f"repeats = {self.repeats}: repeat from 1 to {MOST_REPEATS} times"
            )

    def sizes_for(self, scheme: str) -> int:
        """Return how many sizes a learner is benchmarked with: 1 as printed."""
        if self.sizes is not None:
            return self.sizes
        return 1 if scheme in AS_PRINTED else SIZES

    def repeats_for(self, scheme: str) -> int:
        """Return how often each size is timed; the paper's DAB times it once."""
        if self.repeats is not None:
            return self.repeats
        return 1 if scheme in AS_PRINTED else REPEATS
