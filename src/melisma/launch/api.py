"""Training from a script or a notebook, as the command line does it.

    run = mel.simulate("job.toml")
    run = mel.run(mel.Job(scheme="csa", deadline="2 s"))
    with mel.serve(job, learners=3) as server:
        print(server.invite())
        run = server.wait()

Each works inside a running event loop too, and has an ``_async`` variant that leaves
the loop free meanwhile.
"""

from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from melisma.algorithms.control import Control
from melisma.errors import ConfigError, DataError
from melisma.jobs.files import load
from melisma.jobs.schema import Job
from melisma.launch import joining, local
from melisma.launch.bundling import kept, packed
from melisma.launch.loops import anywhere, in_thread
from melisma.launch.serve import learners_of
from melisma.launch.server import Server
from melisma.launch.showing import Showing
from melisma.launch.simulate import SIMULATION, build
from melisma.learning.settings import HERE, Hardware, Precision
from melisma.runs.files import CONFIG
from melisma.runs.start import started
from melisma.runs.store import RunWriter, Watch, run_folder
from melisma.views.run import Run
from melisma.views.run import open as open_run

if TYPE_CHECKING:
    from melisma import rpc

P = ParamSpec("P")
T = TypeVar("T")

#: Default folder of runs, as on the command line.
RUNS = Path("runs")


def job_of(job: Job | Path | str | None, default: Job | None = None) -> Job:
    """Return a job: as given, read from a file, or the default for None."""
    if isinstance(job, Job):
        return job
    return (default or Job()) if job is None else load(Path(job).expanduser())


def simulate(
    job: Job | Path | str | None = None,
    *,
    runs: Path | str | None = RUNS,
    device: str = HERE.device,
    precision: str = Precision.FP32,
    threads: int = 1,
    watch: Watch | None = None,
    control: Control | None = None,
) -> Run:
    """Train on simulated learners: time is virtual, gradients are real.

    ``job`` is a job of any family, a job file, or None for the demo. The run is written
    to a new folder in ``runs``, or kept in memory for None. ``watch`` is called with
    every record as it is written; without one, a notebook shows the run as it goes.
    """
    hardware = Hardware(threads=threads, device=device, precision=Precision(precision))
    simulation = build(job_of(job), hardware)
    control = control or Control()
    if runs is None:
        with Showing(simulation.job, None, watch, control) as shown:
            written = simulation.train(None, shown.watch, control)
        return shown.shown(_in_memory(simulation.job, written))
    with (
        run_folder(Path(runs), simulation.job.name) as folder,
        Showing(simulation.job, folder, watch, control) as shown,
    ):
        simulation.train(folder, shown.watch, control)
    return shown.shown(open_run(folder))


def _in_memory(job: Job, written: dict[str, RunWriter]) -> Run:
    records = [record for run in written.values() for record in run.records]
    models = {name: run.model for name, run in written.items() if run.model}
    return Run(job, records=records, models=models)


def run(
    job: Job | Path | str | None = None,
    *,
    runs: Path | str = RUNS,
    device: str = HERE.device,
    precision: str = Precision.FP32,
    watch: Watch | None = None,
    show: Callable[[str], None] = lambda link: None,
    control: Control | None = None,
) -> Run:
    """Train for real, with the job's learners as processes on this machine.

    Each throttles itself to the rate and bandwidth that the job gives it, and trains on
    ``device`` in ``precision``, as those that `join`. ``show`` is called with the
    dashboard's link; ``watch`` is as in `simulate`.
    """
    job = job_of(job, local.DEMO)
    hardware = Hardware(device=device, precision=Precision(precision))
    control = control or Control()
    with (
        run_folder(Path(runs), job.name) as folder,
        Showing(job, folder, watch, control) as shown,
    ):
        anywhere(
            control.stop,
            local.run_locally,
            *(job, folder),
            hardware=hardware,
            watch=shown.watch,
            show=show,
            control=control,
        )
    return shown.shown(open_run(folder))


def resume(
    folder: Path | str,
    *,
    watch: Watch | None = None,
    show: Callable[[str], None] = lambda link: None,
    control: Control | None = None,
) -> Run:
    """Go on with a simulated or local run that was cut short, from its checkpoint.

    ConfigError if its learners are other machines: those join, so `serve` it again with
    ``folder=``. ``watch`` is as in `simulate`.
    """
    start = started(Path(folder).expanduser())  # before its job is believed
    run = open_run(folder)
    assert run.folder is not None
    control = control or Control()
    shown = Showing(run.job, run.folder, watch, control, lambda: run.progress)
    match start.get("engine"):
        case engine if engine == SIMULATION:
            simulation = build(run.job, hardware_of(start))
            with shown:
                simulation.train(run.folder, shown.watch, control)
        case engine if engine == local.LOCAL:
            with shown:
                anywhere(
                    control.stop,
                    local.run_locally,
                    *(run.job, run.folder),
                    hardware=hardware_of(start),
                    watch=shown.watch,
                    show=show,
                    control=control,
                )
        case engine:
            raise ConfigError(
                f"{folder} was started by {engine or 'an earlier version'}, and its "
                f"learners have to join again: mel.serve(folder={str(folder)!r})"
            )
    return shown.shown(open_run(run.folder))


def hardware_of(start: dict[str, Any]) -> Hardware:
    """Return the hardware that a run was started on here, from its run.toml."""
    device = start.get("device", HERE.device)
    precision = start.get("precision", Precision.FP32)
    if not isinstance(device, str) or precision not in list(Precision):
        raise DataError(
            f"run.toml has device {device!r} and precision {precision!r}: give those "
            "that the run was started with"
        )
    return Hardware(device=device, precision=Precision(precision))


def serve(
    job: Job | Path | str | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    learners: int | None = None,
    runs: Path | str = RUNS,
    folder: Path | str | None = None,
    watch: Watch | None = None,
    bundle: bool = False,
) -> Server:
    """Return an orchestrator that trains once ``learners`` learners have joined.

    ``host`` "0.0.0.0" lets other machines join, over TLS. The run is written to a new
    folder in ``runs``, or resumed in the ``folder`` of one that was cut short. Without
    ``learners``, a new run waits for one, and one that is resumed for as many as at its
    start. With ``bundle``, learners that trust it are sent the source of the job's own
    modules; a run that was started so goes on so. ``watch`` is as in `simulate`.
    """
    if folder is not None:
        learners = learners or learners_of(started(Path(folder)))
        job = load(Path(folder) / CONFIG)
        code = kept(Path(folder), job)
        return Server(job, Path(folder), host, port, learners, watch, code)
    file = Path(job).expanduser() if isinstance(job, str | Path) else None
    job = job_of(job)
    code = packed(job, file) if bundle else None
    new = run_folder(Path(runs), job.name)
    return Server(job, new, host, port, learners or 1, watch, code)


def join(
    address: str,
    *,
    name: str | None = None,
    data: Path | str | None = None,
    allow: tuple[str, ...] = (),
    trust: tuple[str, ...] = (),
    share_data: bool = False,
    target: str | None = None,
    features: Sequence[str] | None = None,
    device: str = "cpu",
    precision: str = Precision.FP32,
    threads: int = 1,
) -> None:
    """Be a learner of the orchestrator at ``address``, until it closes or Ctrl-C.

    ``data`` is this device's own data (`docs/data.md`), which never leaves it unless
    ``share_data``: then, in a fog, some of its samples go to other devices; ``target``
    and ``features`` are columns of a table. ``allow`` lists this device's own models
    and tasks, ``module:function``, that jobs may use, and ``trust`` the hashes of
    bundles whose code may run here. It trains on ``device``: "cpu", "cuda", "mps" or
    "auto", in ``precision``: "fp32" or "bf16".
    """
    connected: Future[rpc.Connection] = Future()
    anywhere(
        partial(_close, connected),
        joining.join,
        address,
        name=name,
        data=data,
        allow=allow,
        trust=trust,
        share_data=share_data,
        target=target,
        features=features,
        device=device,
        precision=precision,
        threads=threads,
        joined=lambda name, connection: connected.set_result(connection),
    )


def _close(connected: "Future[rpc.Connection]") -> None:
    """End a learner, now or once it has connected."""
    connected.add_done_callback(lambda future: future.result().close())


async def join_async(
    address: str,
    *,
    name: str | None = None,
    data: Path | str | None = None,
    allow: tuple[str, ...] = (),
    trust: tuple[str, ...] = (),
    share_data: bool = False,
    target: str | None = None,
    features: Sequence[str] | None = None,
    device: str = "cpu",
    precision: str = Precision.FP32,
    threads: int = 1,
) -> None:
    """`join`, with the event loop free meanwhile; cancelled, it disconnects."""
    connected: Future[rpc.Connection] = Future()
    work = partial(
        joining.join,
        address,
        name=name,
        data=data,
        allow=allow,
        trust=trust,
        share_data=share_data,
        target=target,
        features=features,
        device=device,
        precision=precision,
        threads=threads,
        joined=lambda name, connection: connected.set_result(connection),
    )
    await in_thread(work, partial(_close, connected))


def with_loop_free(function: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return an async variant of a function, which runs it in a thread.

    When its task is cancelled, the run stops after the cycle that is under way.
    """

    async def variant(*args: P.args, **options: P.kwargs) -> T:
        control = options.setdefault("control", Control())
        if not isinstance(control, Control):
            raise TypeError(f"control is a {type(control).__name__}: give a Control")
        return await in_thread(partial(function, *args, **options), control.stop)

    variant.__name__ = f"{function.__name__}_async"
    variant.__doc__ = f"`{function.__name__}`, with the event loop free meanwhile."
    return variant


simulate_async = with_loop_free(simulate)
run_async = with_loop_free(run)
resume_async = with_loop_free(resume)
