"""What the orchestrator itself costs in a live run: time, bytes and losses.

    python benchmarks/bench_live.py

Overhead: four unlike learners, a process each, slow themselves down to 4,000 to 400
samples/s and 8 to 1 MB/s and train TwoNN by csa, two seconds a cycle. Each writes down
how long it was busy with a request, by its own clock: from its arrival until the update
is handed over, transfers included. A cycle's time, from one evaluation to the next,
holds all else as well: waiting for learners, allocation, calls, aggregation,
evaluation, checkpoint. Their ratio is measured in every cycle; the median counts.

Bytes: what the orchestrator sent and received in those cycles, over the model once per
request each way and every shard once per learner.

Crowd: 500 learners in four processes join, benchmark themselves and train one cycle.

Shown here on two cores of a shared Xeon, other work beside it:

    cycle over the slowest learner's own time: 1.011 (cycles: 1.008 to 1.016)
    bytes over those needed: sent 1.0028, received 1.0034
    crowd: 500 of 500 updates; ready after 24 s, one cycle in 1.9 s
"""

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated

import msgspec
import numpy as np
import typer
from rich.console import Console

from melisma import rpc
from melisma.algorithms.averaging import share_out
from melisma.jobs.building import task_of
from melisma.jobs.schema import Job
from melisma.launch.local import DEMO
from melisma.launch.serve import orchestrate
from melisma.learning.parameters import load
from melisma.runs import records
from melisma.runs.records import Record
from melisma.runs.store import MODEL
from melisma.system.problem import Allocation
from melisma.units import Seconds

OVERHEAD_BAR, BYTES_BAR = 1.05, 1.05
FOUR = msgspec.structs.replace(DEMO, scheme="csa", cycles=12, samples=1000)
CROWD = Job(
    name="crowd", scheme="eta", cycles=1, deadline=Seconds(180.0), shard=8, most=1
)
PROCESSES = 4
LEARNERS = Path(__file__).parent / "peers" / "live_learners.py"

out = Console()


@contextmanager
def processes(commands: Sequence[Sequence[object]]) -> Iterator[None]:
    """Learners that end with the block."""
    running = [
        subprocess.Popen(
            [sys.executable, LEARNERS, *map(str, command)], stdin=subprocess.PIPE
        )
        for command in commands
    ]
    try:
        yield
    finally:
        for process in running:
            assert process.stdin is not None
            process.stdin.close()
        for process in running:
            process.wait(60.0)


def four(folder: Path) -> tuple[list[float], float, float]:
    """Return each cycle's overhead, and bytes sent and received over those needed."""
    files = {group.name: folder / f"{group.name}.json" for group in FOUR.learners}
    traffic: list[tuple[int, int]] = []
    with ExitStack() as stack:

        def start(server: rpc.Server) -> None:
            stack.enter_context(
                processes(
                    [
                        (
                            *("learner", server.address, group.name),
                            *(float(group.rate or 0), float(group.bandwidth or 0)),
                            files[group.name],
                        )
                        for group in FOUR.learners
                    ]
                )
            )
            servers.append(server)

        def watch(record: Record) -> None:
            if isinstance(record, records.Evaluated):
                metrics = servers[0].metrics
                traffic.append((metrics.sent_bytes, metrics.received_bytes))

        servers: list[rpc.Server] = []
        happened = orchestrate(
            FOUR,
            folder,
            learners=len(files),
            at_once=1,
            watch=watch,
            ready=start,
            port=0,
            say=lambda text: None,
        )
    busy_s = [json.loads(file.read_text()) for file in files.values()]
    ended_s = [record.time_s for record in records.evaluations(happened)]
    overhead = [
        (ended_s[cycle - 1] - ended_s[cycle - 2])
        / max(own[str(cycle)] for own in busy_s if str(cycle) in own)
        for cycle in range(2, FOUR.cycles + 1)
    ]
    sent, received = _needed(happened, folder)
    return (
        overhead,
        (traffic[-1][0] - traffic[0][0]) / sent,
        (traffic[-1][1] - traffic[0][1]) / received,
    )


def _needed(happened: list[Record], folder: Path) -> tuple[int, int]:
    """Bytes that had to be sent and received after the first cycle.

    Which shards a learner was sent is drawn again here from the job's seed.
    """

    model_bytes = sum(t.nbytes for t in load(folder / MODEL).values())
    task = task_of(FOUR)
    shard_bytes = task.shard * (task.data.sample_bytes + 1)
    had: dict[str, set[int]] = defaultdict(lambda: set(range(8)))  # the benchmark's
    sent = received = 0
    for cycle in range(1, FOUR.cycles + 1):
        given = [
            r for r in happened if isinstance(r, records.Allocated) and r.cycle == cycle
        ]
        allocation = Allocation(
            samples=np.array([r.samples // task.shard for r in given]),
            steps=np.array([r.steps for r in given]),
        )
        for record, order in zip(
            given, share_out(task, allocation, cycle), strict=True
        ):
            assert order.rows is not None
            places = set((order.rows // task.shard).tolist())
            new = places - had[record.learner]
            had[record.learner] |= places
            if cycle > 1 and order.samples:
                sent += model_bytes + len(new) * shard_bytes
                received += model_bytes
    return sent, received


def many(folder: Path, learners: int) -> tuple[int, float, float]:
    """Return how many updates counted, and the seconds to get ready and to train."""
    share = -(-learners // PROCESSES)
    with ExitStack() as stack:
        happened = orchestrate(
            msgspec.structs.replace(CROWD, samples=8 * learners),
            folder,
            learners=learners,
            ready=lambda server: stack.enter_context(
                processes(
                    [
                        ("crowd", server.address, first, min(share, learners - first))
                        for first in range(0, learners, share)
                    ]
                )
            ),
            port=0,
            say=lambda text: None,
        )
    (merged,) = [r for r in happened if isinstance(r, records.Aggregated)]
    ready_s = next(r.time_s for r in happened if isinstance(r, records.Allocated))
    return merged.learners, ready_s, merged.cycle_s


def main(
    learners: Annotated[int, typer.Option(min=4, help="In the crowd.")] = 500,
) -> None:
    """Measure overhead, bytes and the crowd; exit code 1 if a bar is missed."""
    with TemporaryDirectory() as folder:
        overhead, sent, received = four(Path(folder))
    out.print(
        f"cycle over the slowest learner's own time: {median(overhead):.3f}"
        f" (cycles: {min(overhead):.3f} to {max(overhead):.3f})"
    )
    out.print(f"bytes over those needed: sent {sent:.4f}, received {received:.4f}")
    with TemporaryDirectory() as folder:
        counted, ready_s, cycle_s = many(Path(folder), learners)
    out.print(
        f"crowd: {counted} of {learners} updates; ready after {ready_s:.0f} s, "
        f"one cycle in {cycle_s:.1f} s"
    )
    bars = [
        median(overhead) <= OVERHEAD_BAR,
        max(sent, received) <= BYTES_BAR,
        counted == learners,
    ]
    sys.exit(0 if all(bars) else 1)


if __name__ == "__main__":
    typer.run(main)
