"""Protocol violations: nothing runs, no state remains, other peers are served."""

import asyncio
import contextlib
import os
import random
import socket
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from melisma import rpc
from melisma.errors import RemoteError, TransportError
from melisma.rpc import frames, hub
from melisma.rpc.session import Session
from melisma.rpc.transport import Closed, MemoryTransport, Transport, memory_transports
from melisma.rpc.values import pack_call

LIMITS = rpc.Limits(message_bytes=1 << 20, calls=8, grace_s=0.001)
encode = msgspec.msgpack.encode
Ext = msgspec.msgpack.Ext
ran: list[str] = []


@rpc.expose
def echo(value: Any = None) -> Any:
    ran.append("echo")
    return value


@rpc.expose
async def count(most: int) -> AsyncIterator[int]:
    for i in range(most):
        yield i


class Safe:
    secret = "of the server"

    @rpc.expose
    def open_door(self) -> None:
        ran.append("open_door")

    def _private(self) -> None:
        ran.append("_private")

    def unmarked(self) -> None:
        ran.append("unmarked")


def silent(_: str) -> None:
    pass


def hello(**changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "protocol": frames.PROTOCOL,
        "library": "0",
        "name": "offender",
        "session": b"",
        "received": 0,
        "message_bytes": 1 << 20,
        "functions": {},
        "ping_s": 5.0,
    }
    return frames.encode(frames.Hello(**(fields | changes)))


def call(body: bytes, /, function: str = "echo", id: int = 1, **changes: Any) -> bytes:
    fields: dict[str, Any] = {"within_s": None, "transfer": 0, "sizes": ()}
    fields |= {"id": id, "function": function, "body": frames.wrap(body)} | changes
    return frames.encode(frames.Call(**fields))


def announced(transfer: int, *sizes: int, id: int = 1, function: str = "echo") -> bytes:
    body = frames.BODY_IN_TRANSFER
    return call(b"", function, id, transfer=transfer, sizes=sizes, body=body)


def with_argument(value: bytes) -> bytes:
    """Return the body of a call with one argument, given as msgpack."""
    return b"\x92\x91" + value + b"\x80"


NOTHING = pack_call((), {})[0]


def frames_in(message: bytes) -> list[Any]:
    """Return the frames of a message; none for a chunk."""
    if message[0] == frames.CHUNK:
        return []
    if message[0] == frames.BATCH:
        return [frames.decode(frame) for frame in frames.split_batch(message)]
    return [frames.decode(message)]


class Wire:
    """A raw transport to a server, and the frames received over it so far."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.answers: list[Any] = []
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        with contextlib.suppress(Closed):
            while True:
                self.answers += frames_in(await self._transport.receive())

    async def send(self, messages: Sequence[bytes]) -> None:
        """Send until the server closes the connection."""
        sending = asyncio.ensure_future(self._send(messages))
        await asyncio.wait({sending, self._reading}, return_when="FIRST_COMPLETED")
        sending.cancel()
        with contextlib.suppress(asyncio.CancelledError, Closed):
            await sending

    async def _send(self, messages: Sequence[bytes]) -> None:
        for message in messages:
            await self._transport.send(message)

    async def answer(self, kind: type[Any]) -> Any:
        """Wait for an answer of that kind; fail if the server closes before."""
        while not (found := [a for a in self.answers if type(a) is kind]):
            assert not self._reading.done(), f"only {self.answers}"
            await asyncio.sleep(0.001)
        return found[0]

    def is_closed(self) -> bool:
        return self._reading.done()

    async def closed(self) -> None:
        """Wait until the server closes."""
        await self._reading

    async def hang_up(self) -> None:
        await self._transport.close()
        await self._reading


@dataclass
class Scene:
    """A server, an innocent peer of it, and a way to dial it by hand."""

    server: rpc.Server
    innocent: rpc.Connection
    dial: Callable[[], Awaitable[Transport]]
    accepting: list[asyncio.Future[None]] = field(default_factory=list)

    async def offend(
        self, messages: Sequence[bytes], first: bytes | None = None
    ) -> Wire:
        wire = Wire(await self.dial())
        await wire.send([hello() if first is None else first, *messages])
        return wire

    async def settle(self) -> None:
        """Wait until only the innocent is there; check that it is served."""
        await asyncio.gather(*self.accepting)
        assert await self.innocent.echo(7) == 7
        while set(self.server._hub._sessions) != {"innocent"}:
            await asyncio.sleep(0.001)
        assert set(self.server._hub._owners) == {"innocent"}
        assert await self.innocent.echo(8) == 8

    def session(self) -> Session | None:
        return self.server._hub._sessions.get("offender")


@asynccontextmanager
async def in_memory() -> AsyncIterator[Scene]:
    server = await rpc.aserve(echo, count, Safe(), port=None, limits=LIMITS, say=silent)
    innocent = await rpc.aconnect(server, name="innocent")

    async def dial() -> Transport:
        near, far = memory_transports()
        scene.accepting.append(asyncio.ensure_future(server._hub.accept(far)))
        return near

    scene = Scene(server, innocent, dial)
    async with asyncio.timeout(60), server, innocent:
        yield scene


class RawSocket:
    """A WebSocket as a transport, without any of our own code."""

    def __init__(self, end: aiohttp.ClientWebSocketResponse) -> None:
        self.end = end

    async def send(self, frame: bytes) -> None:
        try:
            await self.end.send_bytes(frame)
        except (ConnectionError, RuntimeError):
            raise Closed from None

    def start_send(self, frame: bytes) -> None:
        raise NotImplementedError

    async def receive(self) -> bytes:
        message = await self.end.receive()
        if message.type is not aiohttp.WSMsgType.BINARY:
            raise Closed(str(message))
        data: bytes = message.data
        return data

    async def close(self) -> None:
        await self.end.close()


@asynccontextmanager
async def on_a_port(tmp_path: Path) -> AsyncIterator[Scene]:
    server = await rpc.aserve(
        echo, count, Safe(), port=0, limits=LIMITS, folder=tmp_path, say=silent
    )
    innocent = await rpc.aconnect(server.address, name="innocent")

    async def dial() -> Transport:
        url = f"http://{server.address}/rpc"
        return RawSocket(await session.ws_connect(url, compress=0))

    async with (
        asyncio.timeout(60),
        aiohttp.ClientSession() as session,
        server,
        innocent,
    ):
        yield Scene(server, innocent, dial)


# What ends the session, and what the server says about it

OVER = (1 << 20) + 1
ENDINGS: dict[str, tuple[list[bytes], str]] = {
    "garbage": ([b"\x00\x01\x02"], "cannot be decoded"),
    "an empty message": ([b""], "cannot be decoded"),
    "an unknown kind of frame": ([encode([77, 1])], "cannot be decoded"),
    "a frame with a field too few": ([encode([5, 1])], "cannot be decoded"),
    "a truncated frame": ([call(NOTHING)[:-2]], "cannot be decoded"),
    "a nested array": ([b"\x91" * 200_000 + b"\xc0"], "cannot be decoded"),
    "an array said to be huge": ([b"\xdd\xff\xff\xff\xff"], "cannot be decoded"),
    "a map said to be huge": ([b"\xdf\xff\xff\xff\xff"], "cannot be decoded"),
    "a second Hello": ([hello()], "Hello after the handshake"),
    "a refusal": ([frames.encode(frames.Refused("no"))], "Refused after the handshake"),
    "an Ack of the future": ([frames.encode(frames.Ack(99))], "never sent"),
    "a chunk too short": ([b"\xc1\x00"], "no room for its prefix"),
    "a chunk out of nowhere": ([frames.chunk_prefix(5) + b"x"], "not announced"),
    "too long a transfer": (
        [announced(1, 10), frames.chunk_prefix(1) + b"x" * 11],
        "longer than announced",
    ),
    "a transfer over the limit": ([announced(1, OVER)], "bytes announced"),
    "a sum over the limit": (
        [announced(1, OVER // 2), announced(2, OVER // 2 + 9, id=2)],
        "bytes announced",
    ),
    "parts over the limit": ([announced(1, OVER // 2, OVER)], "bytes announced"),
    "an immense transfer": ([announced(1, 2**63, 2**63)], "bytes announced"),
    "a negative size": ([announced(1, -5, 10)], "bytes announced"),
    "sizes of nothing": ([announced(1, 0, 0)], "bytes announced"),
    "a transfer announced twice": (
        [announced(1, 10), announced(1, 10, id=2)],
        "announced twice",
    ),
    "a call made twice": ([announced(1, 10), announced(2, 10)], "two calls with id"),
    "a time limit that is no number": (
        [call(NOTHING, within_s=float("nan"))],
        "is not a number",
    ),
    "a batch cut within a length": ([b"\xc2\x01\0"], "within a length"),
    "a batch cut within a frame": ([b"\xc2\xff\xff\xff\xff\x92"], "within a frame"),
    "a batch of nothings": ([frames.batch([b"", b""])], "cannot be decoded"),
    "a batch in a batch": ([frames.batch([frames.batch([])])], "cannot be decoded"),
    "a chunk in a batch": (
        [frames.batch([frames.chunk_prefix(1)])],
        "cannot be decoded",
    ),
    "a Hello in a batch": ([frames.batch([hello()])], "Hello after the handshake"),
    "a value without envelope": (
        [call(b"", body=msgspec.Raw(b"\x05"))],
        "not wrapped in an array",
    ),
    "a value without body": (
        [call(b"", body=frames.BODY_IN_TRANSFER)],
        "without a body",
    ),
}


@pytest.mark.parametrize("offence", ENDINGS)
def test_a_peer_that_breaks_the_protocol_is_told_how_and_forgotten(
    offence: str,
) -> None:
    messages, reason = ENDINGS[offence]

    async def scenario() -> None:
        async with in_memory() as scene:
            wire = await scene.offend(messages)
            assert reason in (await wire.answer(frames.Bye)).reason
            await wire.closed()
            await scene.settle()

    asyncio.run(scenario())


def test_each_offence_over_a_socket_leaves_the_server_as_it_was(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with on_a_port(tmp_path) as scene:
            for messages, reason in ENDINGS.values():
                wire = await scene.offend(messages)
                assert reason in (await wire.answer(frames.Bye)).reason
                await wire.closed()
                await scene.settle()

    asyncio.run(scenario())


# What makes one call fail, and nothing else


def array(dtype: Any, shape: Any, source: Any, code: int = 4) -> bytes:
    return encode(Ext(code, encode([dtype, shape, source])))


def record(name: Any, fields: Any) -> bytes:
    return encode(Ext(7, encode([name, fields])))


@rpc.register(name="test_hostile.Point")
@dataclass
class Point:
    x: float
    y: float = 0.0

    def __post_init__(self) -> None:
        self.inverse = 1 / self.x


BOMB = encode(Ext(5, encode(["<i8", (2**27).to_bytes(8, "little")])))
#: As part of a frame these would spoil the frame.
UNREADABLE: dict[str, bytes] = {
    "nothing": b"",
    "deep arrays": with_argument(b"\x91" * 60_000 + b"\xc0"),
    "deep maps": with_argument(b"\x81\xc0" * 30_000 + b"\xc0"),
    "a huge map": with_argument(b"\xdf\xff\xff\xff\xff"),
    "a huge array": with_argument(b"\xdd\xff\xff\xff\xff"),
    "a huge string": with_argument(b"\xdb\xff\xff\xff\xff"),
    "huge bytes": with_argument(b"\xc6\xff\xff\xff\xff"),
    "a huge extension": with_argument(b"\xc9\xff\xff\xff\xff\x04"),
}
BODIES: dict[str, bytes] = {
    "no arguments at all": b"\xc0",
    "three parts": b"\x93\x90\x80\xc0",
    "numbers for arguments": b"\x92\x01\x02",
    "numbered keywords": b"\x92\x90\x81\x01\x02",
    "a class that is not registered": with_argument(record("Popen", {"args": "ls"})),
    "a class by its path": with_argument(record("os.system", {})),
    "a record without fields": with_argument(record("test_hostile.Point", [1, 2])),
    "a record with other fields": with_argument(
        record("test_hostile.Point", {"x": 1, "__class__": 2})
    ),
    "a record of other types": with_argument(
        record("test_hostile.Point", {"x": "far", "y": 2})
    ),
    "a record that fails": with_argument(record("test_hostile.Point", {"x": 0})),
    "a record named by a list": with_argument(record([1], {})),
    "an array of objects": with_argument(array("|O", [1], b"\0" * 8)),
    "an array of records": with_argument(array("<i4,<f8", [1], b"\0" * 12)),
    "an array with too little memory": with_argument(array("<f8", [4], b"\0" * 8)),
    "an array with too much memory": with_argument(array("<f8", [1], b"\0" * 64)),
    "an array of odd bytes": with_argument(array("<f8", [1], b"\0" * 7)),
    "a negative shape": with_argument(array("<f8", [-1], b"\0" * 8)),
    "a shape beyond 64 bits": with_argument(array("<f8", [0, 2**64 - 1], b"")),
    "a shape whose product overflows": with_argument(array("<f8", [2**62, 2**62], b"")),
    "a shape that is a word": with_argument(array("<f8", "wide", b"\0" * 8)),
    "a shape that is a number": with_argument(array("<f8", 8, b"\0" * 8)),
    "memory that was never sent": with_argument(array("<f8", [1], 0)),
    "memory out of thin air": with_argument(
        encode(Ext(4, b"\x93" + encode("|u1") + encode([2**27]) + BOMB))
    ),
    "a scalar of nothing": with_argument(encode(Ext(5, encode(["<f8", b""])))),
    "a set of lists": with_argument(encode(Ext(2, encode([[1], [2]])))),
    "a tensor of objects": with_argument(array("object", [1], b"\0" * 8, code=6)),
}


@pytest.mark.parametrize("trick", BODIES)
def test_a_value_that_no_one_honest_sends_fails_its_call_alone(trick: str) -> None:
    async def scenario() -> None:
        ran.clear()
        async with in_memory() as scene:
            wire = await scene.offend([call(BODIES[trick])])
            assert (await wire.answer(frames.Fault)).id == 1
            assert not ran
            await wire.send([call(NOTHING, id=2)])
            assert (await wire.answer(frames.Result)).id == 2
            await wire.hang_up()
            await scene.settle()

    asyncio.run(scenario())


@pytest.mark.parametrize("trick", [*BODIES, *UNREADABLE])
def test_nor_does_it_do_more_as_the_memory_of_a_transfer(trick: str) -> None:
    body = (BODIES | UNREADABLE)[trick] or b"\0"

    async def scenario() -> None:
        ran.clear()
        async with in_memory() as scene:
            chunk = frames.chunk_prefix(1) + body
            wire = await scene.offend([announced(1, len(body)), chunk])
            assert (await wire.answer(frames.Fault)).id == 1
            assert not ran
            await wire.hang_up()
            await scene.settle()

    asyncio.run(scenario())


@pytest.mark.parametrize("trick", UNREADABLE)
def test_a_frame_around_what_cannot_be_read_ends_the_session(trick: str) -> None:
    async def scenario() -> None:
        async with in_memory() as scene:
            wire = await scene.offend([call(UNREADABLE[trick])])
            assert "cannot be decoded" in (await wire.answer(frames.Bye)).reason
            await wire.closed()
            await scene.settle()

    asyncio.run(scenario())


@pytest.mark.parametrize("code", [*range(1, 8), 0, 8, 99, 127, -1, -128])
def test_no_extension_of_msgpack_does_more_than_fail_its_call(code: int) -> None:
    junk = [b"", b"\xc1", b"\xff" * 9, encode(["os", "system", "ls"]), b"\xc0"]

    async def scenario() -> None:
        async with in_memory() as scene:
            heads = [b"\xc7" + bytes([len(data), code % 256]) for data in junk]
            values = [head + data for head, data in zip(heads, junk, strict=True)]
            wire = await scene.offend(
                [call(with_argument(value), id=i) for i, value in enumerate(values)]
            )
            while len(wire.answers) < 1 + len(junk):
                await asyncio.sleep(0.001)
            kinds = {type(answer) for answer in wire.answers[1:]}
            assert kinds <= {frames.Fault, frames.Result}
            await wire.hang_up()
            await scene.settle()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "name",
    [
        *("os.system", "__class__", "_private", "unmarked", "secret", "../x", ""),
        *("echo.__globals__", "open_door.__func__", "Safe", "eval", "echo\0", "Echo"),
        "e" * 100_000,
    ],
)
def test_only_what_was_exposed_can_be_called(name: str) -> None:
    async def scenario() -> None:
        ran.clear()
        async with in_memory() as scene:
            wire = await scene.offend([call(NOTHING, name)])
            fault = await wire.answer(frames.Fault)
            assert fault.error == "UnknownFunction"
            assert len(fault.message) < 1000
            assert not ran
            await wire.hang_up()
            await scene.settle()

    asyncio.run(scenario())


HARMLESS = [
    *(frames.Abort(n) for n in (0, 5, -1, 2**63)),
    *(frames.Cancel(n) for n in (0, 5, -1, 2**63)),
    *(frames.Credit(1, n) for n in (0, -1, -(2**63), 2**64 - 1)),
    frames.Ack(-5),
    frames.Stream(3),
    frames.Fault(3, True, "E", "m", "t"),
    frames.Result(3, 0, (), frames.wrap(b"\xc0")),
    frames.Item(-3, 0, (), frames.wrap(b"\xc0")),
]


@pytest.mark.parametrize("frame", HARMLESS, ids=lambda frame: type(frame).__name__)
def test_what_concerns_nothing_is_left_aside(frame: frames.Frame) -> None:
    async def scenario() -> None:
        async with in_memory() as scene:
            wire = await scene.offend([frames.encode(frame), call(NOTHING)])
            assert (await wire.answer(frames.Result)).id == 1
            await wire.hang_up()
            await scene.settle()

    asyncio.run(scenario())


def test_a_call_that_arrives_while_its_caller_is_expelled_does_not_run() -> None:
    async def scenario() -> None:
        async with in_memory() as scene:
            transport = await scene.dial()
            await transport.send(hello())
            await transport.receive()
            ran.clear()
            await transport.send(call(NOTHING))
            scene.server._hub.expel("offender", "enough")
            assert "enough" in frames_in(await transport.receive())[0].reason
            await transport.close()
            await scene.settle()
        assert ran == ["echo"] * 2  # for the innocent

    asyncio.run(scenario())


def test_what_comes_after_a_goodbye_does_not_run() -> None:
    async def scenario() -> None:
        ran.clear()
        async with in_memory() as scene:
            bye = frames.encode(frames.Bye("done"))
            wire = await scene.offend([frames.batch([bye, call(NOTHING)])])
            await wire.closed()
            await scene.settle()
        assert ran == ["echo"] * 2  # for the innocent

    asyncio.run(scenario())


def test_an_error_that_is_no_unicode_is_told_all_the_same() -> None:
    @rpc.expose
    def fails() -> None:
        raise ValueError("no file \udcff")

    async def scenario() -> None:
        server = await rpc.aserve(fails, port=None)
        async with asyncio.timeout(60), server, await rpc.aconnect(server) as peer:
            with pytest.raises(RemoteError, match="no file"):
                await peer.fails()

    asyncio.run(scenario())


# Memory


def test_a_peer_that_leaves_amid_transfers_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        async with in_memory() as scene:
            wire = await scene.offend([
                announced(1, 100_000), frames.chunk_prefix(1) + b"x" * 50_000,
                announced(2, 200_000, id=2), call(NOTHING, id=3),
            ])  # fmt: skip
            await wire.answer(frames.Result)
            session = scene.session()
            assert session is not None
            assert session._incoming_bytes == 300_000
            await wire.hang_up()
            await scene.settle()
            assert not session._incoming
            assert session._incoming_bytes == 0
            assert not session.dispatcher._active

    asyncio.run(scenario())


def test_many_small_announcements_take_no_more_than_the_limit() -> None:
    """A frame of 60 kB could otherwise ask for tens of megabytes of bookkeeping."""

    async def scenario() -> None:
        async with in_memory() as scene:
            wire = await scene.offend([announced(1, *[1] * 50_000)])
            assert "bytes announced" in (await wire.answer(frames.Bye)).reason
            await wire.closed()
            await scene.settle()

    asyncio.run(scenario())


def test_a_stream_that_floods_its_consumer_is_cut_off() -> None:
    async def scenario() -> None:
        async with in_memory() as scene:
            wire = await scene.offend([])
            await wire.answer(frames.Hello)
            (await asyncio.wait_for(scene.server.wait_for("offender"), 60))
            asked = scene.server.peers["offender"].watch()
            flood = [frames.encode(frames.Item(1, 0, (), frames.wrap(b"\x01")))] * 1000
            await wire.send([frames.encode(frames.Stream(1)), *flood])
            assert "more than its credit" in (await wire.answer(frames.Bye)).reason
            with pytest.raises(TransportError, match="broke the protocol"):
                async for _ in asked:
                    pass
            await wire.closed()
            await scene.settle()

    asyncio.run(scenario())


# The first words


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (hello(protocol=(2, 0)), "protocol 2"),
        (hello(protocol=(-1, 0)), "protocol -1"),
        (hello(name=""), "no name for a peer"),
        (hello(name="n" * 65), "no name for a peer"),
        (hello(name="a\nb"), "no name for a peer"),
        (hello(name="innocent"), "is connected already"),
        (frames.encode(frames.Ack(0)), "first frame is not Hello"),
        (call(NOTHING), "first frame is not Hello"),
        (frames.chunk_prefix(1), "cannot be decoded"),
        (b"", "cannot be decoded"),
        (b"\x91" * 100_000, "cannot be decoded"),
    ],
)
def test_who_does_not_say_hello_properly_is_refused_with_the_reason(
    first: bytes, reason: str
) -> None:
    async def scenario() -> None:
        async with in_memory() as scene:
            wire = await scene.offend([], first)
            assert reason in (await wire.answer(frames.Refused)).reason
            await wire.closed()
            await scene.settle()

    asyncio.run(scenario())


@pytest.mark.parametrize("received", [5, -1, 2**63])
def test_who_has_received_what_was_never_sent_is_sent_away(received: int) -> None:
    async def scenario() -> None:
        async with in_memory() as scene:
            before = await scene.offend([])
            key = (await before.answer(frames.Hello)).session
            wire = await scene.offend([], hello(session=key, received=received))
            assert "never sent" in (await wire.answer(frames.Bye)).reason
            await before.closed()
            await wire.closed()
            await scene.settle()

    asyncio.run(scenario())


def test_a_peer_may_claim_to_expose_a_great_deal() -> None:
    async def scenario() -> None:
        async with in_memory() as scene:
            functions = {f"function_{i}": False for i in range(12_000)}
            wire = await scene.offend([], hello(functions=functions))
            await wire.answer(frames.Hello)
            await asyncio.wait_for(scene.server.wait_for("offender"), 60)
            assert len(scene.server.peers["offender"].functions) == 12_000
            await wire.hang_up()
            await scene.settle()

    asyncio.run(scenario())


def test_who_leaves_before_the_answer_to_its_hello_is_forgotten() -> None:
    async def scenario() -> None:
        async with in_memory() as scene:
            for _ in range(20):
                transport = await scene.dial()
                await transport.send(hello())
                await transport.close()
            await scene.settle()

    asyncio.run(scenario())


def test_a_session_is_not_had_without_its_key() -> None:
    async def scenario() -> None:
        async with in_memory() as scene:
            for key in (b"", b"\0" * 16, os.urandom(16), b"k" * 10_000):
                wire = await scene.offend([], hello(name="innocent", session=key))
                await wire.answer(frames.Refused)
                await wire.closed()
            await scene.settle()

    asyncio.run(scenario())


class Mute(MemoryTransport):
    """Closed before anything can be sent."""

    async def send(self, frame: bytes) -> None:
        raise Closed


class Slow(MemoryTransport):
    """Slow to close, as sockets are."""

    async def close(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        await super().close()


def test_who_cannot_be_greeted_is_forgotten() -> None:
    async def scenario() -> None:
        async with in_memory() as scene:
            near, far = memory_transports()
            await near.send(hello())
            await scene.server._hub.accept(Mute(far._inbox, far._outbox))
            await scene.settle()

    asyncio.run(scenario())


def test_of_many_that_go_on_with_a_session_at_once_one_has_it() -> None:
    async def scenario() -> None:
        async with in_memory() as scene:

            async def dial() -> Transport:
                near, far = memory_transports()
                accepted = scene.server._hub.accept(Slow(far._inbox, far._outbox))
                scene.accepting.append(asyncio.ensure_future(accepted))
                return near

            scene.dial = dial
            first = await scene.offend([])
            again = hello(session=(await first.answer(frames.Hello)).session)
            wires = await asyncio.gather(*(scene.offend([], again) for _ in range(5)))
            await first.closed()
            while sum(not wire.is_closed() for wire in wires) > 1:
                await asyncio.sleep(0.001)
            (wire,) = (wire for wire in wires if not wire.is_closed())
            await wire.send([call(NOTHING)])
            assert (await wire.answer(frames.Result)).id == 1
            await wire.hang_up()
            await scene.settle()

    asyncio.run(scenario())


def test_who_says_nothing_is_sent_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(hub, "HANDSHAKE_S", 0.1)

    async def scenario() -> None:
        async with on_a_port(tmp_path) as scene:
            wire = Wire(await scene.dial())
            assert "no Hello within" in (await wire.answer(frames.Refused)).reason
            await wire.closed()
            await scene.settle()

    asyncio.run(scenario())


# Below the frames


def test_a_text_message_ends_the_connection(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with on_a_port(tmp_path) as scene:
            for first in ([], [hello()]):
                transport = await scene.dial()
                assert isinstance(transport, RawSocket)
                for message in first:
                    await transport.send(message)
                await transport.end.send_str("hello")
                while (await transport.end.receive()).type is aiohttp.WSMsgType.BINARY:
                    pass
                await transport.close()
            await scene.settle()

    asyncio.run(scenario())


def test_a_message_over_the_frame_size_ends_the_connection(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with on_a_port(tmp_path) as scene:
            wire = await scene.offend([b"\xc6" + b"\0" * (frames.FRAME_BYTES + 1)])
            await wire.closed()
            await scene.settle()

    asyncio.run(scenario())


def test_pings_are_answered_and_a_bare_close_is_a_goodbye(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with on_a_port(tmp_path) as scene:
            transport = await scene.dial()
            assert isinstance(transport, RawSocket)
            await transport.end.ping(b"still there?")
            await transport.send(hello())
            await transport.end.ping(b"x" * 125)
            assert type(frames.decode(await transport.receive())) is frames.Hello
            await transport.end.close(code=4999, message=b"\xff")
            await scene.settle()

    asyncio.run(scenario())


RAW = [
    b"\0" * 1000,
    os.urandom(5000),
    b"GET /rpc HTTP/1.1\r\n\r\n",
    b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",  # a TLS ClientHello begins so
    b"POST /call/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n",
]
UPGRADE = (
    b"GET /rpc HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


def test_garbage_on_the_port_disturbs_nobody(tmp_path: Path) -> None:
    broken = [UPGRADE + junk for junk in (b"\xff" * 100, b"\x82\xff" + b"\xff" * 8)]

    async def scenario() -> None:
        async with on_a_port(tmp_path) as scene:
            for garbage in RAW + broken:
                port = scene.server.port
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(garbage)
                writer.write_eof()
                with contextlib.suppress(ConnectionError):
                    await reader.read()
                writer.close()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()
                await scene.settle()

    asyncio.run(scenario())


def test_a_thousand_quick_connections_leave_nothing_behind(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with on_a_port(tmp_path) as scene:
            for i in range(1000):
                port = scene.server.port
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                if i % 2:
                    writer.write(UPGRADE)
                if i % 4 == 3:  # masked with zeros, which is allowed
                    first = hello()
                    size = len(first).to_bytes(1, "big")
                    assert len(first) < 126
                    writer.write(bytes([0x82, 0x80 | size[0]]) + b"\0" * 4 + first)
                if i % 3:
                    await writer.drain()
                writer.transport.abort()
            await scene.settle()
            while scene.server._hub.connections > 1:
                await asyncio.sleep(0.001)

    asyncio.run(scenario())


# By chance

numbers = st.integers(-3, 12) | st.sampled_from(
    [-(2**63), -(2**31), 2**16, 2**20, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1]
)
names = st.sampled_from(["echo", "count", "open_door", "os.system", ""]) | st.text(
    max_size=8
)
sizes = st.lists(numbers, max_size=4).map(tuple)
anything = st.recursive(
    st.none()
    | st.booleans()
    | numbers
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8)
    | st.builds(Ext, st.integers(-128, 127), st.binary(max_size=20)),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=4), inner, max_size=3)
        | st.builds(
            lambda code, value: Ext(code, encode(value)), st.integers(1, 7), inner
        )
    ),
    max_leaves=12,
)
bodies = (
    st.builds(
        lambda args: frames.wrap(encode([args, {}])), st.lists(anything, max_size=2)
    )
    | st.builds(lambda value: frames.wrap(encode(value)), anything)
    | st.binary(max_size=30).map(msgspec.Raw)
    | st.just(frames.BODY_IN_TRANSFER)
)
limits_s = st.none() | st.floats() | st.sampled_from([0.0, -1.0, 1e308])
honest_looking = st.one_of(
    st.builds(frames.Call, numbers, names, limits_s, numbers, sizes, bodies),
    st.builds(frames.Result, numbers, numbers, sizes, bodies),
    st.builds(frames.Item, numbers, numbers, sizes, bodies),
    st.builds(frames.Fault, numbers, st.booleans(), names, names, names),
    st.builds(frames.Stream, numbers),
    st.builds(frames.Cancel, numbers),
    st.builds(frames.Abort, numbers),
    st.builds(frames.Ack, numbers),
    st.builds(frames.Credit, numbers, numbers),
    st.builds(frames.Bye, names),
    st.builds(frames.Refused, names),
).map(frames.encode)
chunks = st.builds(
    lambda transfer, data: frames.chunk_prefix(transfer) + data,
    st.integers(0, 12) | st.just(2**64 - 1),
    st.binary(max_size=40),
)
misshapen = st.builds(
    lambda tag, rest: encode([tag, *rest]),
    st.integers(0, 13),
    st.lists(anything, max_size=8),
)
message = honest_looking | chunks | misshapen | st.binary(max_size=40)
messages = st.lists(
    message | st.lists(message, max_size=4).map(frames.batch), max_size=12
)


async def offended(scene: Scene, sent: list[bytes]) -> None:
    """Send messages after a valid Hello, and check that no state remains."""
    wire = await scene.offend([])
    await wire.answer(frames.Hello)
    session = scene.session()
    await wire.send(sent)
    await wire.hang_up()
    await scene.settle()
    assert session is not None
    assert not session._incoming
    assert session._incoming_bytes == 0
    assert not session.dispatcher._active
    assert not session.caller._pending
    assert not session.link._unconfirmed


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(sent=messages)
def test_no_sequence_of_frames_harms_a_server(sent: list[bytes]) -> None:
    async def scenario() -> None:
        async with in_memory() as scene:
            await offended(scene, sent)

    asyncio.run(scenario())


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(first=misshapen | honest_looking | st.binary(max_size=40))
def test_no_first_message_harms_a_server(first: bytes) -> None:
    async def scenario() -> None:
        async with in_memory() as scene:
            wire = await scene.offend([], first)
            await wire.answer(frames.Refused)
            await wire.closed()
            await scene.settle()

    asyncio.run(scenario())


@settings(max_examples=6, deadline=None)
@given(conversations=st.lists(messages, min_size=10, max_size=10))
def test_no_sequence_of_frames_over_sockets_harms_a_server(
    tmp_path_factory: pytest.TempPathFactory, conversations: list[list[bytes]]
) -> None:
    async def scenario() -> None:
        async with on_a_port(tmp_path_factory.getbasetemp()) as scene:
            for sent in conversations:
                await offended(scene, sent)

    asyncio.run(scenario())


# For a minute

SERVER = """
import os, sys, threading
from melisma import rpc

def end_with_the_test():
    sys.stdin.read()
    os._exit(1)

threading.Thread(target=end_with_the_test, daemon=True).start()

@rpc.expose
def echo(value=None):
    return value

@rpc.expose
async def count(most):
    for i in range(most):
        yield i

@rpc.expose
def zeros(size):
    return bytes(size)

limits = rpc.Limits(message_bytes=1 << 20, calls=64, grace_s=0.5, silence_s=10.0)
server = rpc.serve(port=0, limits=limits, say=lambda _: None)
print(server.port, flush=True)
server.wait()
"""


def conversation(choice: random.Random) -> list[bytes]:
    """Return the messages of a valid session, from Hello to Bye."""
    body, buffers = pack_call((np.arange(30_000.0),), {})
    (data,) = buffers
    chunks = [
        frames.chunk_prefix(1) + data[start : start + frames.CHUNK_BYTES].tobytes()
        for start in range(0, data.size, frames.CHUNK_BYTES)
    ]
    sizes = (data.size,)
    return [
        hello(name=f"offender-{choice.randrange(10**9)}"),
        call(NOTHING),
        call(pack_call((choice.randbytes(1000),), {})[0], id=2),
        call(body, id=3, transfer=1, sizes=sizes),
        *chunks,
        call(pack_call((1000,), {})[0], "count", id=4),
        frames.batch(
            [frames.encode(frames.Credit(4, 8)), frames.encode(frames.Ack(3))]
        ),
        call(pack_call((200_000,), {})[0], "zeros", id=5, within_s=5.0),
        frames.encode(frames.Cancel(4)),
        announced(2, 50_000, id=6),
        frames.encode(frames.Abort(2)),
        frames.encode(frames.Cancel(6)),
        frames.encode(frames.Bye("done")),
    ]


def mutated(sent: list[bytes], choice: random.Random) -> list[bytes]:
    """Return the messages of a session with random errors."""
    for _ in range(choice.randrange(1, 4)):
        at = choice.randrange(len(sent) - 1) + choice.randrange(2)
        frame = bytearray(sent[at])
        match choice.randrange(6):
            case 0:
                del sent[at]
            case 1:
                sent.insert(choice.randrange(len(sent)), bytes(frame))
            case 2:
                sent.insert(choice.randrange(len(sent)), sent.pop(at))
            case 3:
                sent[at] = bytes(frame[: choice.randrange(len(frame) + 1)])
            case 4:
                sent[at] = bytes(frame) + choice.randbytes(choice.randrange(1, 50))
            case _:
                for _ in range(choice.randrange(1, 4)):
                    if frame:
                        frame[choice.randrange(len(frame))] = choice.randrange(256)
                sent[at] = bytes(frame)
    return sent


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


@pytest.fixture
def server_process(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    with (tmp_path / "errors").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdout is not None
    yield process, f"127.0.0.1:{process.stdout.readline().strip()}"
    process.kill()
    process.communicate()


@pytest.mark.long
@pytest.mark.slow
def test_a_minute_of_spoilt_conversations_does_a_server_no_harm(
    server_process: tuple[subprocess.Popen[str], str], tmp_path: Path
) -> None:
    process, address = server_process

    async def offend(session: aiohttp.ClientSession, seed: int, until: float) -> int:
        choice, done = random.Random(seed), 0
        while asyncio.get_running_loop().time() < until:
            end = await session.ws_connect(f"http://{address}/rpc", compress=0)
            wire = Wire(RawSocket(end))
            await wire.send(mutated(conversation(choice), choice))
            if choice.randrange(2):
                await wire.hang_up()
            else:  # rudely
                end._response.close()
                await wire.hang_up()
            done += 1
        return done

    async def scenario() -> None:
        now = asyncio.get_running_loop().time()
        async with (
            aiohttp.ClientSession() as session,
            await rpc.aconnect(address, name="innocent") as innocent,
        ):
            offences = asyncio.gather(
                *(offend(session, seed, now + 60.0) for seed in range(6))
            )
            warm = 0
            while not offences.done():
                assert await innocent.echo.within(30.0)(7) == 7
                await asyncio.sleep(0.01)
                if not warm and asyncio.get_running_loop().time() > now + 10.0:
                    warm = resident_bytes(process.pid)
            assert sum(await offences) > 500
            assert process.poll() is None
            assert innocent.metrics.reconnections == 0
            assert resident_bytes(process.pid) - warm < 64 << 20

    asyncio.run(scenario())
    assert "Traceback" not in (tmp_path / "errors").read_text()


def test_who_hangs_up_before_it_is_served_leaves_no_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    upgrade = (
        "GET /rpc HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\n"
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    with rpc.serve(echo, port=0, say=silent) as server:
        for _ in range(20):
            # The request and the end of its connection are seen in one look.
            server._loop.call_soon_threadsafe(time.sleep, 0.02)
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                connection.sendall(upgrade.encode())
                reset = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        with rpc.connect(server.address, name="innocent") as innocent:
            assert innocent.echo(1) == 1
    assert not [r for r in caplog.records if r.exc_info]
