r"""Promised against kept on emulated devices with owners: live, with real gradients.

    python benchmarks/bench_promises_testbed.py            as root; 20 minutes
    python benchmarks/bench_promises_testbed.py --quick    one promise, three cycles

Six learners in network namespaces, each with 0.2 cores and 48 Mbit/s. Owners are idle
(0.6), compute (0.25) or download (0.15), drawn for each learner and cycle. One job
after the other promises 1, 5 and 10 % under CSA; 170 cycles are 1,020 of learners.

A promise adapts to what happens, so every rule would see other cycles if it ran alone.
They are compared on the same ones: what compute and link of each learner took in each
cycle of these runs, over its own median, is replayed in the simulator of
`bench_promises.py`, under our rule and under its peers.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import typer
from bench_promises import EPSILON, RULES, simulate
from rich.console import Console
from rich.table import Table

from melisma.jobs.schema import Job, LearnersTable, StateTable
from melisma.launch.local import run_on_testbed
from melisma.learner.background import Activity
from melisma.maths.arrays import Floats
from melisma.provenance import provenance
from melisma.runs.records import Record
from melisma.testbed import Device
from melisma.units import Deadline
from melisma.views.ledger import LearnerCycle, learner_cycles

CPU, LINK_BPS = 0.2, 48e6
OWNER = {Activity.IDLE: 0.6, Activity.COMPUTING: 0.25, Activity.DOWNLOADING: 0.15}
out = Console(width=120)


def devices(number: int) -> list[Device]:
    """Equal devices, each with a name and so an owner of its own."""
    return [
        Device(name=f"pi{n}", cpu=CPU, up_bps=LINK_BPS, down_bps=LINK_BPS)
        for n in range(number)
    ]


def job_of(late_at_most: float, names: Sequence[str], cycles: int) -> Job:
    """One task, and owners."""
    states = tuple(
        StateTable(probability=share, owner=activity)
        for activity, share in OWNER.items()
    )
    return Job(
        name="promises",
        scheme="csa",
        cycles=cycles,
        deadline=Deadline(2.0),
        samples=1200,
        shard=20,
        late_at_most=late_at_most,
        learners=tuple(LearnersTable(name=name, states=states) for name in names),
    )


def busy(records: Sequence[Record]) -> list[LearnerCycle]:
    """Return the rows of learners that had work."""
    return [row for row in learner_cycles(records) if row.samples]


def factors(rows: Sequence[LearnerCycle]) -> Floats:
    """What compute and link took over their medians: cycles × 2 × learners.

    Of learners that have them, the cycles that all have in common, in order; the time
    of transfers is compared with its line through the samples that were sent.
    """
    found: defaultdict[str, list[tuple[float, float, int]]] = defaultdict(list)
    for row in rows:
        if row.batches and row.trained_s and row.downloaded_s and row.measured_s:
            training_s = row.trained_s - row.downloaded_s
            link_s = row.measured_s - training_s
            found[row.learner].append((training_s / row.batches, link_s, row.samples))
    cycles = min(map(len, found.values()))
    measured = np.array([cells[:cycles] for cells in found.values()])
    batch_s, link_s, samples = np.moveaxis(measured, -1, 0)
    compute = batch_s / np.median(batch_s, axis=1, keepdims=True)
    slope, fixed = np.polyfit(samples.ravel(), link_s.ravel(), 1)
    line_s = np.maximum(fixed + slope * samples, 1e-3)
    link = link_s / line_s
    link /= np.median(link, axis=1, keepdims=True)
    return np.stack([compute, link]).transpose(2, 0, 1)


def main(
    cycles: Annotated[int, typer.Option(min=2)] = 170,
    learners: Annotated[int, typer.Option(min=2, max=8)] = 6,
    quick: Annotated[bool, typer.Option("--quick", help="One promise, short.")] = False,
) -> None:
    """Print what was promised and kept, and all rules on the delays that were seen."""
    print(provenance(), flush=True)
    cycles = min(cycles, 3) if quick else cycles
    placed = devices(learners)
    table = Table("promised (%)", "cycles", "late (%)", "reserve (%)", box=None)
    seen: list[Floats] = []
    with TemporaryDirectory() as root:
        for late_at_most in EPSILON[-1:] if quick else EPSILON:
            folder = Path(root, str(late_at_most))
            folder.mkdir()
            job = job_of(late_at_most, [device.name for device in placed], cycles)
            rows = busy(run_on_testbed(job, folder, placed))
            late = np.mean([row.late for row in rows])
            reserve = np.mean([row.reserve or 0.0 for row in rows])
            cells = (f"{100 * late_at_most:g}", f"{len(rows):,}")
            table.add_row(*cells, f"{100 * late:.1f}", f"{100 * reserve:.1f}")
            print(f"{100 * late_at_most:g} %: {100 * late:.1f} % late", flush=True)
            seen.append(factors(rows))
    out.print(table)
    replayed = Table("on the same delays", "late (%)", "kept", box=None)
    together = np.concatenate(seen)
    for name, rule in RULES.items():
        share, kept = simulate(rule(), together)
        replayed.add_row(name, f"{100 * share:.1f}", f"{kept:.2f}")
    out.print(replayed)


if __name__ == "__main__":
    typer.run(main)
