"""The figures of a comparison's table, by family."""

from typing import NamedTuple


class Column(NamedTuple):
    """A figure of the comparison's table."""

    title: str
    figure: str  #: a field of History
    scale: float = 1.0
    digits: int | None = 2  #: None: as many as tell something
    at_end: bool = False  #: of the last cycle; else the mean over cycles
    per: str = ""  #: another field; then both are summed over cycles, and divided


#: Behind the metrics in the end, which are the task's own.
COLUMNS = (
    Column("loss", "loss", digits=None, at_end=True),
    Column("samples per cycle", "samples", digits=0),
    Column("cycle time (s)", "cycle_s", digits=3),
    Column("staleness, max", "max_staleness", digits=1),
    Column("staleness, mean", "mean_staleness"),
    Column("utilisation (%)", "utilisation", scale=100.0, digits=1),
    Column("truancy (%)", "truancy", scale=100.0, digits=1),
)

#: Of a fog; costs are those of a sample that is collected.
FOG_COLUMNS = (
    *COLUMNS[:1],
    Column("unit cost", "cost", digits=3, per="collected"),
    Column("process cost", "process_cost", digits=3, per="collected"),
    Column("transfer cost", "transfer_cost", digits=3, per="collected"),
    Column("error cost", "error_cost", digits=3, per="collected"),
    Column("offloaded (%)", "sent", scale=100.0, digits=1, per="collected"),
    Column("discarded (%)", "discarded", scale=100.0, digits=1, per="collected"),
    Column("trained (%)", "trained", scale=100.0, digits=1, per="collected"),
)
