"""Live learners in this process, over real sockets, for tests to share."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from melisma import rpc
from melisma.fleets.messages import Speeds
from melisma.jobs.schema import Job, LearnersTable
from melisma.launch.serve import orchestrate
from melisma.learner.background import BackgroundLoad, State
from melisma.learner.fog import FogLearner
from melisma.learner.learner import Learner
from melisma.learner.service import FogService, Service
from melisma.runs.records import Record
from melisma.units import BytesPerSecond, Deadline, SamplesPerSecond

JOB = Job(
    name="test",
    scheme="eta",
    cycles=2,
    deadline=Deadline(30.0),
    samples=600,
    shard=50,
    steps=1,
    learners=(
        LearnersTable(
            name="x", rate=SamplesPerSecond(1.0), bandwidth=BytesPerSecond(1.0)
        ),
    ),
)


class Steady(Learner):
    """A learner that always reports the same low speed: what it is given never depends
    on the machine, and is done long before the deadline.
    """

    def speeds(self, task: str, drifted: bool) -> Speeds:
        return Speeds(step_s=0.01, sample_s=0.001, fixed_s=0.1)


def slow(samples_per_s: float) -> BackgroundLoad:
    """A load that leaves a learner no more than that."""
    return BackgroundLoad([State(samples_per_s=samples_per_s)])


def changed(job: Job | None = None, **changes: Any) -> Job:
    return msgspec.structs.replace(job or JOB, **changes)


@contextmanager
def joined(server: rpc.Server, learners: Sequence[Learner]) -> Iterator[None]:
    with ExitStack() as stack:
        for learner in learners:
            service = service_of(learner)
            if isinstance(service, FogService):
                stack.callback(service.close)
            stack.enter_context(rpc.connect(server.address, service, name=learner.name))
        yield


def service_of(learner: Learner) -> Service:
    if service := getattr(learner, "service", None):
        return service(learner)  # type: ignore[no-any-return]
    if isinstance(learner, FogLearner):
        return FogService(learner, listens=getattr(learner, "listens", None))
    return Service(learner)


def live(
    job: Job,
    folder: Path,
    learners: Sequence[Learner],
    watch: Any = lambda record: None,
    *,
    least: int | None = None,
) -> list[Record]:
    """Run a job with these learners; it starts once ``least`` are there, or all."""
    folder.mkdir(exist_ok=True)
    with ExitStack() as stack:
        return orchestrate(
            job,
            folder,
            learners=len(learners) if least is None else least,
            watch=watch,
            ready=lambda server: stack.enter_context(joined(server, learners)),
            port=0,
            say=lambda text: None,
        )


def of(kind: Any, happened: Sequence[Record]) -> list[Any]:
    return [record for record in happened if isinstance(record, kind)]
