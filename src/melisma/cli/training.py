"""Commands that train: `simulate`, `run`, `testbed` and `serve`.

What needs torch is imported by the command that needs it, after its job was read.
"""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from melisma.cli.goes_on import dashboard_note, ray_flags, resumable
from melisma.cli.jobs import live_job, own_job
from melisma.cli.options import (
    Engine,
    Host,
    JobFile,
    Json,
    JsonLines,
    LearnersDevice,
    LearnersPrecision,
    NodesData,
    Port,
    RayHead,
    Runs,
    SchemeName,
    Threads,
)
from melisma.cli.output import line, note
from melisma.cli.progress import run_bar, telling
from melisma.cli.serving import (
    Certificate,
    ForPhones,
    Key,
    LocalCa,
    PhonesAt,
    PhonesFor,
    PlainHttp,
    Reach,
    orchestrate,
)
from melisma.errors import ConfigError
from melisma.learning.settings import DEVICE_VARIABLE, HERE, Hardware, Precision

if TYPE_CHECKING:
    from melisma.jobs.schema import Job
    from melisma.launch.processes import Learners


def simulate(
    job_file: JobFile = None,
    scheme: SchemeName = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Seed in place of the job's."),
    ] = None,
    threads: Threads = 1,
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
    runs: Runs = Path("runs"),
    as_json: Json = False,
) -> None:
    """Train a job on simulated learners.

    Gradients are real; the time of transfers and training is computed from the rates
    that the job gives. The result does not depend on the number of threads.
    """
    job = own_job(job_file, scheme=scheme, seed=seed)
    from melisma.cli.tables import print_run
    from melisma.launch.simulate import build
    from melisma.runs.store import run_folder

    hardware = Hardware(threads=threads, device=device, precision=precision)
    with telling(as_json):
        simulation = build(job, hardware)
    with (
        run_folder(runs, job.name) as folder,
        run_bar(job, as_json) as watch,
        resumable(folder, "", as_json),
    ):
        records = simulation.run(folder, watch)
    print_run(job, folder, records, as_json)
    if not as_json and (how := simulation.how()):
        line(f"Trained {how}.")


def run(
    job_file: JobFile = None,
    scheme: SchemeName = None,
    engine: Annotated[
        Engine,
        typer.Option(
            help="Learners are processes of this machine, or nodes of a Ray cluster."
        ),
    ] = Engine.PROCESSES,
    address: RayHead = None,
    data: NodesData = None,
    device: LearnersDevice = None,
    precision: LearnersPrecision = None,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh",
            help="Benchmark the learners anew, whatever an earlier run has found.",
            show_default=False,
        ),
    ] = False,
    runs: Runs = Path("runs"),
    as_json: Json = False,
) -> None:
    """Train a job for real, with its learners as processes on this machine.

    Each learner slows itself down to the rate and bandwidth that the job gives it. With
    --engine ray, each node of a cluster is a learner, at its own speed.
    """
    on_ray = engine == Engine.RAY
    if on_ray and not address:
        raise ConfigError(
            "--engine ray needs --address HOST:PORT, the head of a cluster: `ray start "
            "--head` starts one, and each node is a learner"
        )
    if not on_ray and (address or data):
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
        _run(job, start, address, data, device, precision, fresh, runs, as_json)


def _run(
    job: "Job",
    start: "Learners | None",
    address: str | None,
    data: Path | None,
    device: str | None,
    precision: Precision | None,
    fresh: bool,
    runs: Path,
    as_json: bool,
) -> None:
    """Run a job with learners that ``start`` starts, or on a Ray cluster."""
    from melisma.cli.tables import print_run
    from melisma.launch import local
    from melisma.runs.store import run_folder

    with (
        run_folder(runs, job.name) as folder,
        run_bar(job, as_json) as watch,
        resumable(folder, ray_flags(address, data), as_json),
    ):
        show = dashboard_note(as_json)
        if address:
            from melisma.ray.run import run_on_ray

            records = run_on_ray(
                job,
                folder,
                watch,
                show,
                address=address,
                data=data,
                gathering=watch.gathering,
            )
        else:
            hardware = Hardware(
                device=device or HERE.device, precision=precision or Precision.FP32
            )
            records = local.run_locally(
                job,
                folder,
                watch,
                show,
                hardware=hardware,
                start=start,
                gathering=watch.gathering,
                fresh=fresh,
            )
    print_run(job, folder, records, as_json)


def run_on_testbed(
    job_file: JobFile = None,
    devices: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Devices to emulate, with commas between (docs/testbed.md).",
        ),
    ] = "pi1,pi2,pi3,jetson-nano",
    scheme: SchemeName = None,
    clean: Annotated[
        bool,
        typer.Option("--clean", help="Only remove what a killed testbed left behind."),
    ] = False,
    runs: Runs = Path("runs"),
    as_json: Json = False,
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
    from melisma.runs.store import run_folder

    names = [name.strip() for name in devices.split(",") if name.strip()]
    with (
        run_folder(runs, job.name) as folder,
        run_bar(job, as_json) as watch,
        resumable(folder, "", as_json),
    ):
        records = local.run_on_testbed(
            job,
            folder,
            names,
            watch,
            dashboard_note(as_json),
            gathering=watch.gathering,
        )
    print_run(job, folder, records, as_json)


def serve(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.toml", help="Job file.")],
    learners: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Start when this many have joined."),
    ] = 1,
    host: Host = "127.0.0.1",
    port: Port = 8765,
    bundle: Annotated[
        bool,
        typer.Option(
            "--bundle",
            help="Send the source of the job's own modules to learners that trust its "
            "hash (docs/tasks.md).",
        ),
    ] = False,
    phones: ForPhones = False,
    phones_for: PhonesFor = "12h",
    phones_at: PhonesAt = None,
    local_ca: LocalCa = False,
    plain_http: PlainHttp = False,
    certificate: Certificate = None,
    key: Key = None,
    runs: Runs = Path("runs"),
    as_json: JsonLines = False,
) -> None:
    """Train a job with the learners that join.

    Prints the command with which a device joins, the link of the dashboard, and a link
    with its QR code by which phones join.
    """
    reach = Reach(
        host=host,
        port=port,
        phones=phones,
        phones_for=phones_for,
        phones_at=phones_at,
        local_ca=local_ca,
        plain_http=plain_http,
        certificate=certificate,
        key=key,
    )
    job = own_job(job_file)
    from melisma.cli.tables import print_run
    from melisma.launch.bundling import packed
    from melisma.runs.store import run_folder

    code = packed(job, job_file) if bundle else None
    flags = f"--learners {learners} {reach.flags()}"
    with (
        run_folder(runs, job.name) as folder,
        run_bar(job, as_json) as watch,
        resumable(folder, flags, as_json),
    ):
        records = orchestrate(job, folder, watch, learners, reach, as_json, code)
    print_run(job, folder, records, as_json)
