"""Options that several commands have, and the job that they describe."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from melisma.learning.settings import DEVICE_VARIABLE, Precision

if TYPE_CHECKING:
    from melisma.jobs.schema import Job


class Engine(StrEnum):
    """What work is spread over."""

    PROCESSES = "processes"
    RAY = "ray"


JobFile = Annotated[
    Path | None,
    typer.Argument(metavar="[JOB.toml]", help="Job file; a demo if left out."),
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of the run.")]
SchemeName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Scheme in place of the job's; `melisma schemes` lists them.",
    ),
]
Runs = Annotated[
    Path,
    typer.Option(
        file_okay=False,
        writable=True,
        metavar="DIR",
        help="Folder in which to make the run's own.",
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON, and no progress.")
]
LearnersDevice = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="DEVICE",
        help="What trains: auto, cpu, cuda or mps.",
        show_default=f"${DEVICE_VARIABLE}, or cpu",
    ),
]
LearnersPrecision = Annotated[
    Precision | None,
    typer.Option(
        "--precision",
        help="Arithmetic of the training; bf16 where the device has it.",
        show_default=Precision.FP32.value,
    ),
]
Threads = Annotated[
    int, typer.Option(min=1, metavar="N", help="CPU threads that train.")
]
Port = Annotated[
    int,
    typer.Option(
        min=0, max=65535, metavar="PORT", help="Port to listen on; 0 takes a free one."
    ),
]
Host = Annotated[
    str,
    typer.Option(
        metavar="HOST",
        help="Address to listen on; 0.0.0.0 lets other machines in, over TLS.",
    ),
]
JsonLines = Annotated[
    bool,
    typer.Option(
        "--json",
        help='Print JSON lines, and no progress: {"join": …, "dashboard": …} when '
        "learners can join, and the result at the end.",
    ),
]
RayHead = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="Head of the Ray cluster whose nodes are the learners.",
    ),
]
NodesData = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="On a Ray cluster, for jobs in federated mode: each node has its "
        "learner's own data in DIR/NAME.",
    ),
]
TrialEngine = Annotated[
    Engine,
    typer.Option(
        "--engine",
        help="Run trials in processes on this machine, or on a Ray cluster; the "
        "results are the same (docs/sweeps.md).",
    ),
]
TrialCluster = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="Head of the Ray cluster.",
        show_default="a cluster of this machine alone",
    ),
]
Processes = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Trials at a time on this machine.",
        show_default="one per core",
    ),
]


def read_job(file: Path | None, **changes: object) -> "Job":
    """Return the job in ``file``, or the demo, with changes that are not None."""
    import msgspec

    from melisma.jobs.files import load
    from melisma.jobs.schema import Job

    job = load(file) if file else Job()
    given = {key: value for key, value in changes.items() if value is not None}
    return msgspec.structs.replace(job, **given)
