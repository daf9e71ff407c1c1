"""Codecs on links of 1 MB/s: bytes as predicted, and the deadline kept, live.

    python benchmarks/bench_wire_testbed.py            as root; ten minutes
    python benchmarks/bench_wire_testbed.py --quick    one pair of codecs, three cycles

Four learners in network namespaces, each with 0.2 cores, a link of 1 MB/s both ways and
data of its own, train ThreeNN (2.3 MB) under CSA. A cycle has 8 s, of which learners
may be late in 5 %. Bytes are those of all messages that the orchestrator sent and
received from the first evaluation to the last, beside what the codecs' sizes predict
for models and changes alone. Two bytes in a hundred are the bar, and the promise.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from melisma import rpc
from melisma.jobs.building import task_of
from melisma.jobs.options import wire_of
from melisma.jobs.schema import Job
from melisma.jobs.wire_table import WireTable
from melisma.launch.local import run_on_testbed
from melisma.learning.parameters import parameters_of, trained
from melisma.provenance import provenance
from melisma.runs import records
from melisma.runs.records import Record
from melisma.system.law import Mode
from melisma.testbed import Device
from melisma.units import Deadline
from melisma.views.ledger import learner_cycles

CPU, LINK_BPS = 0.2, 8e6
LATE_AT_MOST, OFF_AT_MOST = 0.05, 0.02
WIRES = (("fp32", "fp32"), ("fp16", "int8"), ("int8", "top-k 1 %"))
out = Console(width=120)


@dataclass(slots=True)
class Meter:
    """Reads what the orchestrator sent and received, at every evaluation."""

    server: rpc.Server | None = None
    read: list[tuple[int, int]] = field(default_factory=list)

    def attend(self, server: rpc.Server) -> None:
        """Read the counters of this server."""
        self.server = server

    def watch(self, record: Record) -> None:
        """Take a reading."""
        if isinstance(record, records.Evaluated) and self.server:
            metrics = self.server.metrics
            self.read.append((metrics.sent_bytes, metrics.received_bytes))

    def moved(self) -> tuple[int, int]:
        """Return the bytes down and up from the first evaluation to the last."""
        down, up = np.subtract(self.read[-1], self.read[0]).tolist()
        return down, up


def job_of(down: str, up: str, cycles: int) -> Job:
    """One task on learners' own data, so that nothing but models travels."""
    return Job(
        name="wire",
        scheme="csa",
        model="ThreeNN",
        mode=Mode.FEDERATED,
        cycles=cycles,
        deadline=Deadline(8.0),
        shard=20,
        late_at_most=LATE_AT_MOST,
        wire=WireTable(down=down, up=up),
    )


def predicted(job: Job, trips: int) -> tuple[int, int]:
    """Return the bytes down and up of so many models and changes."""
    model = task_of(job).model
    down, up = wire_of(job).size_bytes(parameters_of(model), trained(model))
    return trips * down, trips * up


def row_of(job: Job, happened: Sequence[Record], meter: Meter) -> tuple[str, ...]:
    """Return what a run came to, as it is printed."""
    rows = [row for row in learner_cycles(happened) if row.samples]
    moved = meter.moved()
    expected = predicted(job, sum(row.cycle > 1 for row in rows))
    off = [100 * (m / e - 1) for m, e in zip(moved, expected, strict=True)]
    tested = [r for r in happened if isinstance(r, records.Evaluated)]
    return (
        f"{job.wire.down}, {job.wire.up}",
        *(f"{m / 1e6:.2f}" for m in moved),
        *(f"{p:+.2f}" for p in off),
        f"{100 * np.mean([row.late for row in rows]):.1f}",
        f"{np.mean([row.samples * row.steps for row in rows]):,.0f}",
        f"{tested[-1].metrics['accuracy']:.3f}",
    )


def main(
    cycles: Annotated[int, typer.Option(min=3)] = 25,
    learners: Annotated[int, typer.Option(min=2, max=8)] = 4,
    quick: Annotated[bool, typer.Option("--quick", help="One pair, short.")] = False,
) -> None:
    """Print a row for each pair of codecs; exit with 1 if a bar is missed."""
    print(provenance(), flush=True)
    devices = [
        Device(name=f"pi{n}", cpu=CPU, up_bps=LINK_BPS, down_bps=LINK_BPS)
        for n in range(learners)
    ]
    table = Table(
        *("down, up", "MB down", "MB up", "off (%) down", "up"),
        *("late (%)", "passes a cycle", "accuracy"),
    )
    missed: list[str] = []
    for down, up in WIRES[1:2] if quick else WIRES:
        job, meter = job_of(down, up, 3 if quick else cycles), Meter()
        with TemporaryDirectory() as folder:
            happened = run_on_testbed(
                job, Path(folder), devices, meter.watch, ready=meter.attend
            )
        row = row_of(job, happened, meter)
        table.add_row(*row)
        if max(abs(float(off)) for off in row[3:5]) > 100 * OFF_AT_MOST:
            missed.append(f"{row[0]}: bytes off by more than {OFF_AT_MOST:.0%}")
        if float(row[5]) > 100 * LATE_AT_MOST:
            missed.append(f"{row[0]}: late in more than {LATE_AT_MOST:.0%}")
    out.print(table)
    if missed:
        out.print("missed: " + "; ".join(missed), soft_wrap=True)
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
