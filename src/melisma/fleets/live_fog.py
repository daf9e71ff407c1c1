"""Devices of a fog that dialled in: slots on the real clock, samples over real lines.

A device that fails in a slot is out until the next cycle. Its samples are lost, and
what others would send to it they keep.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping

from melisma import rpc
from melisma.errors import CallTimeout, ConfigError, RpcError
from melisma.fleets.live import (
    LiveLearners,
    ServedTask,
    is_wrong,
    not_after,
    same_model,
)
from melisma.fleets.messages import SlotDone, SlotRequest, Update
from melisma.fleets.moves import Done, Move
from melisma.fleets.peers import Peers
from melisma.fleets.protocols import NOT_THERE, Lost, Report, Updates
from melisma.fleets.roster import Roster
from melisma.learning.parameters import Parameters, stacked
from melisma.learning.shards import Shard

#: How much longer than a slot its answer may take: a share of it, or seconds.
GRACE, GRACE_S = 0.25, 0.5
#: Longest that a device may take to say how it can be reached, or to take samples in.
PASS_ON_S = 5.0


class Relay:
    """Lets devices find one another, and passes on what they cannot send directly.

    Only what the plan of the slot says that one device sends to another.
    """

    def __init__(self, task: str) -> None:
        self._task, self._slot = task, 0
        self._moves: Mapping[str, Move] = {}
        self.server: Peers | None = None

    def plan(self, slot: int, moves: Mapping[str, Move]) -> None:
        """Let these samples pass, and no others."""
        self._slot, self._moves = slot, moves

    @rpc.expose(idempotent=True)
    def way(self, task: str, to: str) -> str | None:
        """Return how the caller can deliver directly to a device, if it can."""
        sender = rpc.current().caller
        self._planned(task, sender, to)
        address: str | None = self._peer(to).admit.within(PASS_ON_S)(task, sender)
        return address

    @rpc.expose(idempotent=True)
    def relay(self, task: str, slot: int, to: str, shard: Shard) -> None:
        """Deliver samples of the caller."""
        sender, (x, y) = rpc.current().caller, shard
        if slot != self._slot or len(y) > self._planned(task, sender, to):
            raise ConfigError(
                f"{len(y)} samples for {to} in slot {slot} are not in the plan"
            )
        self._peer(to).deliver.within(PASS_ON_S)(task, slot, sender, (x, y))

    def _planned(self, task: str, sender: str, to: str) -> int:
        planned = self._moves[sender].sent.get(to, 0) if sender in self._moves else 0
        if task != self._task or not planned:
            raise ConfigError(f"{sender} has nothing to send to {to} in this slot")
        return planned

    def _peer(self, name: str) -> rpc.Peer:
        assert self.server is not None
        return self.server.peers[name]


class LiveDevices(LiveLearners):
    """One fog's devices, of a roster."""

    def __init__(
        self, roster: Roster, served: ServedTask, relay: Relay, *, began_s: float = 0.0
    ) -> None:
        super().__init__(roster, served, began_s=began_s)
        self._relay, relay.server = relay, roster.server
        self._given: dict[str, int] = {}  # samples of this cycle, of those at work

    async def start(
        self, parameters: Parameters, slot: int, deadline_s: float
    ) -> list[Lost]:
        """Have everybody fetch the model; return who does not."""
        self._start, self._sent = self.begin(parameters), parameters
        self._given = dict.fromkeys(self.learners, 0)

        async def take_up(name: str) -> Lost | None:
            try:
                function = self._peer(name).take_up.within(deadline_s)
                await function(self._served.task, self.cycle, slot)
            except RpcError as error:
                return self._lost(name, error)
            return None

        answers = await asyncio.gather(*map(take_up, self.learners))
        return [lost for lost in answers if lost]

    async def slot(
        self, number: int, moves: Mapping[str, Move], slot_s: float
    ) -> dict[str, Done | Lost]:
        """Have a slot's moves carried out; returns when it is over."""
        ends = time.monotonic() + slot_s
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
            cycle=self.cycle,
            slot=number,
            ends_s=slot_s,
            skipped=move.skipped,
            collected=move.collected,
            kept=move.kept,
            sent=dict(move.sent),
            arrived=dict(move.arrived),
        )
        try:
            grace_s = max(GRACE * slot_s, GRACE_S)
            told = await self._peer(name).slot.within(slot_s + grace_s)(request)
        except RpcError as error:
            return self._lost(name, error)
        if reason := _wrong_with(told, request, move):
            return self._lost(name, reason)
        self._given[name] += told.trained
        return Done(trained=told.trained, delivered=told.delivered)

    async def finish(self, deadline_s: float) -> AsyncIterator[Updates | Lost]:
        """Yield the models of those who trained in this cycle."""
        busy = [name for name, samples in self._given.items() if samples]
        waiting = [asyncio.create_task(self._hand_in(n, deadline_s)) for n in busy]
        try:
            for arrived in asyncio.as_completed(waiting):
                yield await arrived
        finally:
            for task in waiting:
                task.cancel()

    async def _hand_in(self, name: str, deadline_s: float) -> Updates | Lost:
        try:
            function = self._peer(name).hand_in.within(deadline_s)
            update = await function(self._served.task, self.cycle)
        except RpcError as error:
            return self._lost(name, error)
        if reason := self._wrong_with_model(name, update):
            return self._lost(name, reason)
        after_s = time.monotonic() - self._start
        report = Report(
            learner=self.learners.index(name),
            downloaded_s=not_after(update.downloaded_s, after_s),
            trained_s=not_after(update.trained_s, after_s),
            uploaded_s=after_s,
            samples=update.samples,
            batches=update.batches,
            loss=update.loss,
            halted=update.halted,
        )
        return Updates([report], stacked([update.parameters]))

    def _wrong_with_model(self, name: str, update: object) -> str:
        if not isinstance(update, Update) or update.cycle != self.cycle:
            return "not an update of this cycle"
        if not same_model(update.parameters, self._sent):
            return "parameters of another model"
        if update.samples != self._given[name]:
            return f"{update.samples} samples claimed, {self._given[name]} before"
        return ""

    def _lost(self, name: str, why: RpcError | str) -> Lost:
        """A device that takes no part in the rest of this cycle."""
        self._given.pop(name, None)
        after_s = time.monotonic() - self._start
        wrong = isinstance(why, str) or is_wrong(why)
        reason = str(why) if isinstance(why, str) else f"lost: {why}"
        if isinstance(why, CallTimeout):
            reason = NOT_THERE
        return Lost(
            learner=self.learners.index(name),
            reason=reason,
            after_s=after_s,
            offence=wrong,
        )

    def _peer(self, name: str) -> rpc.Peer:
        return self._roster.server.peers[name]


def _wrong_with(told: object, request: SlotRequest, move: Move) -> str:
    """Return why an answer cannot be what was asked for, or nothing."""
    if not isinstance(told, SlotDone) or told.slot != request.slot:
        return "not an answer of this slot"
    if not 0 <= told.trained <= move.due:
        return f"{told.trained} samples claimed of {move.due} given"
    if any(move.sent.get(name) != n for name, n in told.delivered.items()):
        return "samples delivered that were not to be"
    return ""
