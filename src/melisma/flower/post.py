"""Messages to SuperNodes and what they answer, each waited for by itself.

Flower reads an answer's arrays while they are still being sent, for hours if need be:
a node that hangs in the middle must not hold up what the others sent.
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

#: Between two looks at whether an answer has come.
POLL_S = 0.5
#: Answers that can be read at the same time.
AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Answer:
    """What a node answered, or Flower in its place."""

    to: str  #: the message's id
    node: int
    message: Message
    took_s: float  #: since the message was sent


@dataclass(frozen=True, slots=True)
class Owed:
    """An answer that is waited for."""

    node: int
    query: bool  #: no work
    answer: asyncio.Task[Answer]


class Post:
    """Flower's grid, off the event loop, with an eye on who owes an answer."""

    def __init__(self, grid: Grid) -> None:
        self._grid, self._owed = grid, list[Owed]()
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="flower")

    @property
    def owing(self) -> set[int]:
        """Nodes that have not answered yet."""
        return {owed.node for owed in self._owed}

    @property
    def asked(self) -> set[int]:
        """Nodes that have not answered a query yet."""
        return {owed.node for owed in self._owed if owed.query}

    async def nodes(self) -> set[int]:
        """Return who is there, as far as the SuperLink knows."""
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
                answer = asyncio.create_task(self._answer(id, node, sent))
                self._owed.append(Owed(node, kind == MessageType.QUERY, answer))
        return ids

    def collect(self) -> list[Answer]:
        """Return what has come since, for whatever it was asked."""
        come = [owed for owed in self._owed if owed.answer.done()]
        self._owed = [owed for owed in self._owed if owed not in come]
        return [owed.answer.result() for owed in come]

    async def _answer(self, id: str, node: int, sent: float) -> Answer:
        while not (replies := list(await self._call(self._grid.pull_messages, [id]))):
            await asyncio.sleep(POLL_S)
        return Answer(id, node, replies[0], time.monotonic() - sent)

    async def _call(self, function: Callable[..., T], *args: Any) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(function, *args))
