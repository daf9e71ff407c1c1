"""Commands of a device: `join` an orchestrator, and `benchmark` this machine."""

import logging
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from melisma.cli.leaving import farewell, obey
from melisma.cli.options import JobFile, Json, LearnersPrecision, Threads, read_job
from melisma.cli.output import end, json_line, note
from melisma.cli.progress import spinner
from melisma.cli.trusting import asker
from melisma.errors import ConfigError
from melisma.learning.settings import DEVICE_VARIABLE, Precision

if TYPE_CHECKING:
    from melisma import rpc


def join(
    address: Annotated[
        str,
        typer.Argument(
            envvar="MELISMA_JOIN",
            help="The join string that `melisma serve` printed, or HOST:PORT. A token "
            "in it can be seen in `ps`: give it by the variable.",
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name of this learner.",
            show_default="this machine's name",
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="MELISMA_TOKEN",
            metavar="TOKEN",
            help="Token in place of the join string's; - reads it from standard input.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="File with the token, in place of the join string's."
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            help="This device's own data, for jobs in federated mode: a folder, a "
            ".npz, .csv or .parquet file, module:function (docs/data.md).",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of --data to predict.",
            show_default="the last",
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,C",
            help="Columns of --data to predict from.",
            show_default="all others",
        ),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            envvar=DEVICE_VARIABLE,
            metavar="DEVICE",
            help="What trains: auto, cpu, cuda or mps.",
        ),
    ] = "cpu",
    precision: LearnersPrecision = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Let jobs train this model or task of your own; repeatable.",
        ),
    ] = None,
    trust: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HASH",
            help="Run the code of a job that was served with --bundle, which has this "
            "hash; repeatable. Other code is refused or, at a terminal, shown and "
            "asked about.",
        ),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="Train no faster than '400 samples/s'."),
    ] = None,
    bandwidth: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="Transfer no faster than '1 MB/s'."),
    ] = None,
    states: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml",
            help="Emulate the device's owner at work: [[states]] as in a job's "
            "[[learners]] (docs/jobs.md).",
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST",
            help="Address at which other devices of a fog deliver samples: 0.0.0.0, or "
            "one of this device.",
            show_default="samples come by way of the orchestrator",
        ),
    ] = None,
    share_data: Annotated[
        bool,
        typer.Option(
            "--share-data",
            help="In a fog, send samples of this device's own data to other devices, "
            "as the orchestrator orders. Otherwise they never leave it.",
        ),
    ] = False,
    sensors: Annotated[
        bool,
        typer.Option(
            "--sensors",
            help="Where workers have batteries, read this device's energy sensors "
            "(power_supply, INA3221, RAPL) in place of a model.",
        ),
    ] = False,
    threads: Threads = 1,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh",
            help="Benchmark anew, whatever an earlier run has found.",
            show_default=False,
        ),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print nothing but errors.")
    ] = False,
    until_eof: Annotated[
        bool,
        typer.Option(
            "--until-eof",
            help="Exit when standard input ends, so as to end with a parent process.",
        ),
    ] = False,
) -> None:
    """Be a learner: connect to an orchestrator, and train what it sends until Ctrl-C.

    --data is a table, arrays, images by class, or the official files of a known data
    set; its samples never leave the device without --share-data.
    """
    token = token_of(token, token_file)
    if until_eof:
        _exit_at_eof()
    if until_eof and quiet:  # whoever started it knows that it has ended itself
        logging.getLogger("melisma.rpc").setLevel(logging.ERROR)
    from melisma.launch.joining import join as join_as_learner

    left: list[str] = []

    def joined(name: str, connection: "rpc.Connection") -> None:
        left[:] = [name, connection.name]
        if not until_eof:  # else it ends with its parent, which has no use for manners
            obey(quiet)
        if not quiet:
            note(f"{name} has joined {connection.name}; Ctrl-C to leave")

    join_as_learner(
        address,
        name=name,
        token=token,
        data=data,
        target=target,
        features=features.split(",") if features else None,
        device=device,
        precision=precision or Precision.FP32,
        allow=allow or (),
        trust=trust or (),
        ask=asker(silent=quiet or until_eof),
        rate=rate,
        bandwidth=bandwidth,
        states=states,
        listen=listen,
        share_data=share_data,
        sensors=sensors,
        threads=threads,
        quiet=quiet,
        fresh=fresh,
        joined=joined,
    )
    if not quiet:
        farewell(*left)
    end(0)


def token_of(token: str | None, file: Path | None) -> str | None:
    """Return the token that was given, from a file or standard input if said so."""
    try:
        if file is not None:
            return file.read_text("ascii").strip()
        if token == "-":
            return _first_line()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"no token in {file or 'standard input'}: {error}") from error
    return token


def _first_line() -> str:
    """Read a line of standard input and no more: --until-eof reads the rest."""
    line = b""
    while (byte := os.read(0, 1)) not in (b"", b"\n"):
        line += byte
    return line.decode("ascii").strip()


def _exit_at_eof() -> None:
    """End this process, whatever it is doing, when standard input ends."""

    def read() -> None:
        while os.read(0, 1 << 12):
            pass
        os._exit(0)

    threading.Thread(target=read, name="until-eof", daemon=True).start()


def benchmark(
    job_file: JobFile = None,
    shards: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Shards to train on; else the job's, 8."),
    ] = None,
    sizes: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=2,
            metavar="1|2",
            help="2: half of them too, which tells a call's fixed cost apart.",
        ),
    ] = None,
    repeats: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Epochs over each; the median counts."),
    ] = None,
    threads: Threads = 1,
    check: Annotated[
        bool,
        typer.Option("--check", help="Train the cycle too, and show the errors."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Measure how fast this machine trains a job, and predict a cycle of it.

    The cycle is the job's epochs over all of its samples on this machine alone, without
    a network. It is predicted in two ways. Subset benchmark: an epoch over some shards
    of the job's size or of 500 samples, as its [benchmark] says. FLOPS: the speed of
    matrix products, and the model's operations.
    """
    job = read_job(job_file)
    import msgspec

    from melisma.cli.tables import show_forecast, show_machine
    from melisma.jobs.building import task_of, training_of
    from melisma.learning.forecast import forecast, operations_of, shard_size
    from melisma.learning.training import use_threads

    task = task_of(job)
    use_threads(threads)
    samples = task.cycle_samples(None)
    shards = shards or job.benchmark.shards
    shard = shard_size(job.shard, shards, len(task.data.train))
    with spinner(f"{job.model}, {shards} shards of {shard}", as_json):
        result = forecast(
            task.model,
            task.data,
            training_of(job),
            samples=samples,
            steps=job.steps,
            shard=shard,
            shards=shards,
            sizes=sizes or job.benchmark.sizes,
            repeats=repeats or job.benchmark.repeats_for(job.scheme),
            operations=job.workload.cycles or operations_of(task.model, task.data),
            check=check,
        )
    if as_json:
        errors = dict(zip(("subset", "flops"), result.errors_percent, strict=True))
        head = {"job": job.name, "shard": shard}
        json_line(head | msgspec.to_builtins(result) | {"errors_percent": errors})
        return
    show_machine(result, f"{job.model} on {job.data.name}, shards of {shard}")
    show_forecast(result, f"{job.steps} epochs over {samples:,} samples")
