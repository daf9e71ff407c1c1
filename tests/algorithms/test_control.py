"""A run does what whoever watches it asks for, between its cycles."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.algorithms import test_coded, test_fog
from tests.algorithms import test_multitask as test_many
from tests.fleets.fleets import Watched, fleet_of, law, task_of

from melisma.algorithms import control as control_module
from melisma.algorithms.averaging import Averaging
from melisma.algorithms.control import Control, Intent
from melisma.algorithms.fog import Fog
from melisma.algorithms.log import Sink
from melisma.algorithms.loop import train
from melisma.algorithms.task import ScheduledTask
from melisma.fleets.protocols import Crew
from melisma.fog.online import Alone
from melisma.learning.parameters import Parameters
from melisma.runs.records import (
    Aggregated,
    Allocated,
    Evaluated,
    Expelled,
    Moved,
    Record,
    Steered,
)

CYCLES = 4


def trained(
    task: ScheduledTask,
    crew: Crew,
    algorithm: Any,
    sink: Sink,
    *,
    control: Control | None = None,
    **options: Any,
) -> Coroutine[Any, Any, Parameters]:
    return train(task, crew, algorithm, Watched(sink, **options), control=control)


def plainly(
    task: ScheduledTask, crew: Any, sink: Sink, control: Control
) -> Coroutine[Any, Any, Parameters]:
    return trained(task, crew, Averaging(crew), sink, control=control)


def plain(sink: Sink, **options: Any) -> Any:
    crew = fleet_of(law([0.1, 0.2], [0.01] * 2, [0.2] * 2))
    return trained(
        task_of("sync", 60.0, cycles=CYCLES), crew, Averaging(crew), sink, **options
    )


def coded(sink: Sink, **options: Any) -> Any:
    ready = test_coded.build(test_coded.job(cycles=CYCLES))
    return trained(ready.task, ready.crew, ready.algorithm, sink, **options)


def fog(sink: Sink, **options: Any) -> Any:
    data = test_fog.DATA.repeat(2, axis=0)
    how = test_fog.fogging(Alone(), data)
    crew = test_fog.devices()
    return trained(test_fog.task(CYCLES), crew, Fog(crew, how), sink, **options)


def many(sink: Sink, control: Control) -> Any:
    return test_many.scheduler(
        0.0, 0.0, cycles=CYCLES, watch=sink, control=control
    ).run()


KINDS = pytest.mark.parametrize("begin", [plain, coded, fog])


class Log:
    """Keeps records, and does something at one of them."""

    def __init__(self, at: Callable[[Record], bool], then: Callable[[], None]) -> None:
        self.records: list[Record] = []
        self._at, self._then = at, then

    def __call__(self, record: Record) -> None:
        self.records.append(record)
        if self._at(record):
            self._then()

    def cycles(self, kind: type[Record]) -> list[int]:
        return [r.cycle for r in self.records if isinstance(r, kind)]


def in_cycle(number: int) -> Callable[[Record], bool]:
    """What comes while a cycle is under way."""
    return lambda r: isinstance(r, Allocated | Moved) and r.cycle == number


def after_cycle(number: int) -> Callable[[Record], bool]:
    return lambda r: isinstance(r, Evaluated) and r.cycle == number


@KINDS
def test_a_run_stops_after_the_cycle_that_is_under_way(begin: Any) -> None:
    control, kept = Control(), []
    log = Log(in_cycle(2), control.stop)
    keep = lambda cycle, parameters: kept.append(cycle)  # noqa: E731
    asyncio.run(begin(log, control=control, keep=keep))
    assert log.cycles(Evaluated) == kept == [1, 2]
    assert not control.under_way


@pytest.mark.slow
@KINDS
def test_a_stopped_run_goes_on_to_where_it_would_have_come(begin: Any) -> None:
    whole, control = Log(in_cycle(0), lambda: None), Control()
    asyncio.run(begin(whole))
    log = Log(in_cycle(2), control.stop)
    asyncio.run(begin(log, control=control))
    rest = Log(in_cycle(0), lambda: None)
    asyncio.run(begin(rest, past=log.records))
    assert log.cycles(Evaluated) + rest.cycles(Evaluated) == whole.cycles(Evaluated)


def test_all_tasks_stop_each_after_its_cycle() -> None:
    control = Control()
    log = Log(lambda r: in_cycle(2)(r) and r.task == "task-0", control.stop)
    asyncio.run(many(log, control))
    ended = {r.task: r.cycle for r in log.records if isinstance(r, Evaluated)}
    begun = {r.task: r.cycle for r in log.records if isinstance(r, Allocated)}
    assert ended == begun  # none was left in the middle
    assert ended["task-0"] == 2 < CYCLES
    assert 0 < ended["task-1"] < CYCLES


def test_a_task_that_has_not_come_does_not() -> None:
    control = Control()
    log = Log(in_cycle(2), control.stop)
    scheduler = test_many.scheduler(0.0, 1e6, cycles=CYCLES, watch=log, control=control)
    models = asyncio.run(scheduler.run())
    assert models["task-1"] is None
    assert {r.task for r in log.records} == {"task-0"}


@KINDS
def test_a_paused_run_begins_no_cycle_until_it_is_resumed(
    begin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_module, "POLL_S", 0.0)
    control = Control()
    log = Log(after_cycle(1), control.pause)

    async def watched() -> list[int]:
        running = asyncio.ensure_future(begin(log, control=control))
        while control.intent != Intent.PAUSED and not running.done():
            await asyncio.sleep(0)
        for _ in range(200):
            await asyncio.sleep(0)
        meanwhile = log.cycles(Evaluated)
        control.resume()
        await running
        return meanwhile

    assert asyncio.run(watched()) == [1]
    assert log.cycles(Evaluated) == [1, 2, 3, 4]


@pytest.mark.parametrize("begin", [plain, coded])
def test_another_deadline_holds_from_the_next_cycle_on(begin: Any) -> None:
    control, kept = Control(), []
    log = Log(in_cycle(2), lambda: control.set_deadline(10.0))
    keep = lambda cycle, parameters: kept.append((cycle, len(log.records)))  # noqa: E731
    asyncio.run(begin(log, control=control, keep=keep))
    (steered,) = [r for r in log.records if isinstance(r, Steered)]
    assert (steered.cycle, steered.deadline_s) == (3, 10.0)
    # Kept once more with what was steered, so that it holds after a crash in cycle 3.
    place = log.records.index(steered)
    assert kept[1:3] == [(2, place), (2, place + 1)]


def test_work_is_allocated_by_the_deadline_that_holds() -> None:
    control = Control()
    log = Log(after_cycle(2), lambda: control.set_deadline(10.0))
    asyncio.run(plain(log, control=control))
    longest = {
        r.cycle: max(
            o.predicted_s or 0.0
            for o in log.records
            if isinstance(o, Allocated) and o.cycle == r.cycle
        )
        for r in log.records
        if isinstance(r, Aggregated)
    }
    assert longest[1] == longest[2] > 10.0
    assert longest[3] == longest[4] <= 10.0
    rest = Log(in_cycle(0), lambda: None)
    past = [r for r in log.records if r.cycle <= 3]
    asyncio.run(plain(rest, past=past))
    again = [r.predicted_s for r in rest.records if isinstance(r, Allocated)]
    assert max(s or 0.0 for s in again) == longest[4]


@KINDS
def test_who_was_sent_away_is_recorded_in_the_cycle(begin: Any) -> None:
    control = Control()
    log = Log(in_cycle(2), lambda: control.expelled("somebody", "a reason"))
    asyncio.run(begin(log, control=control, keep=lambda cycle, parameters: None))
    told = [r for r in log.records if isinstance(r, Expelled)]
    # Fog notes moves one by one: more than one record is in the cycle.
    assert {(r.learner, r.reason, r.cycle) for r in told} == {
        ("somebody", "a reason", 2)
    }


class Deserted:
    """A crew that nobody comes to."""

    def __init__(self, reached: threading.Event) -> None:
        self._reached = reached

    def now_s(self) -> float:
        return 0.0

    async def ready(self) -> None:
        self._reached.set()
        await asyncio.Event().wait()


def test_who_waits_for_learners_can_be_stopped_from_another_thread() -> None:
    control, waiting = Control(), threading.Event()
    task, crew = task_of("sync", 60.0), Deserted(waiting)

    def stop() -> None:
        assert waiting.wait(30)
        control.stop()

    thread = threading.Thread(target=stop)
    thread.start()
    happened: list[Record] = []

    async def waited() -> Parameters:
        async with asyncio.timeout(30):
            crew_: Any = crew
            return await plainly(task, crew_, happened.append, control)

    asyncio.run(waited())
    thread.join()
    assert happened == []


def test_a_run_that_is_cancelled_is_not_taken_for_one_that_is_stopped() -> None:
    control = Control()
    crew: Any = Deserted(threading.Event())

    async def cancelled() -> None:
        running = asyncio.create_task(
            plainly(task_of("sync", 60.0), crew, lambda record: None, control)
        )
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancelled())


def test_what_is_under_way_is_told() -> None:
    control = Control()
    seen: list[Any] = []
    log = Log(
        lambda r: isinstance(r, Aggregated),
        lambda: seen.append(control.under_way["small"]),
    )
    asyncio.run(plain(log, control=control))
    assert [one.cycle for one in seen] == [1, 2, 3, 4]
    assert [one.deadline_s for one in seen] == [60.0] * 4
    began = {r.cycle: r.time_s for r in log.records if isinstance(r, Allocated)}
    assert [one.began_s for one in seen] == [began[c] for c in (1, 2, 3, 4)]
