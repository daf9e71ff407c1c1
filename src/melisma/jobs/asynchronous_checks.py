"""Asynchronous schemes, and what their jobs cannot have."""

from melisma.errors import ConfigError, unknown
from melisma.jobs.asynchronous_table import AsynchronousTable
from melisma.jobs.schema import AggregationTable, Job
from melisma.jobs.table import Table
from melisma.learning.settings import Late

ASYNC = "async"
FEDASYNC, FEDBUFF, FEDCOMPASS = "async:fedasync", "async:fedbuff", "async:fedcompass"
RINGMASTER, RINGLEADER = "async:ringmaster", "async:ringleader"
#: What each does.
ASYNCHRONOUS = {
    FEDASYNC: "Mixes each update into the model as it comes, the less the older.",
    FEDBUFF: "Moves along the mean of a buffer of updates, once it is full.",
    FEDCOMPASS: "Gives work by speed, so that groups of learners arrive together.",
    RINGMASTER: "Adds each update's change as it comes, unless it is too old.",
    RINGLEADER: "Moves along the mean of all learners' means, each as it has its turn.",
}
#: Keys that have an effect, by table and scheme.
AGGREGATION = {
    FEDASYNC: (),
    FEDBUFF: ("server", "rate", "momentum", "beta2", "epsilon"),
    FEDCOMPASS: (),
    RINGMASTER: ("rate",),
    RINGLEADER: ("rate",),
}
OWN = {
    FEDASYNC: ("mixing", "exponent"),
    FEDBUFF: ("buffer",),
    FEDCOMPASS: ("mixing", "exponent", "least", "patience"),
    RINGMASTER: (),
    RINGLEADER: (),
}
ALWAYS = ("updates", "staleness_at_most")


def check_async(job: Job) -> None:
    """Raise ConfigError for what asynchronous training cannot do, or has no use for."""
    if job.scheme not in ASYNCHRONOUS:
        raise unknown("scheme", job.scheme, ASYNCHRONOUS)
    if job.late != Late.HALT:
        raise ConfigError(
            f"late = {job.late.value!r}: in asynchronous training nobody is: leave it "
            "out"
        )
    if job.checks:
        raise ConfigError("checks are not for asynchronous training: leave them out")
    _check_keys(job, "aggregation", AggregationTable(), AGGREGATION[job.scheme])
    _check_keys(job, "asynchronous", AsynchronousTable(), (*ALWAYS, *OWN[job.scheme]))


def _check_keys(job: Job, name: str, usual: Table, known: tuple[str, ...]) -> None:
    """Raise ConfigError for a key of a table that changes nothing under the scheme."""
    given = getattr(job, name)
    for key in usual.__struct_fields__:
        if key not in known and getattr(given, key) != getattr(usual, key):
            raise ConfigError(
                f"[{name}] {key} has no effect under {job.scheme!r}: leave it out"
            )
