"""Learners that do not train, many in a process: the orchestrator does all the work."""

import asyncio
import resource
import sys

import typer

from melisma import rpc
from melisma.fleets.messages import Ready, Speeds, TaskSpec, TrainRequest, Update

SAMPLES = 100  #: that each claims to have
AT_ONCE = 20  #: that dial at a time
PATIENCE_S = 60.0


class Light:
    """Fetches the model, as any learner does, and returns it as its update."""

    @rpc.expose(idempotent=True)
    async def prepare(self, spec: TaskSpec) -> Ready:
        """Be ready, and need no benchmark."""
        return Ready(measured=True, samples=SAMPLES)

    @rpc.expose(idempotent=True)
    async def speeds(self, task: str, drifted: bool) -> Speeds:
        """Return the speed of a slow device, which has time for a few steps."""
        return Speeds(step_s=1.0, sample_s=0.0, fixed_s=1.0)

    @rpc.expose
    async def train(self, request: TrainRequest) -> Update:
        """Answer as soon as the model is here."""
        orchestrator = rpc.current().peer
        assert orchestrator is not None
        parameters = await orchestrator.parameters(request.task, request.cycle)
        return Update(
            cycle=request.cycle,
            parameters=parameters,
            samples=request.samples,
            batches=1,
            loss=1.0,
            halted=False,
        )


def main(address: str, first: int, number: int) -> None:
    """Be that many learners, until standard input ends."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(_crowd(address, range(first, first + number)))


async def _crowd(address: str, numbers: range) -> None:
    lines: list[rpc.Connection] = []
    for start in numbers[::AT_ONCE]:
        batch = range(start, min(start + AT_ONCE, numbers.stop))
        lines += await asyncio.gather(*(_dial(address, number) for number in batch))
    await asyncio.to_thread(sys.stdin.read)
    await asyncio.gather(*(line.close() for line in lines))


async def _dial(address: str, number: int) -> rpc.Connection:
    name = f"learner-{number}"
    return await rpc.aconnect(address, Light(), name=name, patience_s=PATIENCE_S)


if __name__ == "__main__":
    typer.run(main)
