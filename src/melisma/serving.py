"""From a job to an orchestrator that serves whoever joins, for one task or several."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from melisma import moving, programme, rpc, runs
from melisma.coded import check_coded, coding_of, is_coded, straggling_of
from melisma.config import Job, dump
from melisma.dashboard import Dashboard
from melisma.errors import MelismaError
from melisma.learning.parameters import Parameters, parameters_of, put, save
from melisma.learning.shards import ShardStore
from melisma.moving import is_fog
from melisma.runs.held import hold
from melisma.runtime.association import Association
from melisma.runtime.audit import Audit
from melisma.runtime.coded import run_coded
from melisma.runtime.company import Company, Posting
from melisma.runtime.fleet import Fleet
from melisma.runtime.fog import run_fog
from melisma.runtime.folder import CONFIG, MODEL, RECORDS, Checkpoint
from melisma.runtime.learned import Learned
from melisma.runtime.live import Goods, LiveFleet, Stock, law_of
from melisma.runtime.live_devices import LiveDevices, Relay
from melisma.runtime.live_workers import LiveWorkers
from melisma.runtime.many import Entry, Programme
from melisma.runtime.orchestrator import run
from melisma.runtime.peers import Peers
from melisma.runtime.records import Record, read, write
from melisma.runtime.steering import Steering
from melisma.runtime.task import Task
from melisma.runtime.turns import RealTurns
from melisma.runtime.wire import Brief
from melisma.schemes import DECENTRALISED
from melisma.simulation import check_single, task_of
from melisma.system.law import DelayLaw, Mode

log = logging.getLogger("melisma.runtime")

Watch = Callable[[Record], None]
Elsewhere = Callable[[Sequence[Goods]], AbstractContextManager[Peers]]

#: Shards on which a learner benchmarks itself.
BENCHMARK_SHARDS = 8
#: What a learner may always send, whatever the model.
LEAST_MESSAGE_BYTES = 1 << 24


def orchestrate(
    job: Job,
    run_folder: Path,
    *,
    learners: int,
    at_once: int = 64,
    watch: Watch = lambda record: None,
    ready: Callable[[rpc.Server], None] = lambda server: None,
    show: Callable[[str], None] = lambda link: None,
    elsewhere: Elsewhere | None = None,
    **options: Any,
) -> list[Record]:
    """Serve learners and train; go on where ``run_folder`` says the run stands.

    Starts when ``learners`` are there. ``ready`` is called once they can dial in, and
    ``show`` with the dashboard's link, whose bearer may stop the run early; ``options``
    are those of ``rpc.serve``. Learners are who dials in, or are ``elsewhere``: that
    gets the goods of all tasks. Returns all records of the run.
    """
    if is_fog(job.scheme) and not job.task:
        moving.check_live(job)
        job = moving.as_meant(job)
    if job.task:
        jobs = programme.jobs_of(job)
        programme.check_live(job.scheme)
        folders = [run_folder / one.name for one in jobs]
    else:
        if is_coded(job.scheme):
            check_coded(job)
        elif not is_fog(job.scheme):
            check_single(job)
        jobs, folders = [job], [run_folder]
    _write_config(job, run_folder)
    with ExitStack() as stack:
        desks = [
            stack.enter_context(_desk(one, folder, watch))
            for one, folder in zip(jobs, folders, strict=True)
        ]
        targets: list[object] = [Stock(desk.goods for desk in desks)]
        relay = Relay(job.name)
        targets += [relay] if is_fog(job.scheme) else []
        steering = Steering()
        dashboard = Dashboard.of(run_folder, steering, _fixed(job))
        options |= {"limits": _limits(desks), "routes": dashboard.routes}
        server = stack.enter_context(rpc.serve(*targets, **options))
        stack.callback(dashboard.close)
        peers: Peers = server
        if elsewhere:
            peers = stack.enter_context(elsewhere([desk.goods for desk in desks]))
        show(dashboard.attend(server, peers))
        postings = [desk.posting for desk in desks]
        company = Company(peers, postings, least=learners, at_once=at_once)
        ready(server)
        if job.task:
            train = _run_all
        elif is_fog(job.scheme):
            train = partial(_run_fog, relay=relay)
        else:
            train = _run_coded if is_coded(job.scheme) else _run_one
        asyncio.run(train(job, desks, company, steering))
    for folder in [*folders, *([run_folder] if job.task else [])]:
        _write_report(folder)
    return [record for folder in folders for record in read(folder / RECORDS)]


def orchestrate_on(
    fleet_of: "Callable[[Desk], Fleet]",
    job: Job,
    run_folder: Path,
    watch: Watch = lambda record: None,
) -> list[Record]:
    """Train on a fleet that has its own way to its learners; return all records."""
    check_single(job)
    with _desk(job, run_folder, watch) as desk:
        asyncio.run(_train(desk, fleet_of(desk), Steering()))
    _write_report(run_folder)
    return read(run_folder / RECORDS)


def _fixed(job: Job) -> str:
    """Why a run's deadline cannot be changed; nothing if it can be."""
    if job.task:
        return "learners are chosen by the tasks' deadlines: begin another run"
    if is_fog(job.scheme):
        return "data is moved by a plan for slots of this length: begin another run"
    return ""


@dataclass(slots=True, kw_only=True)
class Desk:
    """One task on the orchestrator: what it is, what learners fetch, what is kept."""

    job: Job
    task: Task
    goods: Goods
    folder: Path
    file: BinaryIO
    watch: Watch
    done: Checkpoint | None
    past: list[Record]

    @property
    def posting(self) -> Posting:
        """What learners are told of it."""
        job, shelf = self.job, self.goods.shelf
        brief = Brief(
            task=job.name,
            model=job.model,
            seed=job.seed,
            optimiser=job.training.optimiser.value,
            rate=job.training.rate,
            batch=job.training.batch,
            shard=self.task.shard,
            federated=job.mode == Mode.FEDERATED,
            private=job.scheme in DECENTRALISED,
            steps=job.steps,
            moving=is_fog(job.scheme),
        )
        shards = len(self.task.data.train_y) // self.task.shard
        return Posting(
            brief=brief, benchmark=shelf.first(min(BENCHMARK_SHARDS, shards))
        )

    def audit(self) -> Audit | None:
        """What redoes a share of its updates, if the job asks for that."""
        if not self.job.checks:
            return None
        brief = self.posting.brief
        return Audit(self.task.model, self.goods.shelf, brief, self.job.checks)

    def fleet(self, company: Company, began_s: float) -> LiveFleet:
        """Its learners."""
        return LiveFleet(
            company,
            self.goods,
            late=self.job.late,
            audit=self.audit(),
            began_s=began_s,
        )

    def note(self, record: Record) -> None:
        """Keep what happened."""
        write(record, self.file)
        self.file.flush()
        self.watch(record)

    def keep(self, cycle: int, parameters: Parameters, time_s: float) -> None:
        """Keep where the task stands after a whole cycle."""
        os.fsync(self.file.fileno())
        Checkpoint(
            cycle=cycle,
            time_s=time_s,
            records_bytes=self.file.tell(),
            parameters=parameters,
        ).write(self.folder)


@contextmanager
def _desk(job: Job, folder: Path, watch: Watch) -> Iterator[Desk]:
    """Take up a task where its folder says it stands."""
    task = task_of(job)
    folder.mkdir(exist_ok=True)
    done = Checkpoint.read(folder)
    if done:
        names = parameters_of(task.model)
        put({name: done.parameters[name] for name in names}, task.model)
    _write_config(job, folder)
    with (folder / RECORDS).open("ab") as file:
        hold(file)
        file.truncate(done.records_bytes if done else 0)
        yield Desk(
            job=job,
            task=task,
            goods=Goods(
                job.name,
                parameters_of(task.model),
                ShardStore(task.data, task.shard),
                cycle=done.cycle if done else 0,
            ),
            folder=folder,
            file=file,
            watch=watch,
            done=done,
            past=read(folder / RECORDS),
        )


async def _run_one(
    job: Job, desks: Sequence[Desk], company: Company, steering: Steering
) -> None:
    (desk,) = desks
    fleet = desk.fleet(company, desk.done.time_s if desk.done else 0.0)
    await _train(desk, fleet, steering)


async def _train(desk: Desk, fleet: Fleet, steering: Steering) -> None:
    parameters = await run(
        desk.task,
        fleet,
        desk.note,
        past=desk.past,
        keep=lambda cycle, parameters: desk.keep(cycle, parameters, fleet.now_s()),
        patient=True,
        steering=steering,
    )
    save(parameters, desk.folder / MODEL)


async def _run_coded(
    job: Job, desks: Sequence[Desk], company: Company, steering: Steering
) -> None:
    (desk,) = desks
    workers = LiveWorkers(
        company,
        desk.goods,
        seed=job.seed,
        straggling=straggling_of(job),
        began_s=desk.done.time_s if desk.done else 0.0,
    )
    parameters = await run_coded(
        desk.task,
        workers,
        desk.note,
        coding_of(job),
        past=desk.past,
        kept=desk.done.parameters if desk.done else None,
        keep=lambda cycle, parameters: desk.keep(cycle, parameters, workers.now_s()),
        patient=True,
        steering=steering,
    )
    save(parameters, desk.folder / MODEL)


async def _run_fog(
    job: Job,
    desks: Sequence[Desk],
    company: Company,
    steering: Steering,
    *,
    relay: Relay,
) -> None:
    (desk,) = desks
    devices = LiveDevices(
        company, desk.goods, relay, began_s=desk.done.time_s if desk.done else 0.0
    )
    parameters = await run_fog(
        replace(desk.task, shard=1),  # single samples move; benchmarks take shards
        devices,
        desk.note,
        moving.fogging_of(job),
        past=desk.past,
        keep=lambda cycle, parameters: desk.keep(cycle, parameters, devices.now_s()),
        patient=True,
        steering=steering,
    )
    save(parameters, desk.folder / MODEL)


async def _run_all(
    job: Job, desks: Sequence[Desk], company: Company, steering: Steering
) -> None:
    """Run several tasks at once, on the learners that they share."""
    began_s = max([desk.done.time_s for desk in desks if desk.done], default=0.0)
    by_name = {desk.job.name: desk for desk in desks}
    for desk in desks:
        if desk.done and desk.done.cycle == desk.task.cycles:
            save(desk.done.parameters, desk.folder / MODEL)
    desks = [d for d in desks if not (d.done and d.done.cycle == d.task.cycles)]
    if not desks:
        return
    await company.muster(desks[0].job.name)  # time counts from when all are there
    benchmarks = _Benchmarks(company, [desk.task for desk in desks])
    learned = Learned(
        benchmarks.tasks, [desk.job.training.batch for desk in desks], benchmarks
    )
    for record in sorted(_past(desks), key=lambda record: record.time_s):
        learned.see(record)

    def note(record: Record) -> None:
        by_name[record.task].note(record)
        learned.see(record)

    tasks, jobs = benchmarks.tasks, [desk.job for desk in desks]
    states = programme.live_states(job, jobs, tasks, benchmarks)
    association = Association(
        programme.terms_of(job, tasks),
        np.zeros(0),
        programme.known_live(job.scheme, states, tasks, benchmarks, learned),
        programme.solver_of(job.scheme, states),
    )
    running = Programme(
        [_entry(job, desk, company, began_s) for desk in desks],
        association,
        RealTurns(began_s),
        programme.SCHEMES[job.scheme],
        look=_look(job, benchmarks, association),
        patient=True,
        steering=steering,
    )
    for name, parameters in (await running.run(note)).items():
        if parameters is not None:
            save(parameters, by_name[name].folder / MODEL)


def _past(desks: Sequence[Desk]) -> Iterator[Record]:
    for desk in desks:
        yield from desk.past


def _entry(job: Job, desk: Desk, company: Company, began_s: float) -> Entry:
    fleet = desk.fleet(company, began_s)
    arrives_s = {table.name: float(table.arrives) for table in job.task}
    return Entry(
        task=desk.task,
        fleet=fleet,
        arrives_s=arrives_s[desk.job.name],
        past=desk.past,
        keep=lambda cycle, parameters: desk.keep(cycle, parameters, fleet.now_s()),
    )


class _Benchmarks:
    """What the learners of a company told of themselves, for every task."""

    def __init__(self, company: Company, tasks: Sequence[Task]) -> None:
        self.company, self.tasks = company, tasks

    def __call__(self) -> tuple[list[DelayLaw], list[str]]:
        """One law a task, and the learners that it is of."""
        roster = self.company.roster
        return [
            law_of([self.company.speeds(task.name, name) for name in roster])
            for task in self.tasks
        ], roster


def _look(
    job: Job, benchmarks: _Benchmarks, association: Association
) -> Callable[[str], Awaitable[None]]:
    """Let the association know who is there now."""
    company = benchmarks.company
    numbers = {task.name: i for i, task in enumerate(benchmarks.tasks)}
    prices = programme.prices_of(job)

    async def look(task: str) -> None:
        busy = association.busy(numbers[task])
        await company.muster(task, [company.roster[j] for j in busy])
        roster = company.roster
        there = [j for j, name in enumerate(roster) if name in company.present]
        association.take_in(
            np.array(there, dtype=np.int64),
            np.array([prices.get(name, 1.0) for name in roster]),
        )

    return look


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


def _limits(desks: Sequence[Desk]) -> rpc.Limits:
    """Take no more from a learner at a time than a few models."""
    model_bytes = max(
        sum(tensor.nbytes for tensor in desk.goods.parameters.values())
        for desk in desks
    )
    return rpc.Limits(message_bytes=LEAST_MESSAGE_BYTES + 2 * model_bytes)
