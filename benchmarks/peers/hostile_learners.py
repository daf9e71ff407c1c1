"""Learners that attack an orchestrator's memory, many in a process.

Each knows the protocol, has a token, and does one thing over and over, as often as it
is let in:

    asks    for the same shard 20,000 times in one call, and for shards in as many calls
            at a time as are allowed; it reads the answers slowly
    halves  sends half of a call and of each answer that it is asked for, as large as
            may be, and holds the rest back
    idles   asks for as much as it may, and reads nothing
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import typer

from melisma.errors import RpcError
from melisma.launch.serve import CALLS
from melisma.learning import data
from melisma.learning.shards import ShardStore
from melisma.rpc import frames
from melisma.rpc.address import Address
from melisma.rpc.certificates import client_context
from melisma.rpc.dialer import WebSocketDial
from melisma.rpc.metrics import Metrics
from melisma.rpc.transport import Closed, Transport
from melisma.rpc.values import pack_call

TIMES = 20_000  #: that one call asks for a shard
PING_S = 2.0
AGAIN_S = 1.0  #: between two connections
ROOM_BYTES = 1 << 16  #: below the limit on a message, for what frames take
SLOW_S = 0.02  #: between two messages that are read
#: What the orchestrator may call here.
FUNCTIONS = {"prepare": True, "speeds": True, "train": False}


class Attacker:
    """Makes one connection after another, each under another name if that is allowed.

    A token that is bound to a name allows it not.
    """

    def __init__(self, join: str, name: str, task: str, keys: Sequence[str]) -> None:
        self._address, self._name, self._task, self._keys = (
            Address.of(join), name, task, keys,
        )  # fmt: skip
        self.done: Counter[str] = Counter()
        self._id = 0

    async def attack(self, how: str) -> None:
        """Attack until cancelled."""
        way: Callable[[Transport], Coroutine[Any, Any, None]] = getattr(self, how)
        dial = WebSocketDial(
            self._address, client_context(pinned=True), Metrics(), silence_s=60.0
        )
        try:
            while True:
                try:
                    transport = await dial()
                    try:
                        await self._greet(transport)
                        await way(transport)
                    finally:
                        await transport.close()
                except (Closed, RpcError, TimeoutError):
                    pass
                await asyncio.sleep(AGAIN_S)
        finally:
            await dial.close()

    async def _greet(self, transport: Transport) -> None:
        name = self._name
        if name.endswith("-"):
            name += str(self.done["connections"])
        hello = frames.Hello(
            protocol=frames.PROTOCOL,
            library="0",
            name=name,
            session=b"",
            received=0,
            message_bytes=1 << 30,
            functions=FUNCTIONS,
            ping_s=PING_S,
        )
        await transport.send(frames.encode(hello))
        reply = frames.decode(await transport.receive())
        if type(reply) is not frames.Hello:
            raise Closed
        self.done["connections"] += 1
        self._most_bytes = reply.message_bytes

    async def asks(self, transport: Transport) -> None:
        """Ask for much, and read slowly."""
        await self._call(transport, "shards", self._task, [self._keys[0]] * TIMES)
        self.done["shards asked for"] += TIMES
        for _ in range(CALLS - 1):
            await self._call(transport, "shards", self._task, list(self._keys))
            self.done["shards asked for"] += len(self._keys)
        while True:
            await transport.receive()
            await transport.send(frames.encode(frames.Ack(0)))
            await asyncio.sleep(SLOW_S)

    async def halves(self, transport: Transport) -> None:
        """Hold back the second half of everything."""
        size = self._most_bytes // 2 - ROOM_BYTES
        self._id += 1
        call = frames.Call(
            self._id, "shards", None, self._id, (8, size), frames.BODY_IN_TRANSFER
        )
        await self._begin(transport, call, size)
        reading = asyncio.create_task(self._answer_by_half(transport, size))
        try:
            await self._stay(transport)
        finally:
            reading.cancel()

    async def _answer_by_half(self, transport: Transport, size: int) -> None:
        """Answer the first call by half; two halves are all that is allowed."""
        frame: Any = None
        while type(frame) is not frames.Call:
            frame = frames.decode(await transport.receive())
        self._id += 1
        answer = frames.Result(frame.id, self._id, (size,), frames.wrap(b"\xc0"))
        await self._begin(transport, answer, size)

    async def _begin(self, transport: Transport, frame: Any, size: int) -> None:
        await transport.send(frames.encode(frame))
        self.done["half messages"] += 1
        chunk = frames.chunk_prefix(self._id) + bytes(frames.CHUNK_BYTES)
        for _ in range(size // 2 // frames.CHUNK_BYTES):
            await transport.send(chunk)
            self.done["bytes of half messages"] += frames.CHUNK_BYTES

    async def idles(self, transport: Transport) -> None:
        """Ask for all that one may, and read nothing."""
        for _ in range(CALLS):
            await self._call(transport, "shards", self._task, list(self._keys))
            self.done["downloads not read"] += 1
        await self._stay(transport)

    async def _stay(self, transport: Transport) -> None:
        while True:
            await transport.send(frames.encode(frames.Ack(0)))
            await asyncio.sleep(PING_S)

    async def _call(self, transport: Transport, function: str, *args: Any) -> None:
        body, _ = pack_call(args, {})
        self._id += 1
        sizes, wrapped = (len(body),), frames.BODY_IN_TRANSFER
        call = frames.Call(self._id, function, None, self._id, sizes, wrapped)
        await transport.send(frames.encode(call))
        for first in range(0, len(body), frames.CHUNK_BYTES):
            part = body[first : first + frames.CHUNK_BYTES]
            await transport.send(frames.chunk_prefix(self._id) + part)


WAYS = ("asks", "halves", "idles")


def main(invited: Path, task: str, shard: int, begun: Path, report: Path) -> None:
    """Be one attacker for each name and join string, until standard input ends.

    ``begun`` is there once all have been let in; names that end in "-" are completed.
    """
    joins: dict[str, str] = json.loads(invited.read_text())
    keys = ShardStore(data.load("mnist-5k").train, shard).first(8)
    attackers = [Attacker(join, name, task, keys) for name, join in joins.items()]
    asyncio.run(_all(attackers, begun))
    done = sum((one.done for one in attackers), Counter())
    report.write_text(json.dumps(done))


async def _all(attackers: Sequence[Attacker], begun: Path) -> None:
    tasks = [
        asyncio.create_task(attacker.attack(WAYS[k // 3 % 3]))
        for k, attacker in enumerate(attackers)
    ]
    over = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    while not over.done() and not all(one.done for one in attackers):
        await asyncio.sleep(0.1)
    begun.touch()
    await over
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    for error in ended:  # what is not foreseen above is a mistake here
        if isinstance(error, Exception):
            raise error


if __name__ == "__main__":
    typer.run(main)
