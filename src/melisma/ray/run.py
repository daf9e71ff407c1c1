"""A run on a Ray cluster: each of its nodes is a learner."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from melisma.errors import ConfigError
from melisma.fleets.gathering import Gathering
from melisma.jobs.families import family_of
from melisma.jobs.schema import Job, own_code
from melisma.launch.serve import orchestrate
from melisma.ray import fleet
from melisma.ray.cluster import joined
from melisma.ray.learner import learner
from melisma.runs.records import Record
from melisma.runs.store import Watch, ignore
from melisma.system.law import Mode


def run_on_ray(
    job: Job,
    folder: Path,
    watch: Watch = ignore,
    show: Callable[[str], None] = lambda link: None,
    *,
    address: str,
    data: Path | None = None,
    gathering: Gathering | None = None,
) -> list[Record]:
    """Run a job with a learner on each node of the Ray cluster at ``address``.

    It starts when all nodes that are there are ready. In federated mode each has its
    own data in ``data/NAME``, where it is. Raises ConfigError if there is no such
    cluster, or the job is one that cannot run there.
    """
    if family_of(job).moves_data:
        raise ConfigError(
            f"scheme {job.scheme!r} moves data between devices, which nodes of a "
            "cluster do not: run it by `melisma serve`"
        )
    if job.options or any(group.submodel for group in job.learners):
        raise ConfigError(
            "[[options]] and submodel, while all nodes of a cluster fetch one model: "
            "run it by `melisma serve`, or give one [wire] for all"
        )
    if job.mode == Mode.FEDERATED and data is None:
        raise ConfigError(
            "federated mode trains on data that lies on the nodes: give --data DIR, "
            "in which each has a folder of its learner's name"
        )
    if data and not data.is_absolute():
        raise ConfigError(f"--data '{data}' is relative: give it as the nodes have it")
    allowed = [name for _, name in own_code(job)]
    make = partial(learner, allowed=allowed, data=str(data) if data else None)
    with joined(address):
        names = fleet.learners(fleet.nodes())
        if not names:
            raise ConfigError(f"no node of {address} has a CPU: start one with CPUs")
        return orchestrate(
            job,
            folder,
            learners=len(names),
            watch=watch,
            show=show,
            elsewhere=partial(fleet.Nodes, make=make),
            engine="ray",
            gathering=gathering,
            port=0,
            say=lambda text: None,
        )
