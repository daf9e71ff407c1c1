"""The table of a job that says how learners are benchmarked: `[benchmark]`."""

from enum import StrEnum

from melisma.errors import ConfigError
from melisma.jobs.table import Table
from melisma.learning.settings import MOST_REPEATS
from melisma.schemes import AS_PRINTED

REPEATS = 3  #: unless a job says otherwise
PATIENCE_S = 5.0  #: likewise: a slow device is timed less often


class Known(StrEnum):
    """What the orchestrator knows of learners whose rates the job gives."""

    TRUE = "true"  #: these rates
    MEASURED = "measured"  #: what a benchmark in each of their states found


class BenchmarkTable(Table, frozen=True, kw_only=True):
    """How learners are benchmarked, and what is known of them."""

    shards: int = 8  #: of a benchmark; the thesis has 20, for each task and state
    #: 1: all shards; 2: half of them too. docs/benchmarking.md has what decided it.
    sizes: int = 1
    repeats: int | None = None  #: of a size, whose median counts; None: by the scheme
    known: Known = Known.TRUE  #: what simulations plan by

    def _check(self) -> None:
        if self.shards < 1:
            raise ConfigError(f"shards = {self.shards}: give at least 1 to benchmark")
        if self.sizes not in (1, 2):
            raise ConfigError(f"sizes = {self.sizes}: benchmark with 1 or 2 sizes")
        if self.repeats is not None and not 1 <= self.repeats <= MOST_REPEATS:
            raise ConfigError(
                f"repeats = {self.repeats}: repeat from 1 to {MOST_REPEATS} times"
            )

    def repeats_for(self, scheme: str) -> int:
        """Return how often each size is timed; the paper's DAB times it once."""
        if self.repeats is not None:
            return self.repeats
        return 1 if scheme in AS_PRINTED else REPEATS

    def patience_s(self) -> float:
        """Return for how long sizes are timed again; 0: as often as the job says."""
        return PATIENCE_S if self.repeats is None else 0.0
