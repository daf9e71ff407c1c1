"""From a job to a live run: an orchestrator for one task or several."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from melisma import rpc, views
from melisma.algorithms.control import Control
from melisma.algorithms.loop import train
from melisma.browser.phones import Phones
from melisma.bundles.bundle import Bundle
from melisma.errors import ConfigError, DataError, MelismaError
from melisma.fleets.attendance import Attendance
from melisma.fleets.gathering import Gathering
from melisma.fleets.protocols import Trains
from melisma.fleets.remotes import Remotes, RpcRemotes
from melisma.fleets.roster import Roster
from melisma.fleets.served import ModelServer, ServedTask
from melisma.jobs.averaging import averaging_of
from melisma.jobs.families import FAMILIES, family_of
from melisma.jobs.live_task import LiveTask
from melisma.jobs.schema import Job, tasks_of
from melisma.launch.bundling import keeping
from melisma.launch.inviting import invitation
from melisma.launch.simulate import chosen, opened
from melisma.learning.settings import Hardware
from melisma.rpc.listener import Identify
from melisma.runs.records import Expelled, Record
from melisma.runs.start import started
from melisma.runs.store import RunWriter, Watch, ignore
from melisma.views.document import folders_of
from melisma.views.web import Dashboard

log = logging.getLogger("melisma.orchestrator")

Elsewhere = Callable[[Sequence[ServedTask]], AbstractContextManager[Remotes]]

#: In run.toml, how many learners a live run waited for at its first start.
LEARNERS = "learners"

#: Part of the limit on a learner's message that does not depend on the model.
LEAST_MESSAGE_BYTES = 1 << 24
#: Limit on a learner's values without their arrays, and on its calls at a time.
BODY_BYTES, CALLS = 1 << 20, 64


def orchestrate(
    job: Job,
    run_folder: Path,
    *,
    learners: int,
    at_once: int = 64,
    watch: Watch = ignore,
    ready: Callable[[rpc.Server], None] = lambda server: None,
    show: Callable[[str], None] = lambda link: None,
    elsewhere: Elsewhere | None = None,
    engine: str = "serve",
    hardware: Hardware | None = None,
    control: Control | None = None,
    bundle: Bundle | None = None,
    phones: Phones | None = None,
    gathering: Gathering | None = None,
    **options: Any,
) -> list[Record]:
    """Serve learners and train, from the checkpoint in ``run_folder`` if there is one.

    Training starts when ``learners`` have joined, less those that were expelled before
    it was resumed; the number of the run's first start is kept in run.toml. ``ready``
    is called once they can connect, and ``show`` with the dashboard's link, which also
    allows to stop the run; ``options`` are those of ``rpc.serve``. Learners are the
    peers that connect, or those that ``elsewhere`` returns, which is called with what
    all tasks serve. Learners that trust ``bundle`` make the job's own models of it; it
    is kept in the run's folder. ``hardware`` is what all of them train on, where that
    is known. With ``phones``, browsers may join too. ``gathering`` has who has
    come, and what they do before the first cycle. Returns all records of the run.
    """
    family = family_of(job)
    job = family.checked(job, live=True)
    services = family.builder.services(job)
    control, attendance = control or Control(), Attendance(gathering)
    control.gathering = attendance.gathering
    dashboard = Dashboard.of(run_folder, control, family.fixed)
    with ExitStack() as stack:
        first = started(run_folder).get(LEARNERS, learners)
        code = stack.enter_context(keeping(bundle, run_folder))
        start = {"engine": engine, LEARNERS: first, **code}
        start |= chosen(hardware) if hardware else {}
        runs = stack.enter_context(opened(job, run_folder, start, watch))
        tasks = [LiveTask.of(own, runs[own.name], bundle) for own in tasks_of(job)]
        served = [task.served for task in tasks]
        if elsewhere is None:  # what goes to other processes cannot take it along
            for task in tasks:
                task.offer_outline()
        if phones:
            phones.check(job, served)
        learners_call = [ModelServer(served, bundle), attendance, *services]
        options |= {"limits": _limits(served)}
        serving = _serving(learners_call, attendance, dashboard, phones, options)
        server = stack.enter_context(serving)
        remotes: Remotes = RpcRemotes(server)
        if elsewhere:
            remotes = stack.enter_context(elsewhere(served))
        show(dashboard.attend(server, remotes))
        roster = Roster(
            remotes,
            [task.announcement for task in tasks],
            least=max(1, learners - len(_expelled(runs.values()))),
            at_once=at_once,
            overhead_s=float(job.overhead),
            attendance=attendance,
        )
        if elsewhere is None and engine == "serve":
            dashboard.invite(invitation(server, phones, bundle))
        ready(server)
        asyncio.run(family.builder.live(job, tasks, roster, control, services))
        records = [record for run in runs.values() for record in run.records]
    for folder in dict.fromkeys([*folders_of(job, run_folder), run_folder]):
        _write_report(folder)
    return records


@contextmanager
def _serving(
    services: Sequence[object],
    attendance: Attendance,
    dashboard: Dashboard,
    phones: Phones | None,
    options: dict[str, Any],
) -> Iterator[rpc.Server]:
    """Serve learners, and the pages of the dashboard and of phones, on one port."""

    def routes(app: web.Application, identify: Identify) -> None:
        dashboard.routes(app, identify)
        if phones:
            phones.routes(app, identify)

    def joined(peer: rpc.Peer) -> None:
        attendance.here(peer.name)

    with (
        rpc.serve(*services, routes=routes, joined=joined, **options) as server,
        closing(dashboard),
    ):
        if phones:
            phones.attend(server)
        yield server


def learners_of(start: dict[str, Any]) -> int:
    """Return how many learners a run waited for at its first start, from its run.toml.

    1 if an earlier version started it; DataError if it is no such number.
    """
    learners = start.get(LEARNERS, 1)
    if type(learners) is not int or learners < 1:
        raise DataError(f"run.toml has learners = {learners!r}: give --learners N")
    return learners


def orchestrate_on(
    crew_of: Callable[[LiveTask], Trains],
    job: Job,
    run_folder: Path,
    watch: Watch = ignore,
    *,
    engine: str,
) -> list[Record]:
    """Train by averaging on a crew that reaches its learners in its own way."""
    family = family_of(job)
    if family.name:
        raise ConfigError(
            f"scheme {job.scheme!r}: these learners train and average; use one of "
            f"{', '.join(FAMILIES[''].schemes())}"
        )
    job = family.checked(job, live=True)
    with opened(job, run_folder, {"engine": engine}, watch) as runs:
        (run,) = runs.values()
        task = LiveTask.of(job, run)
        crew = crew_of(task)
        algorithm = averaging_of(job, crew, task.task)
        asyncio.run(train(task.task, crew, algorithm, run, patient=True))
        records = run.records
    _write_report(run_folder)
    return records


def _expelled(runs: Iterable[RunWriter]) -> set[str]:
    """Return who was expelled before the run was resumed: they cannot come."""
    past = [record for run in runs for record in run.past]
    return {record.learner for record in past if isinstance(record, Expelled)}


def _write_report(folder: Path) -> None:
    """Write the report; a failure is only logged, since the run is complete."""
    try:
        views.write(folder)
    except MelismaError as error:
        log.warning("no report: %s", error)


def _limits(served: Sequence[ServedTask]) -> rpc.Limits:
    """Limit a learner's message to two models and `LEAST_MESSAGE_BYTES`, and more."""
    model_bytes = max(task.model_bytes for task in served)
    return rpc.Limits(
        message_bytes=LEAST_MESSAGE_BYTES + 2 * model_bytes,
        body_bytes=BODY_BYTES,
        calls=CALLS,
    )
