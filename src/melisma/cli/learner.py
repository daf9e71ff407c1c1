"""Commands of a device: `join` an orchestrator, and `benchmark` this machine."""

import logging
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from melisma.cli import options
from melisma.cli.leaving import farewell, obeying
from melisma.cli.output import end, json_line, note
from melisma.cli.progress import spinner
from melisma.cli.trusting import asker
from melisma.errors import ConfigError
from melisma.learning.settings import Precision

if TYPE_CHECKING:
    from melisma import rpc


def join(
    address: options.JoinString,
    name: options.LearnersName = None,
    token: options.Token = None,
    token_file: options.TokenFile = None,
    data: options.OwnData = None,
    target: options.Target = None,
    features: options.Features = None,
    device: options.Device = "cpu",
    precision: options.LearnersPrecision = None,
    allow: options.Allow = None,
    trust: options.Trust = None,
    rate: options.Rate = None,
    bandwidth: options.Bandwidth = None,
    states: options.States = None,
    listen: options.Listen = None,
    share_data: options.ShareData = False,
    sensors: options.Sensors = False,
    threads: options.Threads = 1,
    fresh: options.Fresh = False,
    quiet: options.Quiet = False,
    until_eof: options.UntilEof = False,
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
    with obeying(quiet) as obey:

        def joined(name: str, connection: "rpc.Connection") -> None:
            left[:] = [name, connection.name]
            if not until_eof:  # else it ends with its parent, which needs no farewell
                obey()
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
    job_file: options.JobFile = None,
    shards: options.Shards = None,
    sizes: options.Sizes = None,
    repeats: options.Repeats = None,
    threads: options.Threads = 1,
    check: options.Check = False,
    as_json: options.Json = False,
) -> None:
    """Measure how fast this machine trains a job, and predict a cycle of it.

    The cycle is the job's epochs over all of its samples on this machine alone, without
    a network. It is predicted in two ways. Subset benchmark: an epoch over some shards
    of the job's size or of 500 samples, as its [benchmark] says. FLOPS: the speed of
    matrix products, and the model's operations.
    """
    job = options.read_job(job_file)
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
