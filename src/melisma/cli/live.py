"""Live runs whose learners are processes here, or nodes of a Ray cluster."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from melisma.cli.goes_on import dashboard_note
from melisma.learning.settings import Hardware

if TYPE_CHECKING:
    from melisma.cli.progress import Shown
    from melisma.jobs.schema import Job
    from melisma.launch.processes import Learners
    from melisma.runs.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A Ray cluster whose nodes are the learners; none without an address."""

    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Head of the Ray cluster whose nodes are the learners.",
        ),
    ] = None
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="On a Ray cluster, for jobs in federated mode: each node has its "
            "learner's own data in DIR/NAME.",
        ),
    ] = None

    def flags(self) -> str:
        """Return the flags of `resume` for a run on it; none without one."""
        if not self.address:
            return ""
        data = ["--data", str(self.data)] if self.data else []
        return shlex.join(["--address", self.address, *data])


def train_live(
    job: "Job",
    folder: Path,
    watch: "Shown",
    as_json: bool,
    cluster: Cluster,
    hardware: Hardware,
    start: "Learners | None" = None,
    fresh: bool = True,
) -> "list[Record]":
    """Train on the cluster if there is one, else on learners that start here."""
    show = dashboard_note(as_json)
    if cluster.address:
        from melisma.ray.run import run_on_ray

        return run_on_ray(
            job,
            folder,
            watch,
            show,
            address=cluster.address,
            data=cluster.data,
            gathering=watch.gathering,
        )
    from melisma.launch.local import run_locally

    return run_locally(
        job,
        folder,
        watch,
        show,
        hardware=hardware,
        start=start,
        gathering=watch.gathering,
        fresh=fresh,
    )
