"""Training from a script or a notebook, as the command line does it.

    run = mel.simulate("job.toml")
    run = mel.run(mel.Job(scheme="csa", deadline="2 s"))
    with mel.serve(job, learners=3) as server:
        print(server.invite())
        run = server.wait()

Each works inside a running event loop too, and has an ``_async`` variant that leaves
the loop free meanwhile.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from melisma.algorithms.control import Control
from melisma.errors import ConfigError
from melisma.jobs.files import load
from melisma.jobs.schema import Job
from melisma.launch import joining, local
from melisma.launch.loops import anywhere
from melisma.launch.serve import orchestrate
from melisma.launch.simulate import SIMULATION, build
from melisma.learning.settings import HERE, Hardware, Precision
from melisma.runs.files import CONFIG
from melisma.runs.records import Record
from melisma.runs.store import Watch, ignore, run_folder, started
from melisma.views.run import Run
from melisma.views.run import open as open_run

if TYPE_CHECKING:
    from melisma import rpc

P = ParamSpec("P")
T = TypeVar("T")

#: Where runs go unless told otherwise, as on the command line.
RUNS = Path("runs")


def job_of(job: Job | Path | str | None, default: Job | None = None) -> Job:
    """Return the job that is meant: itself, that of a file, or the default."""
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
    watch: Watch = ignore,
    control: Control | None = None,
) -> Run:
    """Train on simulated learners: time is virtual, gradients are real.

    ``job`` is a job, a file of one, or the demo; any family. The run is left in a new
    folder in ``runs``, or only in memory for None. ``watch`` is called with every
    record as it comes.
    """
    hardware = Hardware(threads=threads, device=device, precision=Precision(precision))
    simulation = build(job_of(job), hardware)
    if runs is None:
        written = simulation.train(None, watch, control)
        return _in_memory(simulation.job, written)
    with run_folder(Path(runs), simulation.job.name) as folder:
        simulation.train(folder, watch, control)
    return open_run(folder)


def _in_memory(job: Job, written: dict[str, Any]) -> Run:
    records = [record for run in written.values() for record in run.records]
    model = None if job.task else written[job.name].model
    return Run(job, records=records, parameters=model)


def run(
    job: Job | Path | str | None = None,
    *,
    runs: Path | str = RUNS,
    watch: Watch = ignore,
    show: Callable[[str], None] = lambda link: None,
    control: Control | None = None,
) -> Run:
    """Train for real, with the job's learners as processes on this machine.

    Each slows itself down to the rate and bandwidth that the job gives it. ``show`` is
    called with the dashboard's link.
    """
    given = job_of(job, local.DEMO)
    with run_folder(Path(runs), given.name) as folder:
        anywhere(
            local.run_locally, given, folder, watch=watch, show=show, control=control
        )
    return open_run(folder)


def resume(
    folder: Path | str,
    *,
    watch: Watch = ignore,
    show: Callable[[str], None] = lambda link: None,
    control: Control | None = None,
) -> Run:
    """Go on with a simulated or local run that was cut short, from its checkpoint.

    ConfigError for one whose learners are other machines: `serve` it again with
    ``folder=``.
    """
    run = open_run(folder)
    assert run.folder is not None
    start = started(run.folder)
    match start.get("engine"):
        case engine if engine == SIMULATION:
            simulation = build(run.job, hardware_of(start))
            simulation.train(run.folder, watch, control)
        case engine if engine == local.LOCAL:
            anywhere(
                local.run_locally,
                *(run.job, run.folder),
                watch=watch,
                show=show,
                control=control,
            )
        case engine:
            raise ConfigError(
                f"{folder} was begun by {engine or 'an earlier version'}: its learners "
                f"join, so serve it again: mel.serve(folder={str(folder)!r})"
            )
    return open_run(run.folder)


def hardware_of(start: dict[str, Any]) -> Hardware:
    """Return what a simulated run was begun on."""
    return Hardware(
        device=str(start.get("device", HERE.device)),
        precision=Precision(start.get("precision", Precision.FP32)),
    )


def serve(
    job: Job | Path | str | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    learners: int = 1,
    runs: Path | str = RUNS,
    folder: Path | str | None = None,
    watch: Watch = ignore,
) -> "Server":
    """Serve whoever joins, and train once ``learners`` are there.

    ``host`` "0.0.0.0" lets other machines in, with TLS. The run is left in a new folder
    in ``runs``, or goes on in the ``folder`` of one that was cut short.
    """
    if folder is not None:
        given = load(Path(folder) / CONFIG)
        return Server(given, Path(folder), host, port, learners, watch)
    given = job_of(job)
    own = run_folder(Path(runs), given.name)
    return Server(given, own, host, port, learners, watch)


class Server:
    """An orchestrator in a thread of its own, from ``with`` to its end.

    Leaving the block stops the run after the cycle that is under way.
    """

    def __init__(
        self,
        job: Job,
        folder: Any,  # a path, or what makes one
        host: str,
        port: int,
        learners: int,
        watch: Watch,
    ) -> None:
        self.job, self.dashboard = job, ""
        self.folder = folder if isinstance(folder, Path) else None
        self._new = None if isinstance(folder, Path) else folder
        self._options: dict[str, Any] = {"host": host, "port": port, "watch": watch}
        self._options["learners"] = learners
        self._control, self._open = Control(), ExitStack()
        self._ready: Future[rpc.Server] = Future()
        self._ended: Future[list[Record]] = Future()

    def __enter__(self) -> Self:
        if self._new is not None:
            self.folder = self._open.enter_context(self._new)
        thread = threading.Thread(target=self._serve, name="orchestrator", daemon=True)
        thread.start()
        self._ready.result()
        return self

    def _serve(self) -> None:
        try:
            records = orchestrate(
                self.job,
                self.folder or Path(),
                ready=self._ready.set_result,
                show=self._show,
                control=self._control,
                say=lambda text: None,
                **self._options,
            )
        except BaseException as error:  # a thread's edge: whoever waits is told
            for future in (self._ready, self._ended):
                if not future.done():
                    future.set_exception(error)
        else:
            self._ended.set_result(records)

    def _show(self, link: str) -> None:
        self.dashboard = link

    def invite(self, name: str | None = None) -> str:
        """Return the join string for the learner of a name, or for any."""
        return self._ready.result().invite(name)

    def wait(self, timeout_s: float | None = None) -> Run:
        """Return the run when it has ended; raise what ended it, or TimeoutError."""
        self._ended.result(timeout_s)
        assert self.folder is not None
        return open_run(self.folder)

    async def wait_async(self) -> Run:
        """Return the run when it has ended, and leave the event loop free meanwhile."""
        await asyncio.wrap_future(self._ended)
        return self.wait()

    def stop(self) -> None:
        """Begin no more cycles."""
        self._control.stop()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        with self._open:
            failed = self._ended.exception()
        if failed and error is None:
            raise failed

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, traceback)


def join(
    address: str,
    *,
    name: str | None = None,
    data: Path | str | None = None,
    allow: tuple[str, ...] = (),
    threads: int = 1,
) -> None:
    """Be a learner of the orchestrator at ``address`` until it hangs up or Ctrl-C.

    ``data`` is a folder of one's own data, which never leaves the device; ``allow``
    names models of one's own, ``module:factory``, that jobs may ask for.
    """
    anywhere(joining.join, address, name=name, data=data, allow=allow, threads=threads)


def in_thread(function: Callable[P, T]) -> Callable[P, Any]:
    """Return the variant of a function that leaves the event loop free.

    When its task is cancelled, the run stops after the cycle that is under way.
    """

    async def variant(*args: P.args, **options: P.kwargs) -> T:
        control = options.setdefault("control", Control())
        assert isinstance(control, Control)
        work = asyncio.to_thread(partial(function, *args, **options))
        try:
            return await work
        except asyncio.CancelledError:
            control.stop()
            raise

    variant.__name__ = f"{function.__name__}_async"
    variant.__doc__ = f"`{function.__name__}`, with the event loop free meanwhile."
    return variant


async def join_async(address: str, **options: Any) -> None:
    """`join`, with the event loop free meanwhile."""
    await asyncio.to_thread(partial(join, address, **options))


simulate_async = in_thread(simulate)
run_async = in_thread(run)
resume_async = in_thread(resume)
