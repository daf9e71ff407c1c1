"""Messages to SuperNodes and their replies, each awaited by itself.

Flower reads a reply's arrays while they are still being sent, for hours if need be: a
node that hangs in the middle must not hold up what the others sent.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from flwr.app import Message, MessageType
from flwr.serverapp import Grid

from melisma.errors import TransportError

T = TypeVar("T")

#: Pause between two looks for a reply.
POLL_S = 0.5
#: Replies that are read at the same time.
AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Reply:
    """What a node replied, or Flower in its place."""

    to: str  #: the message's id
    node: int
    message: Message
    took_s: float  #: since the message was sent


@dataclass(frozen=True, slots=True)
class Pending:
    """A reply that is awaited."""

    node: int
    is_query: bool  #: a question, without work
    reply: asyncio.Task[Reply]


class Mailbox:
    """Flower's grid, off the event loop, with a list of replies that are due."""

    def __init__(self, grid: Grid) -> None:
        self._grid, self._pending = grid, list[Pending]()
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="flower")

    @property
    def pending(self) -> set[int]:
        """Nodes that have not replied yet."""
        return {due.node for due in self._pending}

    @property
    def queried(self) -> set[int]:
        """Nodes that have not replied to a query yet."""
        return {due.node for due in self._pending if due.is_query}

    async def nodes(self) -> set[int]:
        """Return the nodes that the SuperLink knows."""
        return set(await self._call(self._grid.get_node_ids))

    async def send(self, messages: Sequence[Message]) -> list[str]:
        """Send messages; return an id for each, empty if its node is not known."""
        if not messages:
            return []
        sent = time.monotonic()
        ids = list(await self._call(self._grid.push_messages, messages))
        if len(ids) != len(messages):
            raise TransportError(
                f"the SuperLink took {len(ids)} of {len(messages)} messages"
            )
        for id, message in zip(ids, messages, strict=True):
            if id:
                node, kind = message.metadata.dst_node_id, message.metadata.message_type
                reply = asyncio.create_task(self._reply(id, node, sent))
                self._pending.append(Pending(node, kind == MessageType.QUERY, reply))
        return ids

    def collect(self) -> list[Reply]:
        """Return the replies that arrived since the last time."""
        arrived = [due for due in self._pending if due.reply.done()]
        self._pending = [due for due in self._pending if due not in arrived]
        return [due.reply.result() for due in arrived]

    async def _reply(self, id: str, node: int, sent: float) -> Reply:
        while not (replies := list(await self._call(self._grid.pull_messages, [id]))):
            await asyncio.sleep(POLL_S)
        return Reply(id, node, replies[0], time.monotonic() - sent)

    async def _call(self, function: Callable[..., T], *args: Any) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(function, *args))
