"""A real server in this process, and what must hold of it whatever it is sent.

``FuzzedServer.converse`` gives it one conversation of a hostile peer, through a
transport in memory or through aiohttp's protocol for its port. Afterwards nothing may
be left of that peer, and a second, innocent one must be answered as before. Nobody
waits: the loop's clock jumps to the next timer when nothing else is to be done.
"""

import asyncio
import gc
import logging
import selectors
import socket
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import numpy as np

from melisma import rpc
from melisma.errors import RpcError
from melisma.rpc import frames
from melisma.rpc.hub import Hub
from melisma.rpc.listener import Listener
from melisma.rpc.peer import Peer
from melisma.rpc.server import Server
from melisma.rpc.service import Service
from melisma.rpc.threads import ThreadPool
from melisma.rpc.tokens import Tokens
from melisma.rpc.transport import Closed, start
from peers.conversations import (
    KEY,
    TOKEN,
    Conversation,
    How,
    Piece,
    hello,
    websocket,
)

#: So small that conversations reach them.
LIMITS = rpc.Limits(
    message_bytes=1 << 20,
    body_bytes=1 << 16,
    total_bytes=3 << 19,
    calls=16,
    connections=8,
    ping_s=20.0,
    silence_s=50.0,
    grace_s=0.5,
)
#: All but ``open_door``.
MAY_CALL = ("echo", "in_thread", "count", "numbers", "zeros", "wait", "fail")
#: By the clock that jumps: so long after a conversation nothing may be left of it.
SETTLED_S = 300
#: From when on threads are waited for by the real clock, and how long each time.
SOON_S, REAL_S = 10, 0.05
#: How often a peer that was sent away comes back for the rest of a conversation.
MOST_REDIALS = 5
#: What a socket takes in that nobody reads.
SOCKET_BYTES = 1 << 16
#: Turns of the event loop that a piece waits which is sent later.
TURNS = 3
#: Real time to wait for a thread before the clock jumps.
THREAD_S = 0.0002
#: Conversations between two looks for tasks whose errors nobody retrieved.
COLLECT_EVERY = 2000


class Violation(Exception):
    """The server did what no peer may make it do."""


class JumpingSelector(selectors.DefaultSelector):
    """Waits for no timer: adds the wait to ``now`` and returns at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.threads = 0.0, 0

    def select(self, timeout: float | None = None) -> Any:
        """Return what is ready; jump to the next timer if nothing is."""
        wait_s = THREAD_S if self.threads and timeout != 0 else 0.0
        ready = super().select(wait_s)
        if not ready:
            self.now += timeout or 0.0
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop in which nobody waits for a timer."""

    def __init__(self) -> None:
        self.jumps = JumpingSelector()
        super().__init__(self.jumps)

    def time(self) -> float:
        """Return the seconds that would have passed."""
        return self.jumps.now


class CountedThreads(ThreadPool):
    """Threads for which the clock waits a little."""

    def __init__(self, size: int, jumps: JumpingSelector) -> None:
        super().__init__(size)
        self._jumps = jumps

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run a function in a thread of the pool."""
        self._jumps.threads += 1
        future = super().submit(fn, *args, **kwargs)
        future.add_done_callback(self._done)
        return future

    def _done(self, _: Future[Any]) -> None:
        self._jumps.threads -= 1


class Functions:
    """What the server exposes; ``enter`` sees every call that is let in."""

    def __init__(self, enter: Callable[[str], None]) -> None:
        self._enter = enter

    @rpc.expose
    async def echo(self, value: Any = None) -> Any:
        """Return what was given."""
        self._enter("echo")
        return value

    @rpc.expose(idempotent=True)
    def in_thread(self, value: Any = None) -> Any:
        """Return what was given, from a thread."""
        self._enter("in_thread")
        return value

    @rpc.expose
    async def count(self, most: int) -> AsyncIterator[int]:
        """Stream numbers."""
        self._enter("count")
        for i in range(most):
            yield i

    @rpc.expose
    def numbers(self, most: int) -> Iterator[int]:
        """Stream numbers from a thread."""
        self._enter("numbers")
        yield from range(most)

    @rpc.expose
    async def zeros(self, size: int) -> Any:
        """Return a large array."""
        self._enter("zeros")
        return np.zeros(min(size, 1 << 21), np.uint8)

    @rpc.expose
    async def wait(self, seconds: float) -> None:
        """Take long."""
        self._enter("wait")
        await asyncio.sleep(min(max(0.0, seconds), 1e6))

    @rpc.expose
    async def fail(self) -> None:
        """Raise what cannot be encoded."""
        self._enter("fail")
        raise ValueError("\ud800")

    @rpc.expose
    async def open_door(self) -> None:
        """Never run: no token of a hostile peer allows it."""
        self._enter("open_door")

    def secret(self) -> None:
        """Never run: it is not exposed."""
        self._enter("secret")


class Feed:
    """The server's end of a connection to a peer that sends what it was given."""

    def __init__(self, pieces: deque[Piece], secrets: dict[bytes, bytes]) -> None:
        self._pieces, self._secrets = pieces, secrets
        #: Done once either side has closed.
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unread, self._buffered = False, 0
        self.taken = 0  #: messages that the server took in
        self.greeted = False  #: the server accepted a Hello

    async def receive(self) -> bytes:
        """Return the next message, in the way that it is to come."""
        first = not self.taken
        if self._pieces and (first or self._pieces[0][0] is not How.RECONNECTED):
            how, data = self._pieces.popleft()
            if how is How.LATER:
                for _ in range(TURNS):
                    await asyncio.sleep(0)
            elif how is How.MUCH_LATER:
                await self._closed_within(1.0)
            self._unread = self._unread or how is How.UNREAD
        else:
            await self._closed_within(0.0 if self._pieces else 1.0)
            await self.close()
        if self.closed.done():
            raise Closed
        self.taken += 1
        return _with_secrets(data, self._secrets)

    async def send(self, frame: bytes) -> None:
        """Read what the server sends, which must be valid; or do not read it."""
        self._buffered += len(frame) if self._unread else 0
        if self._buffered > SOCKET_BYTES:
            await asyncio.wait([self.closed])
        if self.closed.done():
            raise Closed
        for answer in _frames_in(bytes(frame)):
            if type(answer) is frames.Hello:
                self.greeted = True
                self._secrets[KEY] = answer.session

    def start_send(self, frame: bytes) -> Awaitable[None] | None:
        """Send at once, if it is read."""
        return start(self.send(frame))

    async def close(self) -> None:
        """Close both ends."""
        if not self.closed.done():
            self.closed.set_result(None)

    async def _closed_within(self, seconds: float) -> None:
        await asyncio.wait([self.closed], timeout=seconds)


class Pipe(asyncio.Transport):
    """What aiohttp's protocol writes to, in place of a socket; ``sent`` is its size."""

    def __init__(self, protocol: Any, socket: socket.socket) -> None:
        super().__init__({"socket": socket, "peername": ("127.0.0.1", 1)})
        self._protocol, self._closing, self.sent = protocol, False, 0
        protocol.connection_made(self)

    def write(self, data: Any) -> None:
        """Take bytes in."""
        self.sent += len(data)

    def is_closing(self) -> bool:
        """Return whether either side closed."""
        return self._closing

    def close(self) -> None:
        """Close it, and tell the protocol in the loop's next turn."""
        if not self._closing:
            self._closing = True
            loop = asyncio.get_running_loop()
            loop.call_soon(self._protocol.connection_lost, None)

    abort = close

    def pause_reading(self) -> None:
        """Do nothing: a hostile peer sends on."""

    def resume_reading(self) -> None:
        """Do nothing."""

    def get_write_buffer_size(self) -> int:
        """Return 0: all was taken in."""
        return 0

    def set_write_buffer_limits(
        self, high: int | None = None, low: int | None = None
    ) -> None:
        """Do nothing."""


class FuzzedServer:
    """A server with an innocent peer, for one conversation after another."""

    def __init__(self) -> None:
        self.loop = JumpingLoop()
        self.loop.set_exception_handler(self._on_loop_error)
        self._errors: list[str] = []
        self._log = _ErrorLog(self._errors)
        logging.getLogger().addHandler(self._log)
        self._folder = tempfile.TemporaryDirectory()
        self._socket = socket.socket()
        self._feeds: list[Feed] = []
        self._calls: list[asyncio.Future[None]] = []  # of the server to the peer
        self._authenticated = False  # the port was sent a token
        self._conversations = 0
        self.loop.run_until_complete(self._start())
        gc.collect()
        gc.freeze()  # what is here now is not looked at again

    async def _start(self) -> None:
        functions = Functions(self._enter)
        self.hub = Hub(Service([functions]), limits=LIMITS, joined=self._on_joined)
        self.hub.executor = CountedThreads(32, self.loop.jumps)
        tokens = Tokens(Path(self._folder.name) / "tokens.json")
        self._token = tokens.add(may_call=MAY_CALL).encode()
        self._identity = tokens.identify(self._token.decode())
        self._listener = Listener(self.hub, tokens, None)
        await self._listener.listen("127.0.0.1", 0)
        self._server = Server(self._listener, self.hub, tokens, None)
        self._innocent = await rpc.aconnect(self._server, name="innocent")
        await self._innocent.echo(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.run_until_complete(self._close())
        self.loop.close()
        gc.unfreeze()
        self._socket.close()
        self._folder.cleanup()
        logging.getLogger().removeHandler(self._log)

    async def _close(self) -> None:
        await self._innocent.close()
        await self._listener.close()

    def converse(self, data: bytes) -> int:
        """Have one conversation; return the pieces taken in; Violation if it harmed."""
        conversation = Conversation.read(data)
        try:
            taken = self.loop.run_until_complete(self._converse(conversation))
        except Violation:
            raise
        except Exception as error:
            raise Violation(f"a connection ended with {error!r}") from error
        self._conversations += 1
        if self._conversations % COLLECT_EVERY == 0:
            gc.collect()
        if self._errors:
            errors, self._errors[:] = "\n".join(self._errors), []
            raise Violation(errors)
        return taken

    async def _converse(self, conversation: Conversation) -> int:
        tasks = len(asyncio.all_tasks())
        self._feeds, self._authenticated = [], False
        pieces = deque(conversation.pieces)
        if conversation.to_port:
            taken = await self._to_port(pieces)
        else:
            taken = await self._to_hub(pieces)
        await self._settle(tasks)
        return taken

    async def _to_hub(self, pieces: deque[Piece]) -> int:
        secrets = {TOKEN: self._token}
        connections = []
        while pieces:
            feed = Feed(pieces, secrets)
            self._feeds.append(feed)
            accepting = asyncio.ensure_future(self.hub.accept(feed, self._identity))
            connections.append(accepting)
            # The next one comes while the server still closes this one.
            await asyncio.wait([accepting, feed.closed], return_when="FIRST_COMPLETED")
            if pieces and pieces[0][0] is not How.RECONNECTED:
                if len(connections) > MOST_REDIALS:
                    break
                pieces.appendleft((How.RECONNECTED, hello()))  # it was sent away
        await asyncio.gather(*connections)
        return sum(feed.taken for feed in self._feeds)

    async def _to_port(self, pieces: deque[Piece]) -> int:
        secrets = {TOKEN: self._token}
        assert self._listener._runner is not None
        assert self._listener._runner.server is not None
        taken = connections = 0
        while pieces and connections <= MOST_REDIALS:
            connections += 1
            protocol = self._listener._runner.server()
            pipe = Pipe(protocol, self._socket)
            first, unread = True, False
            while pieces and not pipe.is_closing():
                how, data = pieces[0]
                if how is How.RECONNECTED and not first:
                    break
                pieces.popleft()
                first = False
                data = _with_secrets(data, secrets)
                self._authenticated = self._authenticated or self._token in data
                if how is How.UNREAD and not unread:
                    unread = True
                    protocol.pause_writing()
                protocol.data_received(websocket(data) if how is How.FRAMED else data)
                taken += 1
                await asyncio.sleep(1.0 if how is How.MUCH_LATER else 0)
            await asyncio.sleep(0.01)
            pipe.close()
        return taken

    async def _settle(self, tasks: int) -> None:
        """Wait until nothing is left of a conversation, and serve the innocent."""
        for waited_s in range(SETTLED_S):
            if not (left := self._left(tasks)):
                break
            await asyncio.sleep(1.0)
            if waited_s > SOON_S and "threads" in left:
                time.sleep(REAL_S)  # a busy machine has not run them yet
        else:
            raise Violation(f"left behind: {left}")
        for call in self._calls:
            if call.cancelled():
                raise Violation("a call of the server was cancelled, not answered")
            call.result()
        self._calls.clear()
        if await self._innocent.echo(7) != 7:
            raise Violation("another peer got a wrong answer")

    def _left(self, tasks: int) -> dict[str, Any]:
        """Return what is left of conversations; empty if nothing is."""
        hub, budget = self.hub, self.hub.budget
        left = {
            "sessions": set(hub._sessions) ^ {"innocent"},
            "owners": set(hub._owners) ^ {"innocent"},
            "connections": hub.connections - 1,
            "requests": self._listener._http_calls,
            "memory": budget.held_bytes,
            "reservations": len(budget._line) + len(budget._holding),
            "tokens": dict(budget._by_owner),
            "threads": self.loop.jumps.threads,
            "tasks": len(asyncio.all_tasks()) - tasks,
        }
        return {what: value for what, value in left.items() if value}

    def _on_joined(self, peer: Peer) -> None:
        if peer.name != "innocent":
            for call in (self._train(peer), self._watch(peer)):
                self._calls.append(asyncio.ensure_future(call))

    async def _train(self, peer: Peer) -> None:
        with suppress(RpcError):
            await peer.train.within(3.0)(np.zeros(1000))

    async def _watch(self, peer: Peer) -> None:
        with suppress(RpcError):
            items = await peer.watch()
            if isinstance(items, rpc.Stream):
                async for _ in items:
                    pass

    def _enter(self, function: str) -> None:
        request = rpc.current()
        if request.caller == "innocent":
            return
        greeted = any(feed.greeted for feed in self._feeds)
        if function not in MAY_CALL or not (greeted or self._authenticated):
            self._errors.append(f"{function} ran for {request.caller!r}")

    def _on_loop_error(self, _: object, context: dict[str, Any]) -> None:
        self._errors.append(f"{context.get('message')}: {context.get('exception')!r}")


class _ErrorLog(logging.Handler):
    """Keeps errors that were logged."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__()
        self._errors = errors
        self._text = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record with a traceback, or of an error."""
        if record.exc_info or record.levelno >= logging.ERROR:
            self._errors.append(self._text.format(record))


def _with_secrets(data: bytes, secrets: dict[bytes, bytes]) -> bytes:
    for placeholder, secret in secrets.items():
        data = data.replace(placeholder, secret)
    return data


def _frames_in(message: bytes) -> list[Any]:
    """Return the frames of a message of the server; Malformed if it is not valid."""
    if message[0] == frames.CHUNK:
        frames.split_chunk(message)
        return []
    if message[0] == frames.BATCH:
        return [frames.decode(frame) for frame in frames.split_batch(message)]
    return [frames.decode(message)]
