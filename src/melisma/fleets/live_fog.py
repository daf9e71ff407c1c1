"""Live devices of a fog: slots on the real clock, samples over real connections.

A device that fails in a slot is out until the next cycle. Its samples are lost, and
samples that others would send to it stay with them. One that comes while a cycle is
under way, for the first time or again, fetches the model while the others work, and
takes part from the next slot on.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from melisma import rpc
from melisma.errors import ConfigError, RemoteError, RpcError
from melisma.fleets.judge import (
    accepted,
    refused,
    wrong_address,
    wrong_nothing,
    wrong_slot,
    wrong_slots_update,
)
from melisma.fleets.live import LiveCrew, as_they_arrive
from melisma.fleets.messages import SlotRequest, Unprepared
from melisma.fleets.moves import Done, Move
from melisma.fleets.protocols import Lost, Updates
from melisma.fleets.remotes import Remotes
from melisma.fleets.roster import Roster
from melisma.fleets.served import ServedTask
from melisma.learning.parameters import Parameters
from melisma.learning.samples import length
from melisma.learning.shards import Shard, check_shard

#: How much longer than a slot its answer may take: a share of it, or seconds.
GRACE, GRACE_S = 0.25, 0.5
#: Pause between two looks at who has come.
LOOK_S = 0.1
#: Longest that a device may take to return its address, or to take samples.
RELAY_S = 5.0


class RelayServer:
    """Gives devices each other's addresses, and relays samples where there is none.

    Only samples that the plan of the slot sends from one device to the other.
    """

    def __init__(self, task: str) -> None:
        self._task, self._slot = task, 0
        self._moves: Mapping[str, Move] = {}
        self.remotes: Remotes | None = None
        #: Called with the name of a device that answers wrongly, and how.
        self.accuse: Callable[[str, str], None] = lambda name, reason: None

    def plan(self, slot: int, moves: Mapping[str, Move]) -> None:
        """Allow these samples, and no others."""
        self._slot, self._moves = slot, moves

    @rpc.expose(idempotent=True)
    async def address(self, task: str, to: str) -> str | None:
        """Return where a device takes samples of the caller, if it listens."""
        sender = rpc.current().caller
        self._planned(task, sender, to)
        answer = await self._call(to, "admit", task, sender)
        if reason := wrong_address(answer):
            self.accuse(to, reason)
            return None
        address: str | None = answer
        return address

    @rpc.expose(idempotent=True)
    async def relay(self, task: str, slot: int, to: str, shard: Shard) -> None:
        """Deliver samples of the caller; ConfigError if they are not in the plan."""
        check_shard(shard)
        sender, number = rpc.current().caller, length(shard)
        if slot != self._slot or number > self._planned(task, sender, to):
            raise ConfigError(
                f"{number} samples for {to} in slot {slot} are not in the plan"
            )
        await self._call(to, "deliver", task, slot, sender, shard)

    def _planned(self, task: str, sender: str, to: str) -> int:
        planned = self._moves[sender].sent.get(to, 0) if sender in self._moves else 0
        if task != self._task or not planned:
            raise ConfigError(f"{sender} has nothing to send to {to} in this slot")
        return planned

    async def _call(self, name: str, function: str, *args: Any) -> Any:
        if self.remotes is None:
            raise ConfigError(f"{function} of {name}: no cycle has begun yet")
        return await self.remotes.call(name, function, *args, within_s=RELAY_S)


class LiveDevices(LiveCrew):
    """One fog's devices, of a roster."""

    def __init__(
        self,
        roster: Roster,
        served: ServedTask,
        relay: RelayServer,
        *,
        began_s: float = 0.0,
    ) -> None:
        super().__init__(roster, served, began_s=began_s)
        self._relay, relay.remotes = relay, roster.remotes
        relay.accuse = roster.accuse
        self._trained: dict[str, int] = {}  # samples in this cycle, of those at work
        self._away: set[str] = set()  # those of this cycle that left, or lost it
        self._came: list[str] = []  # those that have the model, but no slot yet
        self._number = 0  # of the slot under way
        self._welcoming: asyncio.Task[None] | None = None

    async def start(
        self, parameters: Parameters, slot: int, deadline_s: float
    ) -> list[Lost]:
        """Have all devices fetch the model; return those that do not."""
        self._started, self._sent = self._begin(parameters), parameters
        self._trained = dict.fromkeys(self.learners, 0)
        self._away, self._came, self._number = set(), [], slot - 1

        async def start(name: str) -> Lost | None:
            why = await self._start(name, slot, deadline_s)
            return None if why is None else self._lost(name, why)

        answers = await asyncio.gather(*map(start, self.learners))
        self._dismiss()
        self._welcoming = asyncio.create_task(self._welcome(deadline_s))
        return [lost for lost in answers if lost]

    async def _start(
        self, name: str, slot: int, within_s: float
    ) -> RpcError | str | None:
        """Have a device fetch the model; return why it has not."""
        task, cycle = self._served.task, self._served.cycle
        try:
            nothing = await self._call(
                name, "start", task, cycle, slot, within_s=within_s
            )
        except RpcError as error:
            return error
        return wrong_nothing(nothing, "start") or None

    async def _welcome(self, within_s: float) -> None:
        """Have devices that come while a cycle is under way prepare and start."""
        joining = set[str]()
        async with asyncio.TaskGroup() as group:
            while True:
                await asyncio.sleep(LOOK_S)
                silences_s = self._roster.remotes.silences_s
                out = set(self.learners).difference(self._trained)
                self._away |= {name for name in out if silences_s.get(name) is None}
                joining -= self._trained.keys()
                here = {*self._trained, *joining, *out.difference(self._away)}
                for name in await self._roster.newcomers(self._served.task, here):
                    joining.add(name)
                    group.create_task(self._join(name, within_s))

    async def _join(self, name: str, within_s: float) -> None:
        """Have a device fetch the model until that is done before a slot begins."""
        due = 0
        while due != self._number + 1:
            due = self._number + 1
            if (why := await self._start(name, due, within_s)) is not None:
                self._complain(name, "does not begin", why)
                return
        self._came.append(name)

    def _dismiss(self) -> None:
        if self._welcoming:
            self._welcoming.cancel()

    def turnover(self) -> tuple[list[str], list[Lost]]:
        """Return who came since the last slot and has the model, and who left."""
        if self._welcoming and self._welcoming.done():
            self._welcoming.result()
        there = self._roster.remotes.silences_s
        left = [self._left(name) for name in list(self._trained) if name not in there]
        came, self._came = [n for n in self._came if n in there], []
        for name in came:
            if name not in self.learners:
                self.learners.append(name)
                own = self._roster.present[name].samples
                self.own_samples = [*(self.own_samples or []), own or 0]
            self._away.discard(name)
            self._trained[name] = 0
        return came, left

    async def slot(
        self, number: int, moves: Mapping[str, Move], slot_s: float
    ) -> dict[str, Done | Lost]:
        """Have a slot's moves carried out; returns when it is over."""
        ends, self._number = time.monotonic() + slot_s, number
        self._relay.plan(number, moves)
        answers = await asyncio.gather(
            *(self._slot(number, name, move, slot_s) for name, move in moves.items())
        )
        await asyncio.sleep(max(0.0, ends - time.monotonic()))
        return dict(zip(moves, answers, strict=True))

    async def _slot(
        self, number: int, name: str, move: Move, slot_s: float
    ) -> Done | Lost:
        request = SlotRequest(
            task=self._served.task,
            cycle=self._served.cycle,
            slot=number,
            ends_s=slot_s,
            skipped=move.skipped,
            collected=move.collected,
            kept=move.kept,
            sent=dict(move.sent),
            arrived=dict(move.arrived),
        )
        within_s = slot_s + max(GRACE * slot_s, GRACE_S)
        try:
            done = await self._call(name, "slot", request, within_s=within_s)
        except RpcError as error:
            return self._lost(name, error)
        if reason := wrong_slot(done, number, move):
            return self._lost(name, reason)
        self._trained[name] += done.trained
        return Done(trained=done.trained, delivered=done.delivered)

    def finish(self, deadline_s: float) -> AsyncIterator[Updates | Lost]:
        """Yield the models of the devices that trained in this cycle."""
        self._dismiss()
        names = [name for name, samples in self._trained.items() if samples]
        return as_they_arrive([self._finish(name, deadline_s) for name in names])

    async def _finish(self, name: str, deadline_s: float) -> Updates | Lost:
        task, cycle = self._served.task, self._served.cycle
        try:
            update = await self._call(name, "finish", task, cycle, within_s=deadline_s)
        except RpcError as error:
            return self._lost(name, error)
        samples, steps = self._trained[name], self._roster.spec(task).steps
        if reason := wrong_slots_update(
            update, cycle, samples, self._sent, steps=steps
        ):
            return self._lost(name, reason)
        return accepted(self.learners.index(name), update, self._after_s())

    def _lost(self, name: str, why: RpcError | str) -> Lost:
        """Drop a device from the rest of this cycle."""
        self._trained.pop(name, None)
        if isinstance(why, RemoteError) and why.type == Unprepared.__name__:
            self._away.add(name)  # it was restarted
        learner, after_s = self.learners.index(name), self._after_s()
        if isinstance(why, str):
            return refused(learner, why, after_s)
        return self.failed(learner, why, after_s)

    def _left(self, name: str) -> Lost:
        """Drop a device that is not connected any more."""
        self._trained.pop(name)
        self._away.add(name)
        learner, after_s = self.learners.index(name), self._after_s()
        return Lost(learner=learner, reason="left", after_s=after_s)

    def _after_s(self) -> float:
        return time.monotonic() - self._started
