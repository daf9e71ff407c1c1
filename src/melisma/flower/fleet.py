"""A fleet of SuperNodes: one message a learner and cycle, by Flower's SuperLink.

Flower asks nobody in a hurry: a SuperNode looks for messages every three seconds, and
starts a process for each. What that takes is part of a learner's own delay law, which
it tells with every answer, so that the next cycle needs no question before.
"""

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import numpy as np
from flwr.app import ArrayRecord, Message, MessageType, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from melisma.errors import ConfigError, DataError
from melisma.fleets.audit import Audit
from melisma.fleets.live import ServedTask, law_of, not_after, wrong_with
from melisma.fleets.messages import TrainRequest
from melisma.fleets.protocols import NOT_THERE, Lost, Order, Report, Updates
from melisma.fleets.roster import Announcement
from melisma.flower import messages
from melisma.flower.messages import NodeStatus, Word
from melisma.flower.post import Answer, Post
from melisma.learning.parameters import Parameters, stacked
from melisma.learning.settings import Late
from melisma.maths.arrays import Ints
from melisma.system.law import DelayLaw

log = logging.getLogger("melisma.orchestrator")

#: Between two looks at who is there and what has come.
LOOK_S = 0.25
#: Longest that a cycle's start waits for one that took part in the last one.
HURRY_S = 15.0
#: What Flower's polls may add to a message: 3 s for a SuperNode to look for it, 1 s
#: to start its process, 0.5 s to see the answer. It is chance, so nobody's lateness.
GRACE_S = 4.5
#: Errors of a node that was there, and should have done better.
_WRONG = (ErrorCode.LOAD_CLIENT_APP_EXCEPTION, ErrorCode.CLIENT_APP_RAISED_EXCEPTION)
#: More shards than anybody has: what a bid without measure is taken for.
_MOST = 1 << 40


@dataclass(frozen=True, slots=True)
class Member:
    """Who takes part in a cycle."""

    node: int
    told: NodeStatus


class FlowerFleet:
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
        self._post, self._announcement, self._served = Post(grid), announcement, served
        self._least, self._deadline_s = nodes, deadline_s
        self._late, self._audit = late, audit
        self._began = time.monotonic()
        self._words: dict[int, Word] = {}  # for each node that has answered
        self._told: dict[int, NodeStatus] = {}  # what each can do in the next cycle
        self._members: dict[str, Member] = {}
        self._expelled: set[str] = set()
        self._complaints: dict[int, str] = {}

    def now_s(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    def expel(self, name: str, reason: str) -> None:
        """Give a learner no more work; only who runs the SuperLink can keep it out."""
        log.warning("%s is sent away: %s", name, reason)
        self._expelled.add(name)

    async def ready(self) -> None:
        """Everybody who has told what it can do; wait for enough at the start.

        A telling is for one cycle. It comes with the work of the last one, so only who
        had none is asked; newcomers are asked while the others work.
        """
        began, before = time.monotonic(), {one.node for one in self._members.values()}
        while True:
            there, _ = await self._look()
            able = self._able(there)
            late = time.monotonic() - began > HURRY_S
            awaited = self._post.asked & before & there
            if len(able) >= self._least and (late or not awaited):
                break
            await asyncio.sleep(LOOK_S)
        self._least = 1
        self._members = able
        for member in able.values():
            del self._told[member.node]
        self.learners = sorted(able)
        own = [able[name].told.samples for name in self.learners]
        self.own_samples = [n for n in own if n is not None] or None

    async def law(self) -> DelayLaw:
        """The learners' delay laws, Flower's part in them, as each told its own."""
        told = [self._members[name].told.speeds for name in self.learners]
        return law_of([speeds for speeds in told if speeds is not None])

    async def bids(self, *, deadline_s: float, steps: int, shard: int) -> Ints:
        """The shards that each learner said it would take, by the task's deadline."""
        bids = [self._members[name].told.bid or 0 for name in self.learners]
        return np.array([min(max(bid, 0), _MOST) for bid in bids], dtype=np.int64)

    async def train(
        self, orders: Sequence[Order], parameters: Parameters, deadline_s: float
    ) -> AsyncIterator[Updates | Lost]:
        """Send everybody its work; yield what comes back until the deadline.

        What comes up to GRACE_S later counts too; its time is on record.
        """
        self._served.renew(self._served.cycle + 1, parameters)
        began = time.monotonic()
        wait = math.inf if self._late == Late.WAIT else deadline_s + GRACE_S
        waiting: dict[str, tuple[Order, TrainRequest]] = {}
        for message, order, request in await self._order(orders, deadline_s):
            if message:
                waiting[message] = order, request
            else:
                yield Lost(
                    learner=order.learner,
                    reason="lost: the SuperLink does not know its node any more",
                    after_s=time.monotonic() - began,
                )
        while waiting:
            _, arrived = await self._look()
            for answer in arrived:
                if given := waiting.pop(answer.to, None):
                    after_s = time.monotonic() - began
                    yield await self._outcome(*given, answer.message, after_s)
            if time.monotonic() - began > wait:
                break
            await asyncio.sleep(LOOK_S)
        for order, _ in waiting.values():
            after_s = time.monotonic() - began
            yield Lost(learner=order.learner, reason=NOT_THERE, after_s=after_s)

    async def _order(
        self, orders: Sequence[Order], deadline_s: float
    ) -> list[tuple[str, Order, TrainRequest]]:
        """Send learners their requests; return those, and the id of each message."""
        model = messages.arrays_of(self._served.parameters)
        out, given = [], []
        for order in orders:
            if not order.samples:
                continue
            request = self._request_of(order, deadline_s)
            node = self._members[self.learners[order.learner]].node
            content = self._content(node, model)
            content[messages.REQUEST] = messages.config_of(request)
            if request.keys:
                content[messages.SHARDS] = self._shards(request.keys)
            out.append(self._message(content, node, MessageType.TRAIN))
            given.append((order, request))
        ids = await self._post.send(out)
        return [(id, *request) for id, request in zip(ids, given, strict=True)]

    def _request_of(self, order: Order, deadline_s: float) -> TrainRequest:
        return TrainRequest(
            task=self._served.task,
            cycle=self._served.cycle,
            keys=[] if order.rows is None else self._served.shelf.keys(order.rows),
            samples=order.samples,
            steps=order.steps,
            deadline_s=deadline_s,
            late=self._late.value,
        )

    async def _outcome(
        self, order: Order, request: TrainRequest, reply: Message, after_s: float
    ) -> Updates | Lost:
        """What became of a request."""
        if reply.has_error():
            wrong = reply.error.code in _WRONG
            return Lost(
                learner=order.learner,
                reason=f"{'failed' if wrong else 'lost'}: {reply.error.reason}",
                after_s=after_s,
                offence=wrong,
            )
        distance, sent = None, self._served.parameters
        try:
            update = messages.update_of(reply.content)
            reason = wrong_with(update, request, sent)
            if not reason and self._audit:
                name = self.learners[order.learner]
                reason, distance = await self._audit(name, request, update, sent)
        except DataError as error:
            reason = str(error)
        if reason:
            return Lost(
                learner=order.learner,
                reason=reason,
                after_s=after_s,
                offence=True,
                distance=distance,
            )
        report = Report(
            learner=order.learner,
            downloaded_s=_since_sent(update.downloaded_s, update.trained_s, after_s),
            trained_s=_since_sent(update.trained_s, update.trained_s, after_s),
            uploaded_s=after_s,
            samples=update.samples,
            batches=update.batches,
            loss=update.loss,
            halted=update.halted,
            distance=distance,
        )
        return Updates([report], stacked([update.parameters]))

    def _able(self, there: set[int]) -> dict[str, Member]:
        """Who can take part, by name; of two with one name, who told it first."""
        able: dict[str, Member] = {}
        for node, told in self._told.items():
            if node not in there or told.name in self._expelled:
                continue
            if able.setdefault(told.name, Member(node, told)).node != node:
                self._complain(node, f"is called {told.name!r}, as another node is")
        return able

    async def _look(self) -> tuple[set[int], list[Answer]]:
        """See who is there and what has come; ask who has nothing to do."""
        there = await self._post.nodes()
        await self._query(there)
        answers = self._post.collect()
        for answer in answers:
            self._hear(answer)
        return there, answers

    async def _query(self, there: set[int]) -> None:
        """Ask those who neither told what they can do nor owe an answer."""
        model, out = messages.arrays_of(self._served.parameters), []
        for node in sorted(there - self._post.owing - set(self._told)):
            content = self._content(node, model)
            if node in self._words and not self._announcement.spec.federated:
                content[messages.SHARDS] = self._shards(self._announcement.benchmark)
            out.append(self._message(content, node, MessageType.QUERY))
        await self._post.send(out)

    def _content(self, node: int, model: ArrayRecord) -> RecordDict:
        word = self._words.get(node, Word(deadline_s=self._deadline_s))
        return RecordDict(
            {
                messages.SPEC: messages.config_of(self._announcement.spec),
                messages.WORD: messages.config_of(word),
                messages.PARAMETERS: model,
            }
        )

    def _shards(self, keys: Sequence[str]) -> ArrayRecord:
        return messages.shards_in(self._served.shelf.take(keys))

    def _message(self, content: RecordDict, node: int, kind: str) -> Message:
        # No time to live of our own: Flower holds it against the node's time of day.
        cycle = str(self._served.cycle)
        return Message(content, dst_node_id=node, message_type=kind, group_id=cycle)

    def _hear(self, answer: Answer) -> None:
        """Note what a node says of itself."""
        node, reply = answer.node, answer.message
        if reply.has_error():
            self._complain(node, f"does not take part: {reply.error.reason}")
            self._words.pop(node, None)
            return
        try:
            told = self._checked(messages.status_of(reply.content))
        except (DataError, ConfigError) as error:
            self._complain(node, f"does not take part: {error}")
            return
        self._words[node] = Word(
            deadline_s=self._deadline_s, previous=answer.to, previous_s=answer.took_s
        )
        if (told.bid if self._announcement.spec.private else told.speeds) is not None:
            self._told[node] = told

    def _checked(self, told: NodeStatus) -> NodeStatus:
        """Return what a node told; DataError or ConfigError if that cannot be."""
        if not (told.name and told.name.isprintable()):
            raise DataError(f"{told.name!r} is no name")
        if self._announcement.spec.federated and not (told.samples or 0) > 0:
            raise DataError(f"{told.samples} samples of its own, in federated mode")
        if told.speeds is not None:
            law_of([told.speeds])
        return told

    def _complain(self, node: int, what: str) -> None:
        """Say it once."""
        if self._complaints.get(node) != what:
            log.warning("node %x %s", node, what)
        self._complaints[node] = what


def _since_sent(told_s: float | None, trained_s: float | None, after_s: float) -> float:
    """Return when something happened, by what the node told since its message came.

    The node cannot know how long that was under way: as long as its answer, we say.
    """
    if told_s is None or trained_s is None:
        return after_s
    return not_after((after_s - trained_s) / 2 + told_s, after_s)
