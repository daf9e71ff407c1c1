"""Options of the commands by name, each declared once, and the job of a file."""

import inspect
import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from melisma.errors import ConfigError
from melisma.learning.settings import DEVICE_VARIABLE, Precision
from melisma.units import Lifetime

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

# How a device connects.
JoinString = Annotated[
    str,
    typer.Argument(
        envvar="MELISMA_JOIN",
        help="The join string that `melisma serve` printed, or HOST:PORT. A token in "
        "it can be seen in `ps`: give it by the variable.",
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        envvar="MELISMA_TOKEN",
        metavar="TOKEN",
        help="Token in place of the join string's; - reads it from standard input.",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="File with the token, in place of the join string's."
    ),
]
LearnersName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Name of this learner.",
        show_default="this machine's name",
    ),
]

# What a device trains on, and whose code.
OwnData = Annotated[
    str | None,
    typer.Option(
        metavar="PLACE",
        help="This device's own data, for jobs in federated mode: a folder, a .npz, "
        ".csv or .parquet file, module:function (docs/data.md).",
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="Column of --data to predict.", show_default="the last"
    ),
]
Features = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,C",
        help="Columns of --data to predict from.",
        show_default="all others",
    ),
]
ShareData = Annotated[
    bool,
    typer.Option(
        "--share-data",
        help="In a fog, send samples of this device's own data to other devices, as "
        "the orchestrator orders. Otherwise they never leave it.",
    ),
]
Listen = Annotated[
    str | None,
    typer.Option(
        metavar="HOST",
        help="Address at which other devices of a fog deliver samples: 0.0.0.0, or "
        "one of this device.",
        show_default="samples come by way of the orchestrator",
    ),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        metavar="MODULE:FUNCTION",
        help="Let jobs train this model or task of your own; repeatable.",
    ),
]
Trust = Annotated[
    list[str] | None,
    typer.Option(
        metavar="HASH",
        help="Run the code of a job that was served with --bundle, which has this "
        "hash; repeatable. Other code is refused or, at a terminal, shown and asked "
        "about.",
    ),
]

# How fast a device is.
Device = Annotated[
    str,
    typer.Option(
        envvar=DEVICE_VARIABLE,
        metavar="DEVICE",
        help="What trains: auto, cpu, cuda or mps.",
    ),
]
Rate = Annotated[
    str | None,
    typer.Option(metavar="RATE", help="Train no faster than '400 samples/s'."),
]
Bandwidth = Annotated[
    str | None,
    typer.Option(metavar="RATE", help="Transfer no faster than '1 MB/s'."),
]
States = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.toml",
        help="Emulate the device's owner at work: [[states]] as in a job's "
        "[[learners]] (docs/jobs.md).",
    ),
]
Sensors = Annotated[
    bool,
    typer.Option(
        "--sensors",
        help="Where workers have batteries, read this device's energy sensors "
        "(power_supply, INA3221, RAPL) in place of a model.",
    ),
]
Fresh = Annotated[
    bool,
    typer.Option(
        "--fresh",
        help="Benchmark anew, whatever an earlier run has found.",
        show_default=False,
    ),
]

# How a learner behaves as a process.
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]
UntilEof = Annotated[
    bool,
    typer.Option(
        "--until-eof",
        help="Exit when standard input ends, so as to end with a parent process.",
    ),
]

# What is emulated on this machine.
Devices = Annotated[
    str,
    typer.Option(
        metavar="NAMES",
        help="Devices to emulate, with commas between (docs/testbed.md).",
    ),
]
PLATFORM = "pi1,pi2,pi3,jetson-nano"

# How a machine is benchmarked.
Shards = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Shards to train on; else the job's, 8."),
]
Sizes = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=2,
        metavar="1|2",
        help="2: half of them too, which tells a call's fixed cost apart.",
    ),
]
Repeats = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Epochs over each; the median counts."),
]
Check = Annotated[
    bool,
    typer.Option("--check", help="Train the cycle too, and show the errors."),
]

# How a run that was cut short goes on.
LearnersAgain = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Go on when this many have joined.",
        show_default="as many as at its start",
    ),
]
Locally = Annotated[
    bool,
    typer.Option(
        help="Start its learners on this machine, as `melisma run` does.",
        show_default=False,
    ),
]
Edited = Annotated[
    bool,
    typer.Option("--edited", help="Go on with a config.toml that you have edited."),
]


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take options in groups: a dataclass has one in each field."""
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {}
    options: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        kind = parameter.annotation
        if isinstance(kind, type) and is_dataclass(kind):
            groups[name] = kind
            options += inspect.signature(kind, eval_str=True).parameters.values()
        else:
            options.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    def call(**given: object) -> None:
        for name, group in groups.items():
            own = {field.name: given.pop(field.name) for field in fields(group)}
            given[name] = group(**own)
        command(**given)

    call.__name__, call.__doc__ = command.__name__, command.__doc__
    call.__annotations__ = {option.name: option.annotation for option in options}
    call.__annotations__["return"] = None
    vars(call)["__signature__"] = signature.replace(parameters=options)
    return call


def names_in(text: str) -> list[str]:
    """Return the names in an option that takes several, with commas between."""
    return [name.strip() for name in text.split(",") if name.strip()]


def time_to_come(option: str, written: str, example: str) -> float:
    """Return a time in seconds; ConfigError unless it is to come, and ends."""
    seconds = float(Lifetime.of(written))
    if not 0 < seconds < math.inf:
        raise ConfigError(
            f"{option} {written!r}: give a time to come, such as {example}"
        )
    return seconds


def read_job(file: Path | None, **changes: object) -> "Job":
    """Return the job in ``file``, or the demo, with changes that are not None."""
    import msgspec

    from melisma.jobs.files import load
    from melisma.jobs.schema import Job

    job = load(file) if file else Job()
    given = {key: value for key, value in changes.items() if value is not None}
    return msgspec.structs.replace(job, **given)
