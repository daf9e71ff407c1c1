"""The job that a Flower run's configuration describes.

Its keys are those of a job file, tables and all, under ``[tool.flwr.app.config]``; and
``nodes``, how many SuperNodes to start with, and ``runs``, where the run's folder goes.
"""

from dataclasses import dataclass
from pathlib import Path

from flwr.app import UserConfig
from flwr.common.config import unflatten_dict

from melisma.errors import ConfigError
from melisma.jobs import files as config
from melisma.jobs.schema import Job
from melisma.learning.settings import Correction

WHERE = "[tool.flwr.app.config]"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """What a Flower run is to do."""

    job: Job
    nodes: int  #: SuperNodes to start with
    runs: Path  #: where the run's folder goes


def configured(run_config: UserConfig) -> RunConfig:
    """Read a run's configuration; ConfigError if it does not describe a job."""
    raw = unflatten_dict(run_config)
    nodes, runs = raw.pop("nodes", 1), raw.pop("runs", "runs")
    if not isinstance(nodes, int) or isinstance(nodes, bool) or nodes < 1:
        raise ConfigError(f"{WHERE}: nodes = {nodes!r}: give a whole number from 1 up")
    job = config.job_of(raw, WHERE)
    if job.aggregation.correction != Correction.NONE:
        raise ConfigError(
            f"{WHERE}: [aggregation] correction, which no message has room for: leave "
            "it out"
        )
    parts = any(group.submodel for group in job.learners)
    if not job.wire.is_plain or job.options or parts:
        raise ConfigError(
            f"{WHERE}: [wire], [[options]] and submodel, which no message has room "
            "for: leave them out"
        )
    return RunConfig(job=job, nodes=nodes, runs=Path(str(runs)))
