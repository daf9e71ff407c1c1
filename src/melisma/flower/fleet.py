"""A crew of SuperNodes: one message a learner and cycle, by Flower's SuperLink.

Flower is slow to deliver: a SuperNode looks for messages every three seconds, and
starts a process for each. That time is part of a learner's own delay law, which it
reports with every reply, so that the next cycle needs no question before.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from flwr.app import ArrayRecord, Message, MessageType, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from melisma.errors import DataError, readable
from melisma.fleets.audit import Audit
from melisma.fleets.judge import (
    believed,
    clipped_bid,
    judged,
    refused,
    wrong_bid,
    wrong_samples,
    wrong_speeds,
)
from melisma.fleets.live import LONGEST_WAIT
from melisma.fleets.messages import ShortOfMemory, TrainRequest, Update
from melisma.fleets.protocols import NOT_THERE, Complaint, Lost, Order, Updates
from melisma.fleets.roster import Announcement, law_of
from melisma.fleets.served import ServedTask
from melisma.flower import messages
from melisma.flower.mailbox import Mailbox, Reply
from melisma.flower.messages import NodeStatus, Timing
from melisma.learning.parameters import Parameters
from melisma.learning.settings import Late
from melisma.maths.arrays import Ints
from melisma.system.law import DelayLaw

log = logging.getLogger("melisma.orchestrator")

#: Pause between two looks at nodes and replies.
LOOK_S = 0.25
#: Longest that the start of a cycle waits for a node that took part in the last one.
HURRY_S = 15.0
#: What Flower's polls may add to a message: 3 s for a SuperNode to look for it, 1 s
#: to start its process, 0.5 s to see the reply. It is chance, so nobody's lateness.
GRACE_S = 4.5
#: Errors for which the node is to blame.
BLAMED = (ErrorCode.LOAD_CLIENT_APP_EXCEPTION, ErrorCode.CLIENT_APP_RAISED_EXCEPTION)


@dataclass(frozen=True, slots=True)
class Member:
    """A learner that takes part in a cycle."""

    node: int
    status: NodeStatus


class FlowerLearners:
    """The learners of one task, each on its SuperNode; ``nodes`` to start with."""

    def __init__(
        self,
        grid: Grid,
        announcement: Announcement,
        served: ServedTask,
        *,
        nodes: int,
        deadline_s: float,
        late: Late = Late.HALT,
        audit: Audit | None = None,
    ) -> None:
        self.learners: list[str] = []
        self.own_samples: list[int] | None = None
        self._mailbox, self._served = Mailbox(grid), served
        self._spec, self._benchmark = announcement.spec, announcement.benchmark
        self._least, self._deadline_s = nodes, deadline_s
        self._late, self._audit = late, audit
        self._began = time.monotonic()
        self._timings: dict[int, Timing] = {}  # of each node that has replied
        self._statuses: dict[int, NodeStatus] = {}  # for the next cycle
        self._members: dict[str, Member] = {}
        self._expelled: set[str] = set()
        self._complaints: dict[int, str] = {}
        self._names: dict[int, str] = {}  # under which nodes took part
        self._offences: list[Complaint] = []  # not recorded yet

    def now_s(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    def take_complaints(self) -> list[Complaint]:
        """Return who reported a wrong status since the last call, and how."""
        taken, self._offences = self._offences, []
        return taken

    def expel(self, name: str, reason: str) -> None:
        """Give a learner no more work; only the SuperLink's owner can keep it out."""
        log.warning("%s is expelled: %s", name, reason)
        self._expelled.add(name)

    async def ready(self) -> None:
        """Take all learners that reported their status; wait for enough at the start.

        A status is for one cycle. It comes with the work of the last one, so only nodes
        that had none are queried; newcomers are queried while the others work.
        """
        began, before = time.monotonic(), {m.node for m in self._members.values()}
        while True:
            there, _ = await self._look()
            able = self._able(there)
            late = time.monotonic() - began > HURRY_S
            awaited = self._mailbox.queried & before & there
            if len(able) >= self._least and (late or not awaited):
                break
            await asyncio.sleep(LOOK_S)
        self._least = 1
        self._members = able
        for member in able.values():
            del self._statuses[member.node]
            self._names[member.node] = member.status.name
        self.learners = sorted(able)
        own = [able[name].status.samples for name in self.learners]
        self.own_samples = [n for n in own if n is not None] or None

    async def law(self) -> DelayLaw:
        """The delay laws that the learners reported, with Flower's part in them."""
        speeds = [self._members[name].status.speeds for name in self.learners]
        batch = self._spec.training.batch
        return law_of([believed(own, batch) for own in speeds if own is not None])

    async def bids(self, *, deadline_s: float, steps: int, shard: int) -> Ints:
        """The shards that each learner bid for, by the task's deadline."""
        bids = [self._members[name].status.bid or 0 for name in self.learners]
        return np.array([clipped_bid(bid) for bid in bids], dtype=np.int64)

    async def train(
        self, orders: Sequence[Order], parameters: Parameters, deadline_s: float
    ) -> AsyncIterator[Updates | Lost]:
        """Give learners their orders; yield what comes back until the deadline.

        An update up to GRACE_S later counts too; its time is on record.
        """
        self._served.renew(self._served.cycle + 1, parameters)
        began = time.monotonic()
        patience = LONGEST_WAIT if self._late.lasts else 1
        wait_s = deadline_s * patience + GRACE_S
        waiting: dict[str, tuple[Order, TrainRequest]] = {}
        for id, order, request in await self._send(orders, deadline_s):
            if id:
                waiting[id] = order, request
            else:
                yield Lost(
                    learner=order.learner,
                    reason="lost: the SuperLink does not know its node any more",
                    after_s=time.monotonic() - began,
                )
        while waiting:
            _, replies = await self._look()
            for reply in replies:
                if work := waiting.pop(reply.to, None):
                    after_s = time.monotonic() - began
                    yield await self._outcome(*work, reply.message, after_s)
            if time.monotonic() - began > wait_s:
                break
            await asyncio.sleep(LOOK_S)
        for order, _ in waiting.values():
            after_s = time.monotonic() - began
            yield Lost(learner=order.learner, reason=NOT_THERE, after_s=after_s)

    async def _send(
        self, orders: Sequence[Order], deadline_s: float
    ) -> list[tuple[str, Order, TrainRequest]]:
        """Send learners their requests; return those, and the id of each message."""
        model = messages.arrays_of(self._served.parameters)
        outgoing, work = [], []
        for order in orders:
            if not order.samples:
                continue
            request = self._served.request(order, deadline_s, self._late)
            node = self._members[self.learners[order.learner]].node
            content = self._content(node, model)
            content[messages.REQUEST] = messages.config_of(request)
            if request.keys:
                content[messages.SHARDS] = self._shards(request.keys)
            outgoing.append(self._message(content, node, MessageType.TRAIN))
            work.append((order, request))
        ids = await self._mailbox.send(outgoing)
        return [(id, *given) for id, given in zip(ids, work, strict=True)]

    async def _outcome(
        self, order: Order, request: TrainRequest, reply: Message, after_s: float
    ) -> Updates | Lost:
        """Judge the reply to a request."""
        if reply.has_error():
            short = ShortOfMemory.__name__ in (reply.error.reason or "")
            blamed = reply.error.code in BLAMED and not short
            reason = f"{'failed' if blamed else 'lost'}: {reply.error.reason}"
            return Lost(
                learner=order.learner,
                reason=readable(reason),
                after_s=after_s,
                offence=blamed,
            )
        try:
            update = since_sent(messages.update_of(reply.content), after_s)
        except DataError as error:
            return refused(order.learner, str(error), after_s)
        return await judged(
            update,
            request,
            learner=order.learner,
            name=self.learners[order.learner],
            sent=self._served.parameters,
            after_s=after_s,
            audit=self._audit,
        )

    def _able(self, there: set[int]) -> dict[str, Member]:
        """Return who can take part, by name; of two with one name, the first."""
        able: dict[str, Member] = {}
        for node, status in self._statuses.items():
            if node not in there or status.name in self._expelled:
                continue
            if able.setdefault(status.name, Member(node, status)).node != node:
                self._complain(node, f"is called {status.name!r}, as another node is")
        return able

    async def _look(self) -> tuple[set[int], list[Reply]]:
        """Return nodes and new replies; query the nodes that have nothing to do."""
        there = await self._mailbox.nodes()
        await self._query(there)
        replies = self._mailbox.collect()
        for reply in replies:
            self._note(reply)
        return there, replies

    async def _query(self, there: set[int]) -> None:
        """Query nodes that neither reported a status nor are to reply."""
        model, outgoing = messages.arrays_of(self._served.parameters), []
        for node in sorted(there - self._mailbox.pending - set(self._statuses)):
            content = self._content(node, model)
            if node in self._timings and not self._spec.federated:
                content[messages.SHARDS] = self._shards(self._benchmark)
            outgoing.append(self._message(content, node, MessageType.QUERY))
        await self._mailbox.send(outgoing)

    def _content(self, node: int, model: ArrayRecord) -> RecordDict:
        timing = self._timings.get(node, Timing(deadline_s=self._deadline_s))
        content = RecordDict(
            {
                messages.SPEC: messages.config_of(self._spec),
                messages.TIMING: messages.config_of(timing),
                messages.PARAMETERS: model,
            }
        )
        status = self._statuses.get(node)
        if status and not status.complete:
            content[messages.FROZEN] = messages.arrays_of(self._served.frozen)
        return content

    def _shards(self, keys: Sequence[str]) -> ArrayRecord:
        return messages.shards_in(self._served.store.take(keys))

    def _message(self, content: RecordDict, node: int, kind: str) -> Message:
        # No time to live of our own: Flower holds it against the node's time of day.
        cycle = str(self._served.cycle)
        return Message(content, dst_node_id=node, message_type=kind, group_id=cycle)

    def _note(self, reply: Reply) -> None:
        """Keep the status that comes with a reply."""
        node, message = reply.node, reply.message
        if message.has_error():
            self._complain(node, f"does not take part: {message.error.reason}")
            self._timings.pop(node, None)
            return
        try:
            status = messages.struct_of(message.content, messages.STATUS, NodeStatus)
            reason = self._wrong_status(status)
        except DataError as error:
            reason = str(error)
        if reason:
            self._complain(node, f"does not take part: {reason}")
            if node in self._names:  # a name that it says now may be another's
                self._offences.append(Complaint(self._names[node], readable(reason)))
            return
        self._timings[node] = Timing(
            deadline_s=self._deadline_s, previous=reply.to, previous_s=reply.took_s
        )
        if (status.bid if self._spec.private else status.speeds) is not None:
            self._statuses[node] = status

    def _wrong_status(self, status: NodeStatus) -> str:
        """Return why a status cannot be true, or nothing."""
        if not (0 < len(status.name) <= 64 and status.name.isprintable()):
            return f"{status.name!r} is no name"
        if reason := wrong_samples(status.samples, self._spec):
            return reason
        if status.bid is not None and (reason := wrong_bid(status.bid)):
            return reason
        return "" if status.speeds is None else wrong_speeds(status.speeds)

    def _complain(self, node: int, complaint: str) -> None:
        """Log a complaint about a node, unless it was the last one logged."""
        complaint = readable(complaint)
        if self._complaints.get(node) != complaint:
            log.warning("node %x %s", node, complaint)
        self._complaints[node] = complaint


def since_sent(update: Update, after_s: float) -> Update:
    """Return an update with its times counted from when its message was sent.

    The node counts from the message's arrival, and cannot know how long its transit
    was: it is taken to be as long as the reply's.
    """
    if update.downloaded_s is None or update.trained_s is None:
        return msgspec.structs.replace(update, downloaded_s=None, trained_s=None)
    transit_s = (after_s - update.trained_s) / 2
    return msgspec.structs.replace(
        update,
        downloaded_s=transit_s + update.downloaded_s,
        trained_s=transit_s + update.trained_s,
    )
