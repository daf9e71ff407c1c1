"""Learners that can be called, prepared and benchmarked for every task.

A learner that is slow, frozen or gone delays no cycle: one that took part before has a
few seconds to answer, and newcomers prepare while the others work.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from melisma.errors import ProtocolError, RpcError, TrainingError, readable
from melisma.fleets.attendance import Attendance
from melisma.fleets.gathering import Stage
from melisma.fleets.judge import (
    believed,
    is_short,
    wrong_nothing,
    wrong_ready,
    wrong_speeds,
)
from melisma.fleets.messages import Ready, Speeds, TaskSpec
from melisma.fleets.protocols import Complaint
from melisma.fleets.remotes import Remotes
from melisma.maths.arrays import Floats
from melisma.system.law import DelayLaw

log = logging.getLogger("melisma.orchestrator")

#: Longest that a learner may take to prepare, and to benchmark itself.
PREPARE_S, MEASURE_S = 60.0, 300.0
#: Longest that the start of a cycle waits for a learner that took part before.
HURRY_S = 3.0
#: How much longer it waits for each of them, at most.
EACH_S = 0.02
#: How long a run whose learners were all expelled waits for another one.
NEWCOMER_S = 30.0
#: Pause between two looks at who is connected.
LOOK_S = 1.0
#: Wrong answers after which a learner is not asked again before they are recorded.
WRONG = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """A task as learners prepare for it."""

    spec: TaskSpec
    benchmark: Sequence[str]  #: shards to benchmark on


class Roster:
    """The learners among ``remotes``; ``least`` of them to start with."""

    def __init__(
        self,
        remotes: Remotes,
        announcements: Iterable[Announcement],
        *,
        least: int,
        at_once: int = 64,
        overhead_s: float = 0.0,
        attendance: Attendance | None = None,
    ) -> None:
        self.remotes = remotes
        #: Who said that it goes, and is asked for nothing until it is back.
        self.attendance = attendance or Attendance()
        #: Who has come so far, for whoever shows it.
        self.gathering = self.attendance.gathering
        self.gathering.wait(least)
        #: Of a learner in each cycle, beside what it measures of itself.
        self.overhead_s = overhead_s
        #: Names of all learners that ever were ready, in the order of coming.
        self.known: list[str] = []
        #: Answers of those that were ready at the last look.
        self.present: dict[str, Ready] = {}
        announcements = list(announcements)
        # Drift is counted once: by the learner, or by who observes its cycles.
        alone = len(announcements) == 1
        self._tasks = {
            item.spec.task: replace(
                item,
                spec=msgspec.structs.replace(
                    item.spec, drifted=alone and not item.spec.late_at_most
                ),
            )
            for item in announcements
        }
        self._least = least
        self._measured: set[str] = set()  # for every task
        self._preparing: dict[tuple[str, str], asyncio.Task[Ready | None]] = {}
        self._complaints: dict[str, str] = {}
        self._unrecorded: list[Complaint] = []
        self._wrong: Counter[str] = Counter()  # wrong answers among those
        self._short: dict[
            str, str
        ] = {}  # who lacks memory to benchmark itself, and how
        self._speeds: dict[tuple[str, str], Speeds] = {}
        self._expelled: set[str] = set()
        self._benchmarks = asyncio.Semaphore(at_once)

    def law(self, task: str, names: Iterable[str]) -> DelayLaw:
        """Return the delay law of learners: what each measured, and the overhead."""
        law = law_of(self.speeds(task, names))
        return law.slowed(overhead_s=self.overhead_s)

    def spread(self, task: str, names: Iterable[str]) -> Floats:
        """Return the spread of benchmarks: compute and link × learners."""
        told = self.speeds(task, names)
        return np.array([[s.compute_spread, s.link_spread] for s in told]).T

    def speeds(self, task: str, names: Iterable[str]) -> list[Speeds]:
        """Return what learners reported of themselves, states included."""
        return [self._speeds[task, name] for name in names]

    def expel(self, name: str, reason: str) -> None:
        """Disconnect a learner, and accept none of that name again."""
        self._expelled.add(name)
        self.remotes.expel(name, reason)

    def spec(self, task: str) -> TaskSpec:
        """Return a task as learners prepare for it."""
        return self._tasks[task].spec

    async def ready(self, task: str, busy: Collection[str] = ()) -> list[str]:
        """Return all learners that are ready; wait for enough of them at the start.

        One that took part before has HURRY_S to answer, and longer while others do,
        unless it is ``busy`` with another task, or away. Newcomers benchmark themselves
        meanwhile, and take part as soon as they are done. Later calls wait until one
        learner is ready. Who answered wrongly WRONG times, or lacks the memory, is not
        waited for. Raises TrainingError if all lack it before the first cycle.
        """
        away = self.attendance.absent
        asked = [name for name in self.present if name not in {*busy, *away}]
        ready: dict[str, Ready] = {}
        hurry = True
        while True:
            connected = dict.fromkeys(await self._connected())
            self.gathering.keep(connected)
            hopeless, away = self._hopeless, self.attendance.absent
            self._prepare_all(task, connected, {*ready, *busy, *hopeless, *away})
            keys = [(task, name) for name in asked]
            due = [self._preparing[key] for key in keys if key in self._preparing]
            if due and hurry:
                await while_they_come(due)
            hurry = False  # the others wait once
            ready |= self._prepared(task)
            ready = {name: ready[name] for name in ready if name not in away}
            there = {
                name: answer
                for name, answer in (self.present | ready).items()
                if name in connected
                and name not in away
                and (name in ready or name not in asked)
            }
            lost = self.gathering.lost.difference(connected)
            if there and len(there) + len(hopeless | lost) >= self._least:
                break
            self._check_memory(connected)
            self.gathering.wait(self._least)
            pause = asyncio.create_task(asyncio.sleep(LOOK_S))
            others = [
                self._preparing[k] for k in self._preparing if k[0] in (_NEW, task)
            ]
            await asyncio.wait([pause, *others], return_when="FIRST_COMPLETED")
        self._least = 1
        self.gathering.begin()
        gone = {name: self.present[name] for name in self.present if name in away}
        self.present = there | gone
        self.known += sorted(set(ready).difference(self.known))
        return sorted(ready)

    async def newcomers(self, task: str, at_work: Collection[str]) -> list[str]:
        """Return learners that became ready while these work; wait for nobody."""
        connected = await self.remotes.wait_until(0)
        there = set(connected) - self.attendance.absent
        self._prepare_all(task, there, {*at_work, *self._hopeless})
        ready = {n: r for n, r in self._prepared(task).items() if n in there}
        self.present |= ready
        self.known += sorted(set(ready).difference(self.known))
        return sorted(ready)

    @property
    def _hopeless(self) -> set[str]:
        """Who answered wrongly too often, or lacks the memory."""
        wrong = {name for name, times in self._wrong.items() if times >= WRONG}
        return wrong | set(self._short)

    async def _connected(self) -> Collection[str]:
        """Wait until a learner is connected; return the names of all.

        Raises TrainingError if all that took part were expelled and nobody else comes.
        """
        nobody_left = self.known and self._expelled.issuperset(self.known)
        try:
            async with asyncio.timeout(NEWCOMER_S if nobody_left else None):
                return await self.remotes.wait_until(1)
        except TimeoutError:
            raise TrainingError(
                f"all learners were expelled ({', '.join(self.known)}), and no other "
                f"came within {NEWCOMER_S:g} s"
            ) from None

    def _check_memory(self, connected: Collection[str]) -> None:
        """Raise TrainingError if a run cannot begin: all learners lack the memory."""
        enough = not self.known and len(connected) >= self._least
        if enough and self._short.keys() >= set(connected):
            name, reason = next(iter(self._short.items()))
            raise TrainingError(
                f"none of {len(connected)} learners has the memory for this task; "
                f"{name}: {reason}"
            )

    def complain(self, name: str, complaint: str) -> bool:
        """Log a complaint about a learner; False if it was the last one logged."""
        complaint = readable(complaint)
        is_new = self._complaints.get(name) != complaint
        if is_new:
            log.warning("%s %s", name, complaint)
        self._complaints[name] = complaint
        return is_new

    def accuse(self, name: str, reason: str) -> None:
        """Keep a wrong answer for the records; the log has it already."""
        self._wrong[name] += 1
        self._unrecorded.append(Complaint(name, readable(reason)))

    def take_complaints(self) -> list[Complaint]:
        """Return who gave no answer that counts since the last call, and why."""
        taken, self._unrecorded = self._unrecorded, []
        self._wrong.clear()
        self._short.clear()
        return taken

    def _prepare_all(
        self, task: str, names: Iterable[str], excluded: Collection[str]
    ) -> None:
        """Have learners prepare in the background, each once at a time."""
        for name in names:
            key = (task if name in self._measured else _NEW, name)
            if name not in excluded and key not in self._preparing:
                self._preparing[key] = asyncio.create_task(self._prepare(task, name))

    def _prepared(self, task: str) -> dict[str, Ready]:
        """Collect finished preparations; return the answers of who can take part."""
        done = {
            key: work
            for key, work in self._preparing.items()
            if key[0] in (_NEW, task) and work.done()
        }
        for key in done:
            del self._preparing[key]
        answers = {name: work.result() for (_, name), work in done.items()}
        ready = {name: answer for name, answer in answers.items() if answer}
        self._measured |= set(ready)
        return ready

    async def _prepare(self, task: str, name: str) -> Ready | None:
        """Prepare one learner; None, and a line in the log, if that fails.

        One that is new, or was restarted, prepares for all tasks at once.
        """
        is_new = name not in self._measured
        if is_new:
            self.gathering.comes(name)
        try:
            ready = await self._prepare_for(task, name)
            if not ready.measured or name not in self._measured:
                for other in self._tasks:
                    if other != task:
                        await self._prepare_for(other, name)
        except (RpcError, _Wrong) as error:
            self._measured.discard(name)
            if name in self.gathering.lost:  # that has been said
                return None
            said = error.message if is_short(error) else str(error)
            is_news = self.complain(name, f"does not take part: {said}")
            if is_news:
                self.gathering.note(name, Stage.REFUSED, why=readable(said))
            if is_short(error):
                self._short[name] = readable(said)
                if is_news:  # no offence: it can be helped
                    self._unrecorded.append(Complaint(name, readable(said), False))
            # One that raises may only lack the model: it can be mended and come back.
            if isinstance(error, ProtocolError | _Wrong):
                self.accuse(name, str(error))
            return None
        self._complaints.pop(name, None)
        if is_new or not ready.measured:
            self.gathering.note(name, Stage.READY)
        return ready

    async def _prepare_for(self, task: str, name: str) -> Ready:
        announced, call = self._tasks[task], self.remotes.call
        ready = await call(name, "prepare", announced.spec, within_s=PREPARE_S)
        if reason := wrong_ready(ready, announced.spec):
            raise _Wrong(reason)
        if not ready.measured:
            if self._benchmarks.locked():
                self.gathering.note(name, Stage.QUEUED, task=task)
            async with self._benchmarks:
                self.gathering.note(name, Stage.BENCHMARKING, task=task)
                keys = list(announced.benchmark)
                nothing = await call(name, "measure", task, keys, within_s=MEASURE_S)
            if reason := wrong_nothing(nothing, "measure"):
                raise _Wrong(reason)
        if not announced.spec.private:
            speeds: object = ready.speeds
            if speeds is None:  # it has just benchmarked itself
                speeds = await call(name, "speeds", task, False, within_s=PREPARE_S)
            if reason := wrong_speeds(speeds):
                raise _Wrong(reason)
            batch = announced.spec.training.batch
            self._speeds[task, name] = believed(speeds, batch)  # type: ignore[arg-type]
        answer: Ready = ready
        return answer


async def while_they_come(work: Collection[asyncio.Task[Any]]) -> None:
    """Wait for all, as long as one is done every HURRY_S, and EACH_S for each at most.

    A crowd takes longer to answer than one learner, and who is silent is not waited
    for.
    """
    loop = asyncio.get_running_loop()
    now = begun = last = loop.time()
    done = 0
    while done < len(work) and now < min(last + HURRY_S, begun + longest_s(len(work))):
        finished, _ = await asyncio.wait(work, timeout=HURRY_S / 12)
        now = loop.time()
        if len(finished) > done:
            done, last = len(finished), now


def longest_s(learners: int) -> float:
    """Return how long the answers of so many learners may take in all."""
    return HURRY_S + EACH_S * learners


class _Wrong(Exception):
    """An answer of a learner that cannot be true."""


def law_of(speeds: Sequence[Speeds]) -> DelayLaw:
    """Return the delay law of learners that reported their speeds."""
    return DelayLaw(
        step_s=np.array([own.step_s for own in speeds]),
        sample_s=np.array([own.sample_s for own in speeds]),
        fixed_s=np.array([own.fixed_s for own in speeds]),
    )


#: In place of a task: a new learner prepares for all of them.
_NEW = ""
