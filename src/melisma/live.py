"""From a job to a live run: an orchestrator here, learners wherever they are."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from melisma import rpc
from melisma.config import Job, LearnersTable, dump
from melisma.errors import ConfigError, DataError, unknown
from melisma.learning.parameters import Parameters, parameters_of, put, save
from melisma.learning.shards import Shelf
from melisma.runtime.devices import DEVICES
from melisma.runtime.folder import CONFIG, MODEL, RECORDS, Checkpoint
from melisma.runtime.live import LiveFleet, Stock
from melisma.runtime.orchestrator import Task, run
from melisma.runtime.records import Record, read, write
from melisma.runtime.testbed import Testbed
from melisma.runtime.wire import Brief
from melisma.schemes import DECENTRALISED
from melisma.simulation import names_of, task_of
from melisma.system.law import Mode
from melisma.units import BytesPerSecond, SamplesPerSecond, Seconds

Watch = Callable[[Record], None]

#: Shards on which a learner benchmarks itself.
BENCHMARK_SHARDS = 8
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
    if job.mode != Mode.PARALLEL:
        raise ConfigError(
            f"mode {job.mode.value!r}: live runs send shards so far; use 'parallel'"
        )
    task = task_of(job, learners)
    done = Checkpoint.read(run_folder)
    if done:
        put(done.parameters, task.model)
    shelf = Shelf(task.data, task.shard)
    stock = Stock(parameters_of(task.model), shelf)
    (run_folder / CONFIG).write_text(dump(job), encoding="utf-8")
    with (
        rpc.serve(stock, **options) as server,
        (run_folder / RECORDS).open("ab") as file,
    ):
        file.truncate(done.records_bytes if done else 0)
        ready(server)

        def sink(record: Record) -> None:
            write(record, file)
            file.flush()
            watch(record)

        async def whole() -> Parameters:
            fleet = _fleet(job, task, server, stock, shelf, learners, at_once, done)

            def keep(cycle: int, parameters: Parameters) -> None:
                file.flush()
                os.fsync(file.fileno())
                Checkpoint(
                    cycle=cycle,
                    time_s=fleet.now_s(),
                    records_bytes=file.tell(),
                    parameters=parameters,
                ).write(run_folder)

            return await run(
                task, fleet, sink, done=done.cycle if done else 0, keep=keep
            )

        save(asyncio.run(whole()), run_folder / MODEL)
    return read(run_folder / RECORDS)


def _fleet(
    job: Job,
    task: Task,
    server: rpc.Server,
    stock: Stock,
    shelf: Shelf,
    learners: int,
    at_once: int,
    done: Checkpoint | None,
) -> LiveFleet:
    return LiveFleet(
        server,
        stock,
        shelf,
        brief=Brief(
            task=job.name,
            model=job.model,
            seed=job.seed,
            optimiser=job.training.optimiser.value,
            rate=job.training.rate,
            batch=job.training.batch,
            shard=task.shard,
            private=job.scheme in DECENTRALISED,
        ),
        least=learners,
        sample_keys=shelf.first(min(BENCHMARK_SHARDS, task.rows // task.shard)),
        halt=job.halt,
        at_once=at_once,
        began_s=done.time_s if done else 0.0,
        done=done.cycle if done else 0,
    )


def run_locally(
    job: Job, folder: Path, watch: Watch = lambda record: None
) -> list[Record]:
    """Run a job with its learners as processes here, slowed down to their rates."""
    with _learners(job) as start:
        return orchestrate(
            job,
            folder,
            learners=sum(group.count for group in job.learners),
            at_once=os.cpu_count() or 1,  # benchmarks; they share this machine
            watch=watch,
            ready=start,
            port=0,
            say=lambda text: None,
        )


@contextmanager
def _learners(job: Job) -> Iterator[Callable[[rpc.Server], None]]:
    """Learner processes that end with the block."""
    processes: list[subprocess.Popen[bytes]] = []
    groups = [group for group in job.learners for _ in range(group.count)]

    def start(server: rpc.Server) -> None:
        for name, group in zip(names_of(job), groups, strict=True):
            if group.rate is None or group.bandwidth is None:
                raise ConfigError(
                    f"learners {group.name!r}: a live run needs rate and bandwidth"
                )
            command = [sys.executable, "-m", "melisma", "join", server.address]
            command += ["--name", name, "--rate", f"{float(group.rate)} samples/s"]
            command += ["--bandwidth", f"{float(group.bandwidth)} B/s", "--quiet"]
            processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL))

    try:
        yield start
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
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
    with Testbed(job.name) as testbed, TemporaryDirectory() as secrets:
        places = [
            testbed.place(device, f"{device.name}-{number}")
            for number, device in enumerate(unlike, start=1)
        ]

        def start(server: rpc.Server) -> None:
            command = [sys.executable, "-m", "melisma", "join", server.invite()]
            with ExitStack() as unhurried:
                for place in places:  # importing torch would take a slow one long
                    unhurried.enter_context(place.full_speed())
                    place.popen([*command, "--name", place.name, "--quiet"])
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
