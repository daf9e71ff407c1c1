"""An orchestrator in a process of its own, of a training set larger than memory."""

import json
import time
from pathlib import Path

import typer

from melisma import rpc
from melisma.jobs.schema import DataTable, Job, TrainingTable
from melisma.launch.serve import orchestrate
from melisma.learning.training import use_threads
from melisma.runs import records
from melisma.runs.records import Record
from melisma.units import Deadline
from peers.live_cost import memory

SHARD = 500


def main(folder: Path, cycles: int, samples: int, learners: int) -> None:
    """Train on ``folder``/train; leave what it took in ``folder``/result.json."""
    began = time.monotonic()
    use_threads(1)
    job = Job(
        name="large",
        scheme="eta",
        model="TwoNN",
        cycles=cycles,
        samples=samples,
        shard=SHARD,
        deadline=Deadline(300.0),
        data=DataTable(train=str(folder / "train"), test=str(folder / "test")),
        training=TrainingTable(batch=SHARD),
    )
    run, seconds = folder / "run", dict[str, float]()
    run.mkdir()

    def ready(server: rpc.Server) -> None:
        seconds["ready"] = time.monotonic() - began
        seconds["ready_bytes"] = memory("VmHWM")
        part = folder / "address.part"
        part.write_text(server.join_string())
        part.replace(folder / "address")

    def watch(record: Record) -> None:
        if isinstance(record, records.Allocated):
            seconds.setdefault("first", time.monotonic() - began)

    happened = orchestrate(
        job,
        run,
        learners=learners,
        ready=ready,
        watch=watch,
        port=0,
        secure=True,
        folder=folder / "secrets",
        say=lambda text: None,
    )
    result = {
        "ready_s": seconds["ready"],
        "ready_bytes": seconds["ready_bytes"],
        "cycles_s": time.monotonic() - began - seconds["first"],
        "cycles": sum(isinstance(r, records.Evaluated) for r in happened),
        "updates": sum(isinstance(r, records.Uploaded) for r in happened),
        "lost": sorted({r.reason for r in happened if isinstance(r, records.Dropped)}),
        "peak_bytes": memory("VmHWM"),
        "private_bytes": memory("RssAnon"),
    }
    (folder / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    typer.run(main)
