"""The command line: `melisma simulate`, `compare`, `benchmark`, `schemes` and more.

Numbers go to standard output, progress and errors to standard error. What is wrong with
the input is one line and exit code 2. What needs torch is imported by the command
that needs it, after its job was read: --help and a typo answer at once.
"""

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from melisma import __version__
from melisma.errors import AccessError, ConfigError, MelismaError
from melisma.learning.settings import DEVICE_VARIABLE, Hardware, Precision

if TYPE_CHECKING:
    from melisma import sweeps
    from melisma.comparison import Comparison
    from melisma.config import Job
    from melisma.learning.forecast import Forecast
    from melisma.rpc import Server
    from melisma.rpc.tokens import Tokens
    from melisma.runs.course import Course
    from melisma.runs.fog import Totals
    from melisma.runtime.records import Record

app = typer.Typer(
    help="Train one model on many unlike devices by a deadline.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
token = typer.Typer(
    help="Let devices join this user's servers, and keep them out again.",
    no_args_is_help=True,
)
app.add_typer(token, name="token")
papers = typer.Typer(
    help="Regenerate the papers' figures and tables, and judge their claims.",
    no_args_is_help=True,
)
app.add_typer(papers, name="papers")
out, err = Console(), Console(stderr=True)

#: Exit code of one that is not let in: trying again is of no use (as in sysexits.h).
NO_ACCESS = 77


class Engine(StrEnum):
    """What work is spread over."""

    PROCESSES = "processes"
    RAY = "ray"


JobFile = Annotated[
    Path | None,
    typer.Argument(metavar="[JOB.toml]", help="The job; the demo if left out."),
]
Runs = Annotated[Path, typer.Option(help="Folder in which runs are kept.")]
Nodes = Annotated[
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
        help="On a Ray cluster, for jobs in federated mode: a node's own data is in "
        "DIR/NAME there.",
    ),
]
Over = Annotated[
    Engine,
    typer.Option(
        "--engine",
        help="Spread trials over processes of this machine or over a Ray cluster; the "
        "results are the same (docs/sweeps.md).",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="Head of the Ray cluster; one of this machine alone if left out.",
    ),
]
Processes = Annotated[
    int | None,
    typer.Option(
        min=1, help="Trials at a time on this machine.", show_default="one a core"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and no progress.")]
Home = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder of certificate and tokens.",
        show_default="~/.melisma",
    ),
]


def main() -> None:
    """Run the command line; bad input is one line and exit code 2, no access 77."""
    # A job's own `module:factory` lies where the user stands.
    sys.path.insert(0, "")
    try:
        app()
    except MelismaError as error:
        err.print(f"melisma: {error}", style="red", markup=False, soft_wrap=True)
        sys.exit(NO_ACCESS if isinstance(error, AccessError) else 2)


@app.command()
def simulate(
    job_file: JobFile = None,
    scheme: Annotated[
        str | None, typer.Option(help="Scheme to use in place of the job's.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed to use in place of the job's.")
    ] = None,
    threads: Annotated[
        int, typer.Option(min=1, help="Threads that train; the result is the same.")
    ] = 1,
    device: Annotated[
        str,
        typer.Option(
            envvar=DEVICE_VARIABLE,
            help="What trains, as torch calls it: cpu, cuda, cuda:1.",
        ),
    ] = "cpu",
    precision: Annotated[
        Precision, typer.Option(help="In what learners compute (docs/simulator.md).")
    ] = Precision.FP32,
    runs: Runs = Path("runs"),
    as_json: Json = False,
) -> None:
    """Train a job on simulated learners: time is priced, gradients are real."""
    job = _job(job_file, scheme=scheme, seed=seed)
    from melisma import building
    from melisma.runtime.folder import run_folder

    hardware = Hardware(threads=threads, device=device, precision=precision)
    ready = building.ready(job, hardware)
    with run_folder(runs, job.name) as folder, _cycles(job, as_json) as watch:
        records = ready.run(folder, watch)
    _print_run(job, folder, records, as_json)


@app.command("run")
def run_job(
    job_file: JobFile = None,
    scheme: Annotated[
        str | None, typer.Option(help="Scheme to use in place of the job's.")
    ] = None,
    engine: Annotated[
        Engine,
        typer.Option(help="Learners are processes here, or nodes of a Ray cluster."),
    ] = Engine.PROCESSES,
    address: Nodes = None,
    data: NodesData = None,
    runs: Runs = Path("runs"),
    as_json: Json = False,
) -> None:
    """Train a job for real, with its learners as processes on this machine.

    Each learner slows itself down to the rate and bandwidth that the job gives it. With
    --engine ray, each node of a cluster is a learner instead, as fast as it is.
    """
    on_ray = engine == Engine.RAY
    if on_ray and not address:
        raise ConfigError(
            "--engine ray needs --address HOST:PORT, the head of a cluster: `ray start "
            "--head` starts one, and each node is a learner"
        )
    if not on_ray and (address or data):
        raise ConfigError("--address and --data are for --engine ray: add it")
    from melisma import live
    from melisma.config import load

    job = load(job_file) if job_file else live.DEMO
    job = msgspec.structs.replace(job, scheme=scheme or job.scheme)
    from melisma.runtime.folder import run_folder

    if not as_json and not on_ray:
        err.print(
            "The learners slow themselves down to the job's rates; as root, "
            "`melisma testbed` gives each a network and a CPU quota of its own.",
            style="dim",
        )
    with (
        run_folder(runs, job.name) as folder,
        _cycles(job, as_json) as watch,
        _resumable(folder, _nodes(address, data) if address else "--locally"),
    ):
        show = _shown(as_json)
        if address:
            records = live.run_on_ray(
                job, folder, watch, show, address=address, data=data
            )
        else:
            records = live.run_locally(job, folder, watch, show)
    _print_run(job, folder, records, as_json)


@app.command("testbed")
def run_on_testbed(
    job_file: JobFile = None,
    devices: Annotated[
        str, typer.Option(help="Names with commas between; see docs/testbed.md.")
    ] = "pi1,pi2,pi3,jetson-nano",
    scheme: Annotated[
        str | None, typer.Option(help="Scheme to use in place of the job's.")
    ] = None,
    clean: Annotated[
        bool, typer.Option("--clean", help="Only remove what a killed one left.")
    ] = False,
    runs: Runs = Path("runs"),
    as_json: Json = False,
) -> None:
    """Train a job for real on emulated devices: own network, own CPU quota (root)."""
    from melisma.runtime.testbed import Testbed

    if clean:
        for removed in Testbed.sweep():
            out.print(removed, markup=False)
        return
    from melisma import live
    from melisma.config import load
    from melisma.runtime.folder import run_folder

    job = load(job_file) if job_file else live.DEMO
    job = msgspec.structs.replace(job, scheme=scheme or job.scheme)
    names = [name.strip() for name in devices.split(",") if name.strip()]
    with run_folder(runs, job.name) as folder, _cycles(job, as_json) as watch:
        records = live.run_on_testbed(job, folder, names, watch, _shown(as_json))
    _print_run(job, folder, records, as_json)


@app.command()
def serve(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.toml", help="The job.")],
    learners: Annotated[
        int, typer.Option(min=1, help="Start when this many have joined.")
    ] = 1,
    host: Annotated[
        str, typer.Option(help="Where to listen: 0.0.0.0 for other machines, with TLS.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="0: any free one.")
    ] = 8765,
    runs: Runs = Path("runs"),
    as_json: Json = False,
) -> None:
    """Train a job with the learners that join; prints how to join."""
    from melisma.runtime.folder import run_folder

    job = _job(job_file)
    with (
        run_folder(runs, job.name) as folder,
        _cycles(job, as_json) as watch,
        _resumable(folder, f"--learners {learners} --host {host} --port {port}"),
    ):
        show = _shown(as_json)
        records = _orchestrate(job, folder, watch, show, learners, host, port)
    _print_run(job, folder, records, as_json)


@app.command()
def resume(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")],
    learners: Annotated[
        int, typer.Option(min=1, help="Go on when this many are there.")
    ] = 1,
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="0: any free one.")
    ] = 8765,
    locally: Annotated[
        bool, typer.Option(help="Start its learners here, as `melisma run` does.")
    ] = False,
    address: Nodes = None,
    data: NodesData = None,
    as_json: Json = False,
) -> None:
    """Go on with a run that was cut short, from its last whole cycle."""
    from melisma import live

    job = _job(live.resumable(run))
    options = f"--learners {learners} --host {host} --port {port}"
    if address and locally:
        raise ConfigError("--locally or --address: its learners are here, or nodes")
    if address:
        options = _nodes(address, data)
    with (
        _cycles(job, as_json) as watch,
        _resumable(run, "--locally" if locally else options),
    ):
        show = _shown(as_json)
        if address:
            records = live.run_on_ray(job, run, watch, show, address=address, data=data)
        elif locally:
            records = live.run_locally(job, run, watch, show)
        else:
            records = _orchestrate(job, run, watch, show, learners, host, port)
    _print_run(job, run, records, as_json)


@app.command()
def join(
    address: Annotated[
        str,
        typer.Argument(
            envvar="MELISMA_JOIN",
            help="HOST:PORT, or the join string that `serve` printed.",
        ),
    ],
    name: Annotated[
        str | None, typer.Option(help="What to be called; this machine's name.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="MELISMA_TOKEN", help="In place of the one in the join string."
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Own data, for jobs in federated mode."),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE:FACTORY",
            help="A model of one's own that jobs may name; repeatable.",
        ),
    ] = None,
    rate: Annotated[
        str | None, typer.Option(help="Train no faster, as '400 samples/s'.")
    ] = None,
    bandwidth: Annotated[
        str | None, typer.Option(help="Transfer no faster, as '1 MB/s'.")
    ] = None,
    states: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml",
            help="What the device's owner does meanwhile, as in a job's [[learners]].",
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST",
            help="Let other devices of a fog deliver samples directly: 0.0.0.0, or an "
            "address of this device.",
            show_default="by the orchestrator",
        ),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads that train.")] = 1,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing.")] = False,
    until_eof: Annotated[
        bool, typer.Option("--until-eof", help="End when standard input does.")
    ] = False,
) -> None:
    """Be a learner: dial an orchestrator, and train what it sends until Ctrl-C.

    Own data is x.npy (images) and y.npy (classes), or the official files of a known
    data set; it never leaves the device.
    """
    if until_eof:
        _end_with_input()
    import logging
    import math
    import socket

    from melisma import rpc
    from melisma.config import load_states
    from melisma.learning.data import load_own
    from melisma.learning.training import use_threads
    from melisma.live import owner_of
    from melisma.runtime.learner import Learner
    from melisma.runtime.owner import Owner, State
    from melisma.units import BytesPerSecond, SamplesPerSecond

    name = name or socket.gethostname()
    if states and (rate or bandwidth):
        raise ConfigError(
            "--states has rates of its own: leave --rate, --bandwidth out"
        )
    if states:
        owner = owner_of(load_states(states), name)
    else:
        pace = State(
            samples_per_s=float(SamplesPerSecond.of(rate)) if rate else math.inf,
            bytes_per_s=float(BytesPerSecond.of(bandwidth)) if bandwidth else math.inf,
        )
        owner = Owner([pace])
    use_threads(threads)
    own = load_own(data) if data else None
    learner = Learner(
        name=name, own=own, owner=owner, allowed=allow or (), listens=listen
    )
    if not quiet:
        logging.basicConfig(format="%(message)s")
        logging.getLogger("melisma.learner").setLevel(logging.INFO)
    with (
        closing(learner),
        rpc.connect(
            address, learner, name=name, token=token, patience_s=30.0, threads=8
        ) as line,
    ):
        if not quiet:
            err.print(f"{name} has joined {line.name}; Ctrl-C to leave", markup=False)
        line.wait()


def _end_with_input() -> None:
    """End this process, whatever it does, once there is nothing more to read."""
    import os
    import threading

    def read() -> None:
        while os.read(0, 1 << 12):
            pass
        os._exit(0)

    threading.Thread(target=read, name="until-eof", daemon=True).start()


@app.command()
def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")],
    as_json: Json = False,
) -> None:
    """Write a run's report into its folder: a page that opens offline, and a CSV."""
    from melisma import runs

    page = runs.write(run)
    job, records = runs.read(run)
    if as_json and not job.task:
        rows = runs.account(job, records)
        _print_json(
            {
                "job": job.name,
                "scheme": job.scheme,
                "seed": job.seed,
                "report": str(page),
                "cycles": rows.cycles,
                "learners": rows.learners,
                "turns": rows.turns,
                "incidents": rows.incidents,
                **_moves(records),
            }
        )
        return
    _print_run(job, run, records, as_json)
    if not as_json:
        out.print(f"Report: {page}")


@app.command("runs")
def list_runs(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FOLDER | RUN RUN…]",
            help="A folder of runs to list, or runs to compare.",
            show_default="runs",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List earlier runs, or show what several came to side by side."""
    given = folders or [Path("runs")]
    if len(given) == 1:
        _list_runs(given[0], as_json)
        return
    from melisma.runs.final import ROWS, final

    ended = [final(folder) for folder in given]
    if as_json:
        _print_json(ended)
        return
    table = Table("", box=None)
    for run in ended:
        table.add_column(Text(run.id), justify="right", header_style="bold")
    for row in ROWS:
        table.add_row(row.title, *(Text(row.text(run)) for run in ended))
    out.print(table)


def _list_runs(root: Path, as_json: bool) -> None:
    """One line a run, the latest first."""
    from datetime import datetime

    from melisma.dashboard.library import Library

    found = Library(root).summaries()
    if as_json:
        _print_json(found)
        return
    if not found:
        out.print(f"No runs in {root} yet.", markup=False, highlight=False)
        return
    table = Table(
        *("run", "scheme", "state", "cycles", "accuracy\n(%)", "loss", "time\n(s)"),
        *("learners", "when"),
        header_style="bold",
        box=None,
    )
    table.columns[0].overflow = "fold"
    for column in table.columns[3:8]:
        column.justify = "right"
    table.columns[-1].no_wrap = table.columns[2].no_wrap = True
    for run in found:
        percent = None if run.accuracy is None else 100 * run.accuracy
        table.add_row(
            *(Text(run.id), Text(run.scheme), run.state),
            f"{run.cycles_done:,}/{run.cycles:,}",
            *(_known(percent, 2), _known(run.loss, 3), _known(run.time_s, 1)),
            f"{run.learners:,}",
            f"{datetime.fromtimestamp(run.modified):%d %b %H:%M}",
        )
    out.print(table)


@app.command()
def dashboard(
    runs: Annotated[
        Path, typer.Argument(metavar="[RUNS]", help="Folder in which runs are kept.")
    ] = Path("runs"),
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="0: any free one.")
    ] = 8765,
) -> None:
    """Show the runs in a folder in the browser, on this machine, until Ctrl-C."""
    from melisma import rpc
    from melisma.dashboard import Dashboard

    if not runs.is_dir():
        raise ConfigError(f"{runs} is no folder: give the one in which runs are kept")
    site = Dashboard(runs)
    with rpc.serve(port=port, routes=site.routes, say=lambda text: None) as server:
        text = f"Dashboard: {server.url}/   (Ctrl-C to end)"
        err.print(text, markup=False, highlight=False, soft_wrap=True)
        server.wait()


@app.command()
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")],
    to: Annotated[str, typer.Option(help="tensorboard or mlflow.")],
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where to write.",
            show_default="RUN/tensorboard, or mlruns beside RUN",
        ),
    ] = None,
) -> None:
    """Write a run's figures by cycle for TensorBoard or MLflow."""
    from melisma.errors import unknown
    from melisma.runs.export import to_mlflow, to_tensorboard

    ways = {
        "tensorboard": (to_tensorboard, run / "tensorboard"),
        "mlflow": (to_mlflow, run.parent / "mlruns"),
    }
    if to not in ways:
        raise unknown("--to", to, ways)
    write, usual = ways[to]
    there = folder or usual
    count = write(run, there)
    out.print(f"{count:,} figures: {there}", markup=False, highlight=False)


@app.command()
def compare(
    job_file: JobFile = None,
    schemes: Annotated[
        str | None,
        typer.Option(
            help="Names with commas between; see `melisma schemes`.",
            show_default="csa,eta,sync,dab; of several tasks med,mmtt,med-probe,"
            "mmtt-ideal; of a fog fog:alone,fog:windows,fog:rolling,fog:known",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each scheme.")] = 5,
    engine: Over = Engine.PROCESSES,
    address: Cluster = None,
    processes: Processes = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Go on with a comparison that was stopped: the same job, schemes and "
            "seeds, and its folder.",
        ),
    ] = None,
    runs: Runs = Path("runs"),
    as_json: Json = False,
) -> None:
    """Run a job under several schemes and seeds; show means and 95 % intervals.

    Every run is kept as it ends: a comparison that is stopped can go on.
    """
    job = _job(job_file)
    from melisma import report
    from melisma.comparison import compare as run_all
    from melisma.comparison import compare_tasks, usual
    from melisma.config import dump
    from melisma.runtime.folder import run_folder
    from melisma.trials import SWEEP

    if schemes is None:
        schemes = ",".join(usual(job))
    names = [name.strip() for name in schemes.split(",") if name.strip()]
    if not names or len(set(names)) < len(names):
        raise ConfigError(f"--schemes {schemes!r}: give different names, e.g. csa,eta")
    if resume and not (resume / SWEEP).is_file():
        raise ConfigError(f"--resume {resume}: no comparison was begun there")
    own = nullcontext(resume) if resume else run_folder(runs, f"{job.name}-compared")
    comparison: Any
    with (
        own as folder,
        _stoppable(None if resume else folder),
        _spread(engine, address, processes) as over,
        _progress(f"{job.name}: {len(names) * seeds} runs", as_json) as begin,
    ):
        if job.task:
            comparison = compare_tasks(job, names, seeds, folder, over, begin)
            report.write_tasks(comparison, dump(job), folder)
        else:
            comparison = run_all(job, names, seeds, folder, over, begin)
            report.write(comparison, dump(job), folder)
    if as_json:
        _print_json({"folder": str(folder), "comparison": comparison})
        return
    _print_comparison(comparison)
    for path in sorted(folder.glob("*.png")):
        out.print(f"Picture: {path}")
    out.print(f"Report:  {folder / report.PAGE}")


@app.command()
def benchmark(
    job_file: JobFile = None,
    shards: Annotated[
        int, typer.Option(min=2, help="Shards to train on: all, and half of them.")
    ] = 8,
    repeats: Annotated[
        int, typer.Option(min=1, help="Passes over each; the median counts.")
    ] = 3,
    threads: Annotated[int, typer.Option(min=1, help="Threads that train.")] = 1,
    check: Annotated[
        bool, typer.Option("--check", help="Train the cycle too and show the errors.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Measure how fast this machine trains a job, and predict a cycle of it alone.

    Subset benchmark: one pass over half of the shards, one over all. A shard
    has the job's size, or 500 samples. FLOPS: matrix products. The cycle is
    the job's steps over its samples; network and learners have no part in it.
    """
    job = _job(job_file)
    from melisma.learning.forecast import forecast, operations_of, shard_size
    from melisma.learning.settings import Training
    from melisma.learning.training import use_threads
    from melisma.simulation import task_of

    task = task_of(job)
    use_threads(threads)
    shard = shard_size(job.shard, shards, len(task.data.train_y))
    with _working(f"{job.model}, {shards} shards of {shard}", as_json):
        told = forecast(
            task.model,
            task.data,
            Training(
                optimiser=job.training.optimiser,
                rate=job.training.rate,
                batch=job.training.batch,
            ),
            samples=task.cycle_samples(None),
            steps=job.steps,
            shard=shard,
            shards=shards,
            repeats=repeats,
            operations=job.workload.cycles or operations_of(task.model, task.data),
            check=check,
        )
    if as_json:
        measured = msgspec.to_builtins(told)
        errors = dict(zip(("subset", "flops"), told.errors_percent, strict=True))
        _print_json(
            {"job": job.name, "shard": shard, **measured, "errors_percent": errors}
        )
        return
    _print_machine(told, f"{job.model} on {job.data.name}, shards of {shard}")
    _print_forecast(
        told, f"{job.steps} steps over {task.cycle_samples(None):,} samples"
    )


@app.command()
def schemes(as_json: Json = False) -> None:
    """List the allocation schemes."""
    from melisma.schemes import SCHEMES, summary

    if as_json:
        _print_json({name: summary(name) for name in SCHEMES})
        return
    table = Table("scheme", "what it does", box=None, header_style="bold")
    for name in SCHEMES:
        table.add_row(name, summary(name))
    out.print(table)
    out.print(
        "Others: coded:CODE around stragglers (docs/coding.md), fog:PLAN to move data "
        "(docs/fog.md), med and more for several tasks (docs/multitask.md).",
        highlight=False,
    )


@token.command("add")
def add_token(
    name: Annotated[
        str | None,
        typer.Option(help="The one device that may use it; any if left out."),
    ] = None,
    may_call: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN", help="What it may call, as read_*; repeatable."
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(help="Where devices reach the server; this machine if left out."),
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Its port; 8765 if left out.")
    ] = None,
    folder: Home = None,
) -> None:
    """Make a token and print the join string with it: the only time it is seen."""
    from melisma.rpc import certificates
    from melisma.rpc.address import DEFAULT_PORT, Address, reachable
    from melisma.rpc.tokens import EVERYTHING

    with _tokens(folder) as tokens:
        certificate, _ = certificates.ensure(tokens.path.parent)
        address = Address(
            host=host or reachable("0.0.0.0"),
            port=port or DEFAULT_PORT,
            tls=True,
            token=tokens.add(name, tuple(may_call or EVERYTHING)),
            fingerprint=certificates.fingerprint_of(certificate),
        )
    out.print(address.join_string(), markup=False, highlight=False, soft_wrap=True)


@token.command("list")
def list_tokens(folder: Home = None) -> None:
    """List the tokens that let devices in; what is secret in them is not kept."""
    with _tokens(folder) as tokens:
        entries = tokens.list()
    if not entries:
        out.print("No tokens yet: `melisma token add` makes one.")
        return
    table = Table("id", "name", "may call", box=None, header_style="bold")
    for entry in entries:
        table.add_row(
            entry.id, Text(entry.name or "any"), Text(", ".join(entry.may_call))
        )
    out.print(table)


@token.command("revoke")
def revoke_token(
    id: Annotated[str, typer.Argument(help="As `melisma token list` shows it.")],
    folder: Home = None,
) -> None:
    """Let a token in no more; a device that is connected stays until it reconnects."""
    with _tokens(folder) as tokens:
        tokens.revoke(id)
    out.print(f"Revoked {id}.", highlight=False)


@contextmanager
def _tokens(folder: Path | None) -> Iterator["Tokens"]:
    """The tokens in ``folder``, or this user's own."""
    from melisma.rpc.endpoints import HOME
    from melisma.rpc.tokens import Tokens

    try:
        yield Tokens((folder or HOME) / "tokens.json")
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}") from error


@papers.command("list")
def list_papers() -> None:
    """List the papers and what can be regenerated of each."""
    table = Table("key", "paper", "figures and tables", box=None, header_style="bold")
    package = _papers()
    for key in package.KEYS:
        paper = package.find(key)
        names = ", ".join(exhibit.name for exhibit in paper.exhibits)
        table.add_row(key, paper.title, names)
    out.print(table)


@papers.command("run")
def run_paper(
    key: Annotated[str, typer.Argument(help="As `melisma papers list` shows it.")],
    full: Annotated[
        bool, typer.Option("--full/--quick", help="The paper's own size, or minutes.")
    ] = False,
    figure: Annotated[
        str | None, typer.Option(help="One figure or table alone, as printed: 3.6.")
    ] = None,
    engine: Over = Engine.PROCESSES,
    address: Cluster = None,
    processes: Processes = None,
) -> None:
    """Run what was not run before, draw it, and write docs/papers/KEY.md here.

    What was run is kept in runs/papers and drawn again from there. Trials are kept as
    they end: the same command goes on with a run that was stopped.
    """
    paper = _papers().find(key)
    with _stoppable(), _spread(engine, address, processes) as over:
        _papers("report").report(paper, full, figure, over, out=out, err=err)


@contextmanager
def _spread(
    engine: Engine, address: str | None, processes: int | None
) -> "Iterator[sweeps.Engine]":
    """What trials are spread over; ConfigError if the flags do not agree."""
    if engine == Engine.RAY:
        if address and processes:
            raise ConfigError(
                f"--processes {processes}: the cluster at {address} has CPUs of its "
                "own; leave one of the two out"
            )
        from melisma.ray.sweeps import over_ray

        with over_ray(address, processes) as over:
            yield over
        return
    if address:
        raise ConfigError(f"--address {address} is of a Ray cluster: add --engine ray")
    from melisma.sweeps import over_processes

    with over_processes(processes) as over:
        yield over


@contextmanager
def _stoppable(folder: Path | None = None) -> Iterator[None]:
    """Tell who stops a sweep how to go on: by the same command, and in its folder."""
    try:
        yield
    except KeyboardInterrupt:
        words = ["melisma", *sys.argv[1:]]
        if folder and any(folder.iterdir()):
            words += ["--resume", str(folder)]
        text = f"Stopped; what has ended is kept. Go on with: {shlex.join(words)}"
        err.print(text, markup=False, highlight=False, soft_wrap=True)
        raise


def _papers(module: str = "") -> Any:
    """The package of the papers, which is no part of this one."""
    try:
        return import_module(".".join(filter(None, ("melisma_papers", module))))
    except ModuleNotFoundError as error:
        if error.name != "melisma_papers":
            raise
        raise ConfigError(
            "the papers are not installed: install melisma from a clone or its wheel"
        ) from error


@app.command()
def version(as_json: Json = False) -> None:
    """Print the version."""
    if as_json:
        _print_json({"version": __version__})
    else:
        out.print(f"melisma {__version__}", highlight=False)


def _job(file: Path | None, **changes: Any) -> "Job":
    """The job in ``file``, or the demo, with what the flags change."""
    from melisma.config import Job, load

    job = load(file) if file else Job()
    given = {key: value for key, value in changes.items() if value is not None}
    return msgspec.structs.replace(job, **given)


@contextmanager
def _progress(title: str, quiet: bool) -> Iterator[Callable[[int], Callable[[], None]]]:
    """A bar, once it is told for how many cycles."""
    with _bar(quiet) as progress:
        bar = progress.add_task(title, total=None, state="")

        def begin(cycles: int) -> Callable[[], None]:
            progress.reset(bar, total=cycles)
            return lambda: progress.advance(bar)

        yield begin


def _bar(quiet: bool) -> Progress:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("cycles"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[state]}"),
    )
    hidden = quiet or not err.is_terminal
    return Progress(*columns, console=err, disable=hidden, transient=True)


@contextmanager
def _cycles(job: "Job", quiet: bool) -> Iterator[Callable[["Record"], None]]:
    """A bar that moves with each cycle of a run, and says what happens in it."""
    from melisma.comparison import cycles_of
    from melisma.runtime.records import Allocated, Dropped, Evaluated, Uploaded

    working: set[str] = set()
    back: set[str] = set()
    ended: dict[str, int] = {}

    with _bar(quiet) as progress:
        bar = progress.add_task(
            f"{job.name} by {job.scheme}",
            total=cycles_of(job, [job.scheme]),
            state="waiting for learners",
        )

        def whose(task: str) -> str:
            return f"{task}: " if job.task else ""

        def watch(record: "Record") -> None:
            match record:
                case Allocated(learner=name, samples=samples):
                    if back:
                        working.clear()
                        back.clear()
                    if samples:
                        working.add(name)
                case Uploaded(learner=name) | Dropped(learner=name):
                    back.add(name)
                case Evaluated(task=task, cycle=cycle, accuracy=accuracy):
                    ended[task] = cycle
                    state = f"{whose(task)}accuracy {accuracy:.1%}"
                    progress.update(bar, completed=sum(ended.values()), state=state)
                    return
            state = f"cycle {record.cycle}: {len(back)} of {len(working)} back"
            if not job.task:
                progress.update(bar, state=state)

        yield watch


@contextmanager
def _resumable(folder: Path, options: str) -> Iterator[None]:
    """Tell who stops a run how to go on."""
    from melisma.runs.document import FINISHED
    from melisma.runs.summary import summary

    text = f"Stopped. Go on with: melisma resume {folder} {options}"
    try:
        yield
    except KeyboardInterrupt:
        err.print(text, markup=False, highlight=False, soft_wrap=True)
        raise
    if summary(folder).state != FINISHED:  # from the dashboard
        err.print(text, markup=False, highlight=False, soft_wrap=True)


def _nodes(address: str, data: Path | None) -> str:
    """The flags of `resume` for a run on a Ray cluster."""
    own = ["--data", str(data)] if data else []
    return shlex.join(["--address", address, *own])


def _shown(quiet: bool) -> Callable[[str], None]:
    """Tells where the dashboard is."""

    def show(link: str) -> None:
        if not quiet:
            text = f"Dashboard: {link}"
            err.print(text, markup=False, highlight=False, soft_wrap=True)

    return show


def _orchestrate(
    job: "Job",
    folder: Path,
    watch: "Callable[[Record], None]",
    show: Callable[[str], None],
    learners: int,
    host: str,
    port: int,
) -> "list[Record]":
    """Train with whoever joins, and tell how to."""
    from melisma import serving

    def tell(server: "Server") -> None:
        join = f"Join with: melisma join '{server.invite()}'"
        err.print(join, markup=False, soft_wrap=True)

    return serving.orchestrate(
        job,
        folder,
        learners=learners,
        watch=watch,
        ready=tell,
        show=show,
        host=host,
        port=port,
        say=lambda text: None,  # all there is to say is said above
    )


def _print_run(
    job: "Job", folder: Path, records: "list[Record]", as_json: bool
) -> None:
    from melisma.runs.course import course
    from melisma.runs.document import kind_of

    told = {"job": job.name, "scheme": job.scheme, "seed": job.seed}
    told["folder"] = str(folder)
    if job.task:
        _print_tasks(job, told, records, as_json)
        return
    if as_json:
        _print_json(told | {"cycles": course(records)})
        return
    if kind_of(job) == "fog":
        _print_devices(_moves(records).get("devices", {}))
    else:
        _print_learners(records)
    _print_cycles(course(records))
    out.print(f"Configuration, records and model: {folder}")


def _print_tasks(
    job: "Job", told: dict[str, Any], records: "list[Record]", as_json: bool
) -> None:
    """How each of several tasks was served."""
    from melisma.config import tasks_of
    from melisma.runs.tasks import COLUMNS, served

    tasks, refused = served(tasks_of(job), records)
    if as_json:
        _print_json(told | {"tasks": tasks, "refused": refused})
        return
    table = Table("", title="Means over cycles", title_justify="left", box=None)
    for name in tasks:
        table.add_column(Text(name), justify="right")
    for column in COLUMNS:
        table.add_row(column.title, *(column.text(how) for how in tasks.values()))
    out.print(table)
    for name, reason in refused.items():
        out.print(f"{name} was refused: {reason}", markup=False)
    out.print(f"Configuration, records and model of each task: {told['folder']}")


def _print_json(value: object) -> None:
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


@contextmanager
def _working(title: str, quiet: bool) -> Iterator[None]:
    """Something that moves, where there is no telling how long."""
    if quiet or not err.is_terminal:
        yield
        return
    with err.status(title):
        yield


def _print_machine(told: "Forecast", title: str) -> None:
    """What the benchmark measured, and under which conditions."""
    machine = told.machine
    load = "not known" if machine.load is None else f"{machine.load:.2f}"
    rows = {
        "compute rate (samples/s)": f"{told.samples_per_s:,.0f}",
        "compute rate (shards/s)": f"{told.shards_per_s:,.2f}",
        "latency of a call (ms)": f"{1e3 * told.latency_s:.2f}",
        "matrix products (GFLOP/s)": f"{told.flops / 1e9:,.1f}",
        "threads, of cores": f"{machine.threads}, of {machine.cores}",
        "machine load before": load,
    }
    out.print(title, style="italic", markup=False)
    table = Table(box=None, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in rows.items():
        table.add_row(name, value)
    out.print(table)


def _print_forecast(told: "Forecast", title: str) -> None:
    """What a cycle takes this machine: predicted, and trained if it was."""
    out.print(f"\nA cycle of this machine alone, no network: {title}", style="italic")
    table = Table("by", header_style="bold", box=None)
    for column in ("predicted (s)", "trained (s)", "error (%)"):
        table.add_column(column, justify="right")
    predicted = (told.subset_s, told.flops_s)
    names = ("subset benchmark", "FLOPS, machine-independent")
    for name, seconds, error in zip(names, predicted, told.errors_percent, strict=True):
        table.add_row(
            name,
            "not counted" if seconds is None else f"{seconds:.3f}",
            "" if told.trained_s is None else f"{told.trained_s:.3f}",
            "" if error is None else f"{error:+.1f}",
        )
    out.print(table)
    out.print(
        "FLOPS: the model's operations, counted and not run, over the FLOP/s above."
        if told.flops_s is not None
        else "FLOPS: this model's operations cannot be counted: give workload.cycles."
    )


def _print_learners(records: "list[Record]") -> None:
    """What each learner was given and did, over all cycles."""
    from melisma.runs.ledger import tallies, turns

    table = Table(
        *("learner", "cycles", "samples", "epochs", "predicted\n(s)", "measured\n(s)"),
        *("off\n(%)", "trained", "lost"),
        title="Learners: means over their cycles",
        title_justify="left",
        header_style="bold",
        box=None,
    )
    table.columns[0].overflow = "fold"
    for column in table.columns[1:]:
        column.justify = "right"
    learners = tallies(turns(records))
    for tally in learners[:_SHOWN]:
        name = Text(tally.learner)
        if not tally.cycles:
            table.add_row(name, "0", "sits out")
            continue
        own = tally.predicted_s is None
        table.add_row(
            name,
            f"{tally.cycles:,}",
            f"{tally.samples:,.0f}",
            f"{tally.steps:,.1f}",
            "its own" if own else f"{tally.predicted_s:.3f}",
            *(_known(tally.measured_s, 3), _known(tally.off_percent, 1)),
            _known(tally.trained, 0),
            f"{tally.lost:,}",
        )
    out.print(table)
    if len(learners) > _SHOWN:
        out.print(f"… and {len(learners) - _SHOWN:,} more learners")


def _moves(records: "list[Record]") -> dict[str, Any]:
    """Of a fog: what became of data by device and slot, and who sent to whom."""
    from melisma.runs import fog
    from melisma.runtime.records import Moved

    moved = [record for record in records if isinstance(record, Moved)]
    if not moved:
        return {}
    return {
        "devices": fog.by_device(moved),
        "slots": fog.by_slot(moved),
        "flows": [(*pair, samples) for pair, samples in fog.flows(moved).items()],
    }


def _print_devices(devices: "dict[str, Totals]") -> None:
    """What each device of a fog did with data, over all slots."""
    priced = any(one.cost for one in devices.values())  # fog:central is not
    table = Table(
        *("device", "collected", "trained", "sent", "arrived", "discarded", "cost"),
        title="Devices: samples, and what they cost, over all slots",
        title_justify="left",
        header_style="bold",
        box=None,
    )
    table.columns[0].overflow = "fold"
    for column in table.columns[1:]:
        column.justify = "right"
    for name, one in list(devices.items())[:_SHOWN]:
        amounts = (one.collected, one.trained, one.sent, one.arrived, one.discarded)
        counts = (f"{amount:,}" for amount in amounts)
        cost = one.cost if priced else None
        table.add_row(Text(name), *counts, _known(cost, 2))
    out.print(table)
    if len(devices) > _SHOWN:
        out.print(f"… and {len(devices) - _SHOWN:,} more devices")


def _known(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


#: Learners that a terminal's table shows.
_SHOWN = 30


def _print_cycles(course: "Course") -> None:
    table = Table(title="Cycles", title_justify="left", header_style="bold", box=None)
    last = "collected" if course.collected else "staleness"
    for title in ("cycle", "time (s)", "accuracy (%)", "loss", "samples", last):
        table.add_column(title, justify="right")
    for i, accuracy in enumerate(course.accuracy):
        table.add_row(
            str(i + 1),
            f"{course.time_s[i]:.2f}",
            f"{100 * accuracy:.2f}",
            f"{course.loss[i]:.3f}",
            f"{course.samples[i]:,}",
            f"{(course.collected or course.max_staleness)[i]:,}",
        )
    out.print(table)


def _print_comparison(comparison: "Comparison[Any]") -> None:
    from melisma.report import caption, cells

    table = Table("", title=caption(comparison), title_justify="left", box=None)
    shown = comparison.finished
    for outcome in shown:
        table.add_column(outcome.scheme, justify="right")
    rows = zip(*(cells(outcome) for outcome in shown), strict=True)
    for title, row in zip(comparison.titles, rows, strict=True):
        table.add_row(title, *row)
    out.print(table)
    for outcome in comparison.outcomes:
        if outcome.failed:
            out.print(f"{outcome.scheme} failed: {outcome.failed}")
