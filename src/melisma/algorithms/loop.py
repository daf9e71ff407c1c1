"""The cycles that a task has before it, as far as whoever steers lets them come."""

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Any, Self, TypeVar

from melisma.algorithms.control import Steering, UnderWay
from melisma.algorithms.log import Diary, Sink, Standing
from melisma.algorithms.task import Task
from melisma.fleets.protocols import Fleet
from melisma.learning.parameters import Parameters
from melisma.runs.records import Record

T = TypeVar("T")
Keep = Callable[[int, Parameters], None]


class Cycles:
    """Yields a diary for each cycle; ``end`` it when all of it is recorded.

    Goes on after the ``past``. What was steered is recorded before the next cycle
    begins, and kept, so that a run which is cut short in it goes on the same way.
    """

    def __init__(
        self,
        task: Task,
        fleet: Fleet,
        sink: Sink,
        past: Iterable[Record],
        keep: Keep,
        steering: Steering | None,
    ) -> None:
        self._fleet, self._sink, self._keep = fleet, sink, keep
        self._steering = steering or Steering()
        self._steering.now_s = fleet.now_s
        self._standing = Standing(past)
        for name, reason in self._standing.expelled.items():
            fleet.expel(name, reason)
        self._task = replace(
            task, deadline_s=self._standing.deadline_s or task.deadline_s
        )
        self._kept: tuple[int, Parameters] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Diary:
        number = self._standing.done + 1
        if number > self._task.cycles:
            raise StopAsyncIteration
        goes_on = await self._steering.goes_on()
        diary = Diary(self._task, self._fleet, self._sink, self._standing, number)
        self._obey(diary)
        if not goes_on:
            raise StopAsyncIteration
        return diary

    def _obey(self, diary: Diary) -> None:
        """Record what was asked for since the last cycle, and keep that."""
        changed = self._expel(diary)
        if deadline_s := self._steering.take_deadline():
            self._task = replace(self._task, deadline_s=deadline_s)
            diary.steered(self._task)
            changed = True
        if changed and self._kept:
            self._keep(*self._kept)

    def _expel(self, diary: Diary) -> bool:
        expelled = self._steering.take_expelled()
        for name, reason in expelled:
            diary.expelled(name, reason)
        return bool(expelled)

    async def unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Return what ``work`` returns, or None if the run is to stop instead."""
        return await self._steering.unless_stopped(work)

    def begun(self, diary: Diary) -> None:
        """Let who watches know since when a cycle is under way."""
        self._steering.under_way[self._task.name] = UnderWay(
            cycle=diary.cycle,
            began_s=diary.began_s,
            deadline_s=self._task.deadline_s,
        )

    def end(self, diary: Diary, parameters: Parameters) -> None:
        """Send away who is to go, and keep what the cycle came to."""
        diary.expel_offenders()
        self._expel(diary)
        self._steering.under_way.pop(self._task.name, None)
        self._kept = diary.cycle, parameters
        self._keep(diary.cycle, parameters)
