"""An orchestrator in a process of its own, whose memory somebody else limits."""

import json
from collections import Counter
from pathlib import Path

import typer

from melisma import rpc
from melisma.jobs.schema import Job
from melisma.launch.serve import orchestrate
from melisma.learning.training import use_threads
from melisma.rpc.memory import default_bytes
from melisma.runs import records
from melisma.units import Deadline
from peers.live_cost import memory

TASK, SHARD = "crowd", 50
HOSTILE = "hostile-"  #: begins the names of those that attack


def main(folder: Path, cycles: int, honest: int, hostile: int) -> None:
    """Train with so many honest learners; invite them and the hostile ones.

    A third of the hostile have a token each, a third share one, and a third have the
    one that the honest use too.
    """
    use_threads(1)
    job = Job(
        name=TASK,
        scheme="eta",
        cycles=cycles,
        deadline=Deadline(120.0),
        shard=SHARD,
        samples=SHARD * honest,
    )
    run = folder / "run"
    run.mkdir()

    def invite(server: rpc.Server) -> None:
        shared, second = server.join_string(), server.invite()
        joins = {}
        for k in range(hostile):
            name = f"{HOSTILE}{k}"
            if k % 3 == 0:
                joins[name] = server.invite(name)
            else:
                joins[f"{name}-"] = shared if k % 3 == 1 else second
        (folder / "hostile.json").write_text(json.dumps(joins))
        _replace(folder / "honest.json", shared)

    happened = orchestrate(
        job,
        run,
        learners=honest,
        ready=invite,
        port=0,
        secure=True,
        folder=folder / "secrets",
        say=lambda text: None,
    )
    own = [
        r for r in happened if not getattr(r, "learner", HOSTILE).startswith(HOSTILE)
    ]
    merged = [r for r in happened if isinstance(r, records.Aggregated)]
    lost = [r for r in own if isinstance(r, records.Dropped | records.Left)]
    arrived = {(r.learner, r.cycle) for r in own if isinstance(r, records.Uploaded)}
    result = {
        "updates": len(arrived - {(r.learner, r.cycle) for r in lost}),
        # Wrong answers count as learners that came: a run may begin with fewer.
        "due": sum(cycles - r.cycle + 1 for r in own if isinstance(r, records.Joined)),
        "lost": Counter(getattr(r, "reason", "it left") for r in lost),
        "cycles": len(merged),
        "cycle_s": [r.cycle_s for r in merged],
        "peak_bytes": memory("VmHWM"),
        "budget_bytes": default_bytes(),
    }
    _replace(folder / "result.json", result)


def _replace(path: Path, value: object) -> None:
    """Write a file that is whole as soon as it is there."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value))
    part.replace(path)


if __name__ == "__main__":
    typer.run(main)
