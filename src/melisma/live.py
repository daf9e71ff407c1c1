"""From a job to a live run: an orchestrator here, learners wherever they are."""

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from melisma import rpc, runs
from melisma.config import Job, LearnersTable, dump
from melisma.errors import ConfigError, DataError, MelismaError, unknown
from melisma.learning.data import save_own
from melisma.learning.parameters import Parameters, parameters_of, put, save
from melisma.learning.shards import Shelf
from melisma.runtime.audit import Audit
from melisma.runtime.devices import DEVICES
from melisma.runtime.folder import CONFIG, MODEL, RECORDS, Checkpoint
from melisma.runtime.live import LiveFleet, Stock
from melisma.runtime.orchestrator import run
from melisma.runtime.records import Record, read, write
from melisma.runtime.task import Task
from melisma.runtime.testbed import Testbed
from melisma.runtime.wire import Brief
from melisma.schemes import DECENTRALISED
from melisma.simulation import check_single, names_of, own_rows, task_of
from melisma.system.law import Mode
from melisma.units import BytesPerSecond, SamplesPerSecond, Seconds

log = logging.getLogger("melisma.runtime")

Watch = Callable[[Record], None]

#: Shards on which a learner benchmarks itself.
BENCHMARK_SHARDS = 8
#: What a learner may always send, whatever the model.
LEAST_MESSAGE_BYTES = 1 << 24
#: Longest that the learners of a testbed may take to start.
JOIN_S = 120.0


def _device(name: str, rate: float, bandwidth: float) -> LearnersTable:
    return LearnersTable(
        name=name, rate=SamplesPerSecond(rate), bandwidth=BytesPerSecond(bandwidth)
    )


#: `melisma run` without a job: four unlike learners, each deciding for itself.
DEMO = Job(
    name="live",
    scheme="dab",
    shard=50,
    steps=2,
    cycles=5,
    deadline=Seconds(2.0),
    learners=(
        _device("laptop", 4000, 8e6),
        _device("jetson", 2000, 4e6),
        _device("pi1", 800, 2e6),
        _device("pi2", 400, 1e6),
    ),
)


def orchestrate(
    job: Job,
    run_folder: Path,
    *,
    learners: int,
    at_once: int = 64,
    watch: Watch = lambda record: None,
    ready: Callable[[rpc.Server], None] = lambda server: None,
    **options: Any,
) -> list[Record]:
    """Serve learners and train; go on where ``run_folder`` says the run stands.

    Starts when ``learners`` are there. ``ready`` is called once they can dial in;
    ``options`` are those of ``rpc.serve``. Returns all records of the run.
    """
    check_single(job)
    task = task_of(job)
    done = Checkpoint.read(run_folder)
    if done:
        put(done.parameters, task.model)
    stock = Stock(parameters_of(task.model), Shelf(task.data, task.shard))
    _write_config(job, run_folder)
    with (
        rpc.serve(stock, limits=_limits(task), **options) as server,
        (run_folder / RECORDS).open("ab") as file,
    ):
        file.truncate(done.records_bytes if done else 0)
        past = read(run_folder / RECORDS)
        ready(server)
        fleet = _fleet(job, task, server, stock, learners, at_once, done)

        def sink(record: Record) -> None:
            write(record, file)
            file.flush()
            watch(record)

        def keep(cycle: int, parameters: Parameters) -> None:
            os.fsync(file.fileno())
            Checkpoint(
                cycle=cycle,
                time_s=fleet.now_s(),
                records_bytes=file.tell(),
                parameters=parameters,
            ).write(run_folder)

        trained = run(task, fleet, sink, past=past, keep=keep, patient=True)
        save(asyncio.run(trained), run_folder / MODEL)
    _write_report(run_folder)
    return read(run_folder / RECORDS)


def _write_config(job: Job, folder: Path) -> None:
    """Write it whole: half a job would be another job."""
    unfinished = folder / f"{CONFIG}.part"
    unfinished.write_text(dump(job), encoding="utf-8")
    unfinished.replace(folder / CONFIG)


def _write_report(folder: Path) -> None:
    """Write it if it can be; the run is whole without."""
    try:
        runs.write(folder)
    except MelismaError as error:
        log.warning("no report: %s", error)


def _limits(task: Task) -> rpc.Limits:
    """Take no more from a learner at a time than a few models."""
    model_bytes = sum(t.nbytes for t in parameters_of(task.model).values())
    return rpc.Limits(message_bytes=LEAST_MESSAGE_BYTES + 2 * model_bytes)


def _fleet(
    job: Job,
    task: Task,
    server: rpc.Server,
    stock: Stock,
    learners: int,
    at_once: int,
    done: Checkpoint | None,
) -> LiveFleet:
    brief = Brief(
        task=job.name,
        model=job.model,
        seed=job.seed,
        optimiser=job.training.optimiser.value,
        rate=job.training.rate,
        batch=job.training.batch,
        shard=task.shard,
        federated=job.mode == Mode.FEDERATED,
        private=job.scheme in DECENTRALISED,
    )
    audit = None
    if job.checks:
        audit = Audit(task.model, stock.shelf, brief, job.checks)
    shards = len(task.data.train_y) // task.shard
    return LiveFleet(
        server,
        stock,
        brief=brief,
        least=learners,
        benchmark=stock.shelf.first(min(BENCHMARK_SHARDS, shards)),
        late=job.late,
        audit=audit,
        at_once=at_once,
        began_s=done.time_s if done else 0.0,
        done=done.cycle if done else 0,
    )


def run_locally(
    job: Job, folder: Path, watch: Watch = lambda record: None
) -> list[Record]:
    """Run a job with its learners as processes here, slowed down to their rates."""
    names = names_of(job)
    for group in job.learners:
        if group.rate is None or group.bandwidth is None:
            raise ConfigError(
                f"learners {group.name!r}: a live run needs rate and bandwidth"
            )
    groups = [group for group in job.learners for _ in range(group.count)]
    with own_data(job, names) as data, processes() as start:

        def begin(server: rpc.Server) -> None:
            for name, group in zip(names, groups, strict=True):
                command = join_command(job, server.address, name, data)
                command += ["--rate", f"{float(group.rate or 0)} samples/s"]
                command += ["--bandwidth", f"{float(group.bandwidth or 0)} B/s"]
                start([*command, "--until-eof"])

        return orchestrate(
            job,
            folder,
            learners=len(names),
            at_once=os.cpu_count() or 1,  # benchmarks; they share this machine
            watch=watch,
            ready=begin,
            port=0,
            say=lambda text: None,
        )


@contextmanager
def own_data(job: Job, names: Sequence[str]) -> Iterator[Path | None]:
    """In federated mode, a folder with each learner's own data, under its name."""
    if job.mode == Mode.PARALLEL:
        yield None
        return
    dataset = task_of(job).data
    with TemporaryDirectory(prefix="melisma-") as root:
        for name, rows in zip(names, own_rows(job, dataset) or (), strict=True):
            Path(root, name).mkdir()
            save_own(dataset.train_x[rows], dataset.train_y[rows], Path(root, name))
        yield Path(root)


def join_command(job: Job, address: str, name: str, data: Path | None) -> list[str]:
    """Return what starts one of a job's learners on this machine."""
    command = [sys.executable, "-m", "melisma", "join", address, "--name", name]
    if data:
        command += ["--data", str(data / name)]
    if ":" in job.model:  # the user's own, as the job file is
        command += ["--allow", job.model]
    return [*command, "--quiet"]


@contextmanager
def processes() -> Iterator[Callable[[list[str]], None]]:
    """Processes that end with the block.

    Their standard input ends with this process, even if it is killed.
    """
    started: list[subprocess.Popen[bytes]] = []
    lifeline, held = os.pipe()

    def start(command: list[str]) -> None:
        started.append(
            # Ctrl-C is for this process, which ends them.
            subprocess.Popen(command, stdin=lifeline, start_new_session=True)
        )

    try:
        yield start
    finally:
        os.close(lifeline)
        os.close(held)
        for process in started:
            process.terminate()
        for process in started:
            try:
                process.wait(5.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def run_on_testbed(
    job: Job,
    folder: Path,
    devices: Sequence[str],
    watch: Watch = lambda record: None,
) -> list[Record]:
    """Run a job with learners in namespaces, as slow as these devices; needs root."""
    unlike = [DEVICES[name] for name in devices if name in DEVICES]
    for name in set(devices) - set(DEVICES):
        raise unknown("device", name, DEVICES)
    names = [f"{device.name}-{n}" for n, device in enumerate(unlike, start=1)]
    with (
        Testbed(job.name) as testbed,
        TemporaryDirectory() as secrets,
        own_data(job, names) as data,
    ):
        places = [
            testbed.place(device, name)
            for name, device in zip(names, unlike, strict=True)
        ]

        def start(server: rpc.Server) -> None:
            address = server.invite()
            with ExitStack() as unhurried:
                for place in places:  # importing torch would take a slow one long
                    unhurried.enter_context(place.full_speed())
                    place.popen(join_command(job, address, place.name, data))
                server.wait_until(len(places), timeout_s=JOIN_S)

        return orchestrate(
            job,
            folder,
            learners=len(places),
            at_once=1,  # a benchmark is of a device, not of a crowd
            watch=watch,
            ready=start,
            host=testbed.address,
            port=0,
            folder=secrets,
            say=lambda text: None,
        )


def resumable(folder: Path) -> Path:
    """Return the job file of a run; DataError if there is none in ``folder``."""
    if not (folder / CONFIG).exists():
        raise DataError(f"{folder} is no run: there is no {CONFIG} in it")
    return folder / CONFIG
