"""What the orchestrator itself costs in a live run: time, bytes and losses.

    python benchmarks/bench_live.py                            three minutes
    python benchmarks/bench_live.py --cycles 3 --learners 20   to see it run
    python benchmarks/bench_live.py --only-crowd --learners 2000 --crowd-cycles 5

Overhead: four unlike learners, a process each, slow themselves down to 4,000 to 400
samples/s and 8 to 1 MB/s and train TwoNN by csa, two seconds a cycle. Each measures by
its own clock how long it was busy in a cycle: from the arrival of the request until the
update is handed over, transfers included. The cycle itself, from one evaluation to the
next, also has the orchestrator's work in it: asking who is ready, allocation, calls,
aggregation, evaluation, checkpoint. Overhead is the cycle's time over the busy time of
the slowest learner; the median over cycles counts.

Bytes: what the orchestrator sent and received in those cycles, over the least that will
do: the model once per request each way, and every shard once per learner.

Crowd: 500 learners in four processes join, benchmark themselves and train one cycle.

Exit code 1 if a bar is missed, or at once if a learner's process dies; its own error is
shown.

Shown here on two cores of a shared Xeon, other work beside it:

    cycle over the slowest learner's own time: 1.011 (cycles: 1.008 to 1.016)
    bytes over those needed: sent 1.0028, received 1.0034
    crowd: 500 of 500 updates; ready after 24 s, one cycle in 1.9 s
"""

import json
import sys
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated

import msgspec
import numpy as np
import typer
from peers.processes import running
from rich.console import Console

from melisma import rpc
from melisma.algorithms.averaging import share_out
from melisma.jobs.building import task_of
from melisma.jobs.schema import Job, LearnersTable
from melisma.launch.serve import orchestrate
from melisma.learning.parameters import load
from melisma.provenance import provenance
from melisma.runs import records
from melisma.runs.records import Record
from melisma.runs.store import MODEL
from melisma.system.problem import Allocation
from melisma.units import BytesPerSecond, Deadline, SamplesPerSecond

OVERHEAD_BAR, BYTES_BAR = 1.05, 1.05
FOUR = Job(
    name="live",
    scheme="csa",
    samples=1000,
    shard=50,
    cycles=5,
    deadline=Deadline(2.0),
    learners=tuple(
        LearnersTable(
            name=name,
            rate=SamplesPerSecond(rate),
            bandwidth=BytesPerSecond(bandwidth),
        )
        for name, rate, bandwidth in (
            ("laptop", 4000, 8e6),
            ("jetson", 2000, 4e6),
            ("pi1", 800, 2e6),
            ("pi2", 400, 1e6),
        )
    ),
)
CROWD = Job(
    name="crowd", scheme="eta", cycles=1, deadline=Deadline(180.0), shard=8, most=1
)
SAMPLES = 4000  #: of the embedded data set
PROCESSES = 4
LEARNERS = Path(__file__).parent / "peers" / "live_learners.py"

out = Console()


def four(job: Job, folder: Path) -> tuple[list[float], float, float]:
    """Return each cycle's overhead, and bytes sent and received over those needed."""
    busy_files = {group.name: folder / f"{group.name}.json" for group in job.learners}
    traffic: list[tuple[int, int]] = []
    servers: list[rpc.Server] = []
    with ExitStack() as stack:

        def start(server: rpc.Server) -> None:
            commands = [
                (
                    *(LEARNERS, "learner", server.address, group.name),
                    *(float(group.rate or 0), float(group.bandwidth or 0)),
                    busy_files[group.name],
                )
                for group in job.learners
            ]
            stack.enter_context(running(commands))
            servers.append(server)

        def watch(record: Record) -> None:
            if isinstance(record, records.Evaluated):
                metrics = servers[0].metrics
                traffic.append((metrics.sent_bytes, metrics.received_bytes))

        happened = orchestrate(
            job,
            folder,
            learners=len(busy_files),
            at_once=1,
            watch=watch,
            ready=start,
            port=0,
            say=lambda text: None,
        )
    busy_s = [json.loads(file.read_text()) for file in busy_files.values()]
    ended_s = [record.time_s for record in records.evaluations(happened)]
    overhead = [
        (ended_s[cycle - 1] - ended_s[cycle - 2])
        / max(own[str(cycle)] for own in busy_s if str(cycle) in own)
        for cycle in range(2, job.cycles + 1)
    ]
    sent, received = _needed(job, happened, folder)
    return (
        overhead,
        (traffic[-1][0] - traffic[0][0]) / sent,
        (traffic[-1][1] - traffic[0][1]) / received,
    )


def _needed(job: Job, happened: list[Record], folder: Path) -> tuple[int, int]:
    """Bytes that had to be sent and received after the first cycle.

    Which shards a learner was sent is drawn again here from the job's seed.
    """
    model_bytes = sum(t.nbytes for t in load(folder / MODEL).values())
    task = task_of(job)
    shard_bytes = task.shard * (task.data.sample_bytes + 1)
    had: dict[str, set[int]] = defaultdict(lambda: set(range(8)))  # the benchmark's
    sent = received = 0
    for cycle in range(1, job.cycles + 1):
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


def many(folder: Path, learners: int, cycles: int) -> tuple[int, float, list[float]]:
    """Return how many updates counted, and the seconds to get ready and of cycles."""
    shard = max(1, min(8, SAMPLES // learners))
    job = msgspec.structs.replace(
        CROWD, samples=shard * learners, shard=shard, cycles=cycles
    )
    share = -(-learners // PROCESSES)
    with ExitStack() as stack:

        def start(server: rpc.Server) -> None:
            commands = [
                (LEARNERS, "crowd", server.address, first, min(share, learners - first))
                for first in range(0, learners, share)
            ]
            stack.enter_context(running(commands))

        happened = orchestrate(
            job,
            folder,
            learners=learners,
            ready=start,
            port=0,
            say=lambda text: None,
        )
    merged = [r for r in happened if isinstance(r, records.Aggregated)]
    ready_s = next(r.time_s for r in happened if isinstance(r, records.Allocated))
    counted = sum(r.learners for r in merged)
    return counted, ready_s, [r.cycle_s for r in merged]


def main(
    cycles: Annotated[int, typer.Option(min=2, help="Of the four.")] = 12,
    learners: Annotated[int, typer.Option(min=1, help="In the crowd.")] = 500,
    crowd_cycles: Annotated[int, typer.Option(min=1, help="Of the crowd.")] = 1,
    only_crowd: Annotated[bool, typer.Option(help="Leave the four out.")] = False,
) -> None:
    """Measure overhead, bytes and the crowd; exit code 1 if a bar is missed."""
    print(provenance(), flush=True)
    bars = [] if only_crowd else _four_meet_their_bars(cycles)
    with TemporaryDirectory() as folder:
        counted, ready_s, cycle_s = many(Path(folder), learners, crowd_cycles)
    due = learners * crowd_cycles
    out.print(
        f"crowd: {counted} of {due} updates; ready after {ready_s:.0f} s, "
        f"one cycle in {median(cycle_s):.1f} s"
    )
    sys.exit(0 if all(bars) and counted == due else 1)


def _four_meet_their_bars(cycles: int) -> list[bool]:
    with TemporaryDirectory() as folder:
        overhead, sent, received = four(
            msgspec.structs.replace(FOUR, cycles=cycles), Path(folder)
        )
    out.print(
        f"cycle over the slowest learner's own time: {median(overhead):.3f}"
        f" (cycles: {min(overhead):.3f} to {max(overhead):.3f})"
    )
    out.print(f"bytes over those needed: sent {sent:.4f}, received {received:.4f}")
    return [median(overhead) <= OVERHEAD_BAR, max(sent, received) <= BYTES_BAR]


if __name__ == "__main__":
    typer.run(main)
