"""Commands that train: `simulate`, `run`, `testbed` and `serve`.

What needs torch is imported by the command that needs it, after its job was read.
"""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from melisma.cli import options
from melisma.cli.goes_on import dashboard_note, new_run
from melisma.cli.jobs import live_job, own_job
from melisma.cli.live import Cluster, train_live
from melisma.cli.output import line, note
from melisma.cli.progress import telling
from melisma.cli.serving import Reach, orchestrate
from melisma.errors import ConfigError
from melisma.learning.settings import DEVICE_VARIABLE, HERE, Hardware, Precision


def simulate(
    job_file: options.JobFile = None,
    scheme: options.SchemeName = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Seed in place of the job's."),
    ] = None,
    threads: options.Threads = 1,
    device: Annotated[
        str,
        typer.Option(
            envvar=DEVICE_VARIABLE,
            metavar="DEVICE",
            help="Torch device that trains: cpu, cuda, cuda:1.",
        ),
    ] = "cpu",
    precision: Annotated[
        Precision,
        typer.Option(help="Arithmetic of the training (docs/simulator.md)."),
    ] = Precision.FP32,
    runs: options.Runs = Path("runs"),
    as_json: options.Json = False,
) -> None:
    """Train a job on simulated learners.

    Gradients are real; the time of transfers and training is computed from the rates
    that the job gives. The result does not depend on the number of threads.
    """
    job = own_job(job_file, scheme=scheme, seed=seed)
    from melisma.cli.tables import print_run
    from melisma.launch.simulate import build

    hardware = Hardware(threads=threads, device=device, precision=precision)
    with telling(as_json):
        simulation = build(job, hardware)
    with new_run(job, runs, as_json) as (folder, watch):
        records = simulation.run(folder, watch)
    print_run(job, folder, records, as_json)
    if not as_json and (how := simulation.how()):
        line(f"Trained {how}.")


@options.grouped
def run(
    job_file: options.JobFile = None,
    *,
    scheme: options.SchemeName = None,
    engine: Annotated[
        options.Engine,
        typer.Option(
            help="Learners are processes of this machine, or nodes of a Ray cluster."
        ),
    ] = options.Engine.PROCESSES,
    cluster: Cluster,
    device: options.LearnersDevice = None,
    precision: options.LearnersPrecision = None,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh",
            help="Benchmark the learners anew, whatever an earlier run has found.",
            show_default=False,
        ),
    ] = False,
    runs: options.Runs = Path("runs"),
    as_json: options.Json = False,
) -> None:
    """Train a job for real, with its learners as processes on this machine.

    Each learner slows itself down to the rate and bandwidth that the job gives it. With
    --engine ray, each node of a cluster is a learner, at its own speed.
    """
    on_ray = engine == options.Engine.RAY
    if on_ray and not cluster.address:
        raise ConfigError(
            "--engine ray needs --address HOST:PORT, the head of a cluster: `ray start "
            "--head` starts one, and each node is a learner"
        )
    if not on_ray and (cluster.address or cluster.data):
        raise ConfigError("--address and --data are for --engine ray: add it")
    if on_ray and (device or precision):
        raise ConfigError(
            "--device and --precision are for learners on this machine, not for nodes "
            "of a cluster: leave them out"
        )
    job = live_job(job_file, scheme)
    if not as_json and not on_ray:
        note(
            "The learners slow themselves down to the job's rates; as root, "
            "`melisma testbed` gives each a network and a CPU quota of its own.",
            style="dim",
        )
    from melisma.launch.processes import learners

    # Before torch is imported here.
    with nullcontext() if on_ray else learners() as start:
        from melisma.cli.tables import print_run

        hardware = Hardware(
            device=device or HERE.device, precision=precision or Precision.FP32
        )
        with new_run(job, runs, as_json, cluster.flags()) as (folder, watch):
            records = train_live(
                job, folder, watch, as_json, cluster, hardware, start, fresh
            )
        print_run(job, folder, records, as_json)


def run_on_testbed(
    job_file: options.JobFile = None,
    devices: options.Devices = options.PLATFORM,
    scheme: options.SchemeName = None,
    clean: Annotated[
        bool,
        typer.Option("--clean", help="Only remove what a killed testbed left behind."),
    ] = False,
    runs: options.Runs = Path("runs"),
    as_json: options.Json = False,
) -> None:
    """Train a job for real on emulated devices; needs root.

    Each device is a process with a network namespace and a CPU quota of its own.
    """
    from melisma.testbed import Testbed

    if clean:
        for removed in Testbed.sweep():
            line(removed)
        return
    job = live_job(job_file, scheme)
    from melisma.cli.tables import print_run
    from melisma.launch import local

    with new_run(job, runs, as_json) as (folder, watch):
        records = local.run_on_testbed(
            job,
            folder,
            options.names_in(devices),
            watch,
            dashboard_note(as_json),
            gathering=watch.gathering,
        )
    print_run(job, folder, records, as_json)


@options.grouped
def serve(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.toml", help="Job file.")],
    *,
    learners: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Start when this many have joined."),
    ] = 1,
    bundle: Annotated[
        bool,
        typer.Option(
            "--bundle",
            help="Send the source of the job's own modules to learners that trust its "
            "hash (docs/tasks.md).",
        ),
    ] = False,
    reach: Reach,
    runs: options.Runs = Path("runs"),
    as_json: options.JsonLines = False,
) -> None:
    """Train a job with the learners that join.

    Prints the command with which a device joins, the link of the dashboard, and a link
    with its QR code by which phones join.
    """
    job = own_job(job_file)
    from melisma.cli.tables import print_run
    from melisma.launch.bundling import packed

    code = packed(job, job_file) if bundle else None
    flags = f"--learners {learners} {reach.flags()}"
    with new_run(job, runs, as_json, flags) as (folder, watch):
        records = orchestrate(job, folder, watch, learners, reach, as_json, code)
    print_run(job, folder, records, as_json)
