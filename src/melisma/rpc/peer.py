"""Stubs of remote functions.

    peer.add(1, 2)                     blocks; in a coroutine: await peer.add(1, 2)
    peer.add.submit(1, 2).result()     starts at once, waits later
    for item in peer.watch(): ...      a remote generator; async for in a coroutine

Where an event loop runs, ``peer.add(1, 2)`` returns the Call, which is to be awaited.
"""

import asyncio
import concurrent.futures
from collections.abc import (
    AsyncIterator,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any

from melisma.errors import ConfigError, RpcError
from melisma.rpc.caller import Caller, PendingCall
from melisma.rpc.streams import StreamBuffer
from melisma.rpc.threads import run, running_loop
from melisma.rpc.values import pack_call


class Peer:
    """A process at the other end of a session, with its functions as attributes.

    ``peer["name"]`` reaches functions whose name is an attribute of this class.
    """

    def __init__(self, caller: Caller) -> None:
        self._caller, self._channel = caller, caller.channel

    @property
    def name(self) -> str:
        """Return the name by which this process knows the peer."""
        return self._channel.name

    @property
    def connected(self) -> bool:
        """Return whether the peer is connected now."""
        return self._channel.transport is not None

    @property
    def functions(self) -> list[str]:
        """Return the names of the functions that the peer lets this process call."""
        return sorted(self._channel.functions)

    def __getattr__(self, name: str) -> "Function":
        if name.startswith("_"):
            raise AttributeError(name)
        return Function(self, name)

    def __getitem__(self, name: str) -> "Function":
        return Function(self, name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.functions]

    def __repr__(self) -> str:
        state = "connected" if self.connected else "not connected"
        return f"<Peer {self.name}: {state}>"


class Function:
    """A stub of a function of a peer."""

    __slots__ = ("_name", "_peer", "_within_s")

    def __init__(self, peer: Peer, name: str, within_s: float | None = None) -> None:
        self._peer, self._name, self._within_s = peer, name, within_s

    def within(self, seconds: float) -> "Function":
        """Return the stub with a timeout, after which the call is cancelled."""
        if not seconds > 0:
            raise ConfigError(f"a timeout of {seconds} s: give more than 0")
        return Function(self._peer, self._name, seconds)

    def submit(self, *args: Any, **kwargs: Any) -> "Call":
        """Start a call and return its handle.

        Arrays are sent without a copy: do not change them before the answer.
        """
        body, buffers = pack_call(args, kwargs)
        caller, here = self._peer._caller, running_loop()
        loop = caller.channel.loop
        future: asyncio.Future[Any] | concurrent.futures.Future[Any]
        future = here.create_future() if here is loop else concurrent.futures.Future()
        call = PendingCall(self._name, body, buffers, self._within_s, future)
        if here is loop:
            caller.start(call)
        else:
            loop.call_soon_threadsafe(caller.start, call)
        return Call(self._peer, call)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the answer; where an event loop runs, the Call to await."""
        call = self.submit(*args, **kwargs)
        return call if running_loop() else call.result()

    def __repr__(self) -> str:
        return f"<Function {self._name} of {self._peer.name}>"


class Call:
    """A handle of a call: wait for it, await it, iterate over it, or cancel it."""

    __slots__ = ("_outgoing", "_peer")

    def __init__(self, peer: Peer, outgoing: PendingCall) -> None:
        self._peer, self._outgoing = peer, outgoing

    @property
    def peer(self) -> Peer:
        """Return the peer that was called."""
        return self._peer

    @property
    def function(self) -> str:
        """Return the name of the function that was called."""
        return self._outgoing.function

    def done(self) -> bool:
        """Return whether the call was answered, failed or was cancelled."""
        return self._outgoing.future.done()

    def cancel(self) -> bool:
        """Cancel the call, on the peer too; return False if it was done already."""
        if isinstance(self._outgoing.future, concurrent.futures.Future):
            return self._outgoing.future.cancel()
        if running_loop() is self._loop:
            return self._outgoing.future.cancel()
        self._loop.call_soon_threadsafe(self._outgoing.future.cancel)
        return True

    def result(self, timeout_s: float | None = None) -> Any:
        """Wait for the answer; TimeoutError after ``timeout_s``, the call continues."""
        future = self._outgoing.future
        if isinstance(future, asyncio.Future):
            if future.done():
                return self._unwrap(future.result())
            if running_loop() is self._loop:
                raise RuntimeError(
                    "this would block the event loop that does the work: await the call"
                )
            future = asyncio.run_coroutine_threadsafe(_wait(future), self._loop)
        try:
            return self._unwrap(future.result(timeout_s))
        except KeyboardInterrupt:
            self.cancel()
            raise

    join = result

    def __await__(self) -> Generator[Any, None, Any]:
        future = self._outgoing.future
        if isinstance(future, asyncio.Future):
            if running_loop() is self._loop:
                return self._unwrap((yield from future))
            future = asyncio.run_coroutine_threadsafe(_wait(future), self._loop)
        return self._unwrap((yield from asyncio.wrap_future(future)))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.result())

    async def __aiter__(self) -> AsyncIterator[Any]:
        items = await self
        try:
            async for item in items:
                yield item
        finally:
            if isinstance(items, Stream):
                items.close()

    def _unwrap(self, value: Any) -> Any:
        return Stream(self._loop, value) if isinstance(value, StreamBuffer) else value

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return self._peer._channel.loop

    def __repr__(self) -> str:
        waits = "; await it, or take its result()" if running_loop() else ""
        state = "done" if self.done() else f"under way{waits}"
        return f"<Call of {self.function} on {self._peer.name}: {state}>"


class Stream:
    """An iterator over the items of a remote generator; closing it stops that."""

    def __init__(self, loop: asyncio.AbstractEventLoop, items: StreamBuffer) -> None:
        self._loop, self._items = loop, items

    def __iter__(self) -> "Stream":
        return self

    def __next__(self) -> Any:
        try:
            return run(self._next(), self._loop, "use async for")
        except StopAsyncIteration:
            raise StopIteration from None

    def __aiter__(self) -> "Stream":
        return self

    async def __anext__(self) -> Any:
        if running_loop() is self._loop:
            return await self._items.next()
        item = asyncio.run_coroutine_threadsafe(self._next(), self._loop)
        return await asyncio.wrap_future(item)

    async def _next(self) -> Any:
        return await self._items.next()

    def close(self) -> None:
        """Stop the remote generator."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._items.cancel)

    def __del__(self) -> None:
        self.close()


class Group(Mapping[str, Peer]):
    """Peers by name, and stubs that call all of them at once."""

    def __init__(self, peers: Mapping[str, Peer]) -> None:
        self._peers = dict(peers)

    def __getitem__(self, name: str) -> Peer:
        try:
            return self._peers[name]
        except KeyError:
            raise RpcError(
                f"no peer is named '{name}'; connected: {', '.join(self) or 'none'}"
            ) from None

    def __contains__(self, name: object) -> bool:
        return name in self._peers

    def __iter__(self) -> Iterator[str]:
        return iter(self._peers)

    def __len__(self) -> int:
        return len(self._peers)

    def __repr__(self) -> str:
        return f"<Group of {', '.join(self) or 'no peers'}>"

    def only(self, names: Sequence[str]) -> "Group":
        """Return the peers of these names; RpcError if one is missing."""
        return Group({name: self[name] for name in names})

    def __getattr__(self, name: str) -> "GroupFunction":
        if name.startswith("_"):
            raise AttributeError(name)
        return GroupFunction({peer: self._peers[peer][name] for peer in self})


class GroupFunction:
    """A stub of the same function of several peers."""

    def __init__(self, functions: Mapping[str, Function]) -> None:
        self._functions = functions

    def within(self, seconds: float) -> "GroupFunction":
        """Return the stub with a timeout."""
        return GroupFunction(
            {
                name: function.within(seconds)
                for name, function in self._functions.items()
            }
        )

    def submit(self, *args: Any, **kwargs: Any) -> dict[str, Call]:
        """Start a call on each peer and return the handles by the peers' names."""
        return {
            name: function.submit(*args, **kwargs)
            for name, function in self._functions.items()
        }

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the answers by name; ExceptionGroup if any call failed.

        Where an event loop runs, return an awaitable of them.
        """
        calls = self.submit(*args, **kwargs)
        if running_loop():
            return _gather(calls)
        answers: dict[str, Any] = {}
        errors: list[Exception] = []
        for name, call in calls.items():
            try:
                answers[name] = call.result()
            except RpcError as error:
                errors.append(_named(error, name))
        return _all_or_raise(answers, errors)


async def _gather(calls: Mapping[str, Call]) -> dict[str, Any]:
    async def outcome(call: Call) -> Any:
        return await call

    outcomes = await asyncio.gather(
        *map(outcome, calls.values()), return_exceptions=True
    )
    answers: dict[str, Any] = {}
    errors: list[Exception] = []
    for name, value in zip(calls, outcomes, strict=True):
        if isinstance(value, RpcError):
            errors.append(_named(value, name))
        elif isinstance(value, BaseException):
            raise value
        else:
            answers[name] = value
    return _all_or_raise(answers, errors)


def _named(error: RpcError, name: str) -> RpcError:
    error.add_note(f"from peer {name}")
    return error


def _all_or_raise(answers: dict[str, Any], errors: list[Exception]) -> dict[str, Any]:
    if errors:
        failed, total = len(errors), len(errors) + len(answers)
        raise ExceptionGroup(f"the calls of {failed} of {total} peers failed", errors)
    return answers


async def _wait(future: asyncio.Future[Any]) -> Any:
    return await future
