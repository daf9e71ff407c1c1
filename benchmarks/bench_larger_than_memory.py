"""A training set larger than memory, served to learners by an orchestrator with 1 GB.

    python benchmarks/bench_larger_than_memory.py               20 GB, all of it sent
    python benchmarks/bench_larger_than_memory.py --gigabytes 2 --sent 1 --folder /data

A folder of mapped .npy files is written: samples of 3,136 bytes, a label and their
place. Two samples of each shard are random, the others are zeros, which take no disk:
20 GB take 0.3. An orchestrator in a process of its own with 1 GB of memory (by cgroups
v1 and as root; without, the output says "not limited") checks the files, and sends
shards over TLS to three learners in processes of their own. These compare every row
with what was written, and train on it. Cycles go on until as many gigabytes were sent
as asked for; each draws its shards from all of the set.

Bars: the orchestrator's resident memory never reaches 1 GB, mapped pages included;
every row arrives bit for bit; no update is lost. Exit code 1 if one is missed.

Shown here on two cores of a Neoverse-N1 that other work kept busy, torch 2.13.0:

    checked and ready after 17.7 s, with a peak of 466 MB
    40 cycles, 19.98 GB in 789 s: 25 MB/s
    below 1 GB resident: 681 MB
    6,338,000 rows arrived, 0 of them changed
    120 updates of 120 counted
"""

import json
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from peers import large_set
from peers.large_orchestrator import SHARD
from peers.processes import running
from peers.small_memory import limited, started
from rich.console import Console

from melisma.provenance import provenance

MEMORY_BYTES = 1_000_000_000  #: of the orchestrator
LEARNERS = 3
CYCLE_BYTES = 500_000_000  #: that all learners are sent in a cycle
TESTED = 1000  #: samples to test with
LONGEST_S = 1800.0

out = Console(width=110)

Size = Annotated[float, typer.Option(min=0.001, help="Of the training set.")]
Sent = Annotated[
    float | None, typer.Option(help="Gigabytes to send; as many as there are.")
]
Folder = Annotated[
    Path | None, typer.Option(help="Where the set is written, and removed.")
]


def main(gigabytes: Size = 20.0, sent: Sent = None, folder: Folder = None) -> None:
    """Serve a training set larger than memory; exit code 1 if a bar is missed."""
    print(provenance(), flush=True)
    rows = max(LEARNERS * SHARD, int(gigabytes * 1e9) // large_set.ROW_BYTES)
    due_bytes = (gigabytes if sent is None else sent) * 1e9
    samples = min(int(min(due_bytes, CYCLE_BYTES)) // large_set.ROW_BYTES, rows)
    samples = max(LEARNERS, samples // SHARD) * SHARD
    cycles = max(1, round(due_bytes / (samples * large_set.ROW_BYTES)))
    with TemporaryDirectory(prefix="melisma-large-", dir=folder) as place:
        whole = Path(place)
        began = time.monotonic()
        large_set.write(whole / "train", rows)
        large_set.write(whole / "test", TESTED)
        print(f"{rows:,} rows written in {time.monotonic() - began:.0f} s", flush=True)
        result, seen, group_bytes = serve(whole, cycles, samples)
    raise typer.Exit(0 if report(result, seen, group_bytes) else 1)


def serve(
    folder: Path, cycles: int, samples: int
) -> tuple[dict[str, float], list[dict[str, int]], int | None]:
    """Run orchestrator and learners; return what they saw, and the group's memory."""
    files = [folder / f"seen-{k}.json" for k in range(LEARNERS)]
    orchestrator = ["-m", "peers.large_orchestrator", folder, cycles, samples, LEARNERS]
    with ExitStack() as stack:
        group = stack.enter_context(limited(MEMORY_BYTES))
        process = stack.enter_context(started(orchestrator, group))
        address, until = folder / "address", time.monotonic() + LONGEST_S
        while not address.exists():
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit("the orchestrator ended before anybody could join")
            time.sleep(0.1)
        learners = [
            ["-m", "peers.checking_learner", address.read_text(), f"device-{k}", file]
            for k, file in enumerate(files)
        ]
        with running(learners, folder=Path(__file__).parent):
            process.wait(LONGEST_S)
        if process.returncode:
            raise SystemExit(f"the orchestrator ended with {process.returncode}")
        seen = [json.loads(file.read_text()) for file in files]
        result = json.loads((folder / "result.json").read_text())
        return result, seen, group.peak_bytes if group else None


def report(
    result: dict[str, float], seen: list[dict[str, int]], group_bytes: int | None
) -> bool:
    """Print what was measured, and the bars; return whether all are met."""
    sent_bytes = sum(one["bytes"] for one in seen)
    rows, wrong = (sum(one[what] for one in seen) for what in ("rows", "wrong"))
    limit = "not limited" if group_bytes is None else f"{MEMORY_BYTES / 1e9:g} GB"
    print(f"memory of the orchestrator: {limit}")
    print(
        f"checked and ready after {result['ready_s']:.1f} s, "
        f"with a peak of {result['ready_bytes'] / 1e6:.0f} MB"
    )
    print(
        f"{result['cycles']} cycles, {sent_bytes / 1e9:.2f} GB in "
        f"{result['cycles_s']:.0f} s: {sent_bytes / result['cycles_s'] / 1e6:.0f} MB/s"
    )
    peak = result["peak_bytes"]
    return all(
        (
            _met(f"below 1 GB resident: {peak / 1e6:.0f} MB", peak < MEMORY_BYTES),
            _met(f"{rows:,} rows arrived, {wrong} of them changed", not wrong),
            _met(
                f"{result['updates']} updates of {result['cycles'] * LEARNERS} counted",
                result["updates"] == result["cycles"] * LEARNERS and not result["lost"],
            ),
        )
    )


def _met(claim: str, holds: bool) -> bool:
    out.print("[green]met   [/]" if holds else "[red]missed[/]", claim)
    return holds


if __name__ == "__main__":
    typer.run(main)
