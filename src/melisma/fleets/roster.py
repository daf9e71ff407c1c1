"""Learners that can be called, ready and benchmarked for every task there is.

A learner that is slow, frozen or gone keeps no cycle waiting: who was there before has
a few seconds to answer, newcomers get ready meanwhile.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from melisma import rpc
from melisma.errors import RpcError
from melisma.fleets.messages import Ready, Speeds, TaskSpec
from melisma.fleets.peers import Peers

log = logging.getLogger("melisma.orchestrator")

#: Longest that a learner may take to get ready, and to benchmark itself.
PREPARE_S, MEASURE_S = 60.0, 300.0
#: Longest that a cycle's start waits for an answer of one that answered before.
HURRY_S = 3.0
#: Between two looks at who is there.
LOOK_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """A task as learners get ready for it."""

    spec: TaskSpec
    benchmark: Sequence[str]  #: shards to benchmark on


class Roster:
    """The learners of ``server``; ``least`` of them to start with."""

    def __init__(
        self,
        server: Peers,
        announcements: Iterable[Announcement],
        *,
        least: int,
        at_once: int = 64,
    ) -> None:
        self.server = server
        #: Everybody who ever was ready, in the order of coming.
        self.known: list[str] = []
        #: Those of them who were there at the last look, and what they answered.
        self.present: dict[str, Ready] = {}
        self._announcements = {
            announcement.spec.task: announcement for announcement in announcements
        }
        self._least = least
        self._measured: set[str] = set()  # benchmarked for every task
        self._preparing: dict[tuple[str, str], asyncio.Task[Ready | None]] = {}
        self._complaints: dict[str, str] = {}
        self._speeds: dict[tuple[str, str], Speeds] = {}
        self._benchmarks = asyncio.Semaphore(at_once)

    def speeds(self, task: str, name: str) -> Speeds:
        """What a learner told of itself."""
        return self._speeds[task, name]

    async def ready(self, task: str, busy: Collection[str] = ()) -> list[str]:
        """Return all who are ready; wait for enough at the start, then for anybody.

        Who was there before has HURRY_S to answer, unless it is ``busy`` with another
        task. Newcomers benchmark themselves meanwhile, and take part as soon as they
        are done.
        """
        asked = [name for name in self.present if name not in busy]
        ready: dict[str, Ready] = {}
        hurry_s = HURRY_S
        while True:
            peers = await self.server.wait_until(1)
            self._prepare_all(task, peers, {*ready, *busy})
            keys = [(task, name) for name in asked]
            due = [self._preparing[key] for key in keys if key in self._preparing]
            if due and hurry_s:
                await asyncio.wait(due, timeout=hurry_s)
            hurry_s = 0.0  # who has not answered by now keeps nobody waiting
            ready |= self._ready(task)
            there = {
                name: answer
                for name, answer in (self.present | ready).items()
                if name in peers and (name in ready or name not in asked)
            }
            if len(there) >= self._least:
                break
            pause = asyncio.create_task(asyncio.sleep(LOOK_S))
            others = [
                self._preparing[k] for k in self._preparing if k[0] in (_NEW, task)
            ]
            await asyncio.wait([pause, *others], return_when="FIRST_COMPLETED")
        self._least = 1
        self.present = there
        self.known += sorted(set(ready).difference(self.known))
        return sorted(ready)

    def complain(self, name: str, what: str) -> None:
        """Say it once."""
        if self._complaints.get(name) != what:
            log.warning("%s %s", name, what)
        self._complaints[name] = what

    def _prepare_all(
        self, task: str, peers: Mapping[str, rpc.Peer], but: Collection[str]
    ) -> None:
        for name in peers:
            key = (task if name in self._measured else _NEW, name)
            if name in but or key in self._preparing:
                continue
            if "train" in peers[name].functions:
                work = self._prepare(task, peers[name])
                self._preparing[key] = asyncio.create_task(work)

    def _ready(self, task: str) -> dict[str, Ready]:
        """Take those who have answered off the list, and return who can take part."""
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

    async def _prepare(self, task: str, peer: rpc.Peer) -> Ready | None:
        """Get one learner ready; None, and a word in the log, if it cannot be.

        One that is new, or was started anew, gets ready for all tasks at once.
        """
        name: str = peer.name
        try:
            ready = await self._ready_for(task, peer)
            if not ready.measured or name not in self._measured:
                for other in self._announcements:
                    if other != task:
                        await self._ready_for(other, peer)
        except RpcError as error:
            self._measured.discard(name)
            self.complain(name, f"does not take part: {error}")
            return None
        self._complaints.pop(name, None)
        return ready

    async def _ready_for(self, task: str, peer: rpc.Peer) -> Ready:
        announcement = self._announcements[task]
        ready: Ready = await peer.prepare.within(PREPARE_S)(announcement.spec)
        if not ready.measured:
            async with self._benchmarks:
                await peer.measure.within(MEASURE_S)(task, list(announcement.benchmark))
        if not announcement.spec.private:
            # Drift is counted once: by the learner, or by who learns from its cycles.
            drifted = len(self._announcements) == 1
            told = await peer.speeds.within(PREPARE_S)(task, drifted)
            self._speeds[task, peer.name] = told
        return ready


#: In place of a task: who is new gets ready for all of them.
_NEW = ""
