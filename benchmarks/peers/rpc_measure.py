"""What is measured of one stack in one round: small calls, arrays, and both at once."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import uvloop
from numpy.typing import NDArray

Array = NDArray[np.float32]

SMALL = b"8 bytes!"
MEDIUM_BYTES, LARGE_BYTES = 1_500_000, 64_000_000
IN_FLIGHT = 64
WARM_UP_CALLS = 50


class Client(Protocol):
    """Has values sent back by a server, and waits for them."""

    def small(self, text: bytes) -> bytes:
        """Return ``text`` as the server got it."""

    def array(self, values: Array) -> Array:
        """Return the array that the server made of the one it got: the same."""


class AsyncClient(Protocol):
    """The same, awaited; many calls can be under way at a time."""

    async def small(self, text: bytes) -> bytes:
        """Return ``text`` as the server got it."""

    async def array(self, values: Array) -> Array:
        """Return the array that the server made of the one it got: the same."""


Connected = AbstractContextManager[Client] | AbstractAsyncContextManager[AsyncClient]
Connect = Callable[[str], Connected]


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """How much every stack is to do in a round."""

    calls_s: float  #: seconds of small calls, one after another and again at once
    large_bytes: int = LARGE_BYTES  #: of a large array; a mixed one has four times that


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one stack does in a round."""

    amount: Amount
    medium: int = 6  #: arrays of ``MEDIUM_BYTES``
    large: int = 3  #: arrays of ``amount.large_bytes``
    shared: bool = False  #: whether one blocking client serves all threads
    uvloop: bool = False  #: whether coroutines run on uvloop


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """Small calls."""

    per_s: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One round of one stack; None for what was not measured."""

    sequential: Calls
    at_once: Calls  #: ``IN_FLIGHT`` calls under way all the time
    #: Size over the time of a round trip, the median of several.
    medium_Bps: float | None
    large_Bps: float | None
    mixed: Calls | None  #: while an array of four times ``large_bytes`` is under way


def measure(connect: Connect, address: str, plan: Plan) -> Measured:
    """Do a round of everything; RuntimeError if something else comes back."""
    connected = connect(address)
    if isinstance(connected, AbstractAsyncContextManager):
        factory = uvloop.new_event_loop if plan.uvloop else None
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(_measure_async(connected, plan))
    return _measure_blocking(connected, connect, address, plan)


async def _measure_async(
    connected: AbstractAsyncContextManager[AsyncClient], plan: Plan
) -> Measured:
    calls_s, large_bytes = plan.amount.calls_s, plan.amount.large_bytes
    async with connected as client:
        for _ in range(WARM_UP_CALLS):
            _check(SMALL, await client.small(SMALL))
        sequential = await _calls_async(client, 1, calls_s)
        at_once = await _calls_async(client, IN_FLIGHT, calls_s)
        return Measured(
            sequential=sequential,
            at_once=at_once,
            medium_Bps=await _arrays_async(client, MEDIUM_BYTES, plan.medium),
            large_Bps=await _arrays_async(client, large_bytes, plan.large),
            mixed=await _mixed(client, 4 * large_bytes),
        )


async def _calls_async(client: AsyncClient, workers: int, for_s: float) -> Calls:
    taken_s: list[float] = []

    async def work() -> None:
        while (began := time.perf_counter()) < until:
            await client.small(SMALL)
            taken_s.append(time.perf_counter() - began)

    start = time.perf_counter()
    until = start + for_s
    await asyncio.gather(*(work() for _ in range(workers)))
    return _calls(taken_s, time.perf_counter() - start)


async def _arrays_async(client: AsyncClient, size: int, repeats: int) -> float | None:
    sent, taken_s = _random(size), []
    for _ in range(repeats):
        began = time.perf_counter()
        received = await client.array(sent)
        taken_s.append(time.perf_counter() - began)
        _check(sent, received)
        del received
    return float(size / np.median(taken_s)) if taken_s else None


async def _mixed(client: AsyncClient, size: int) -> Calls:
    sent, taken_s = _random(size), []
    start = time.perf_counter()
    transfer = asyncio.ensure_future(client.array(sent))
    await asyncio.sleep(0)  # the transfer is on its way first
    while not transfer.done():
        began = time.perf_counter()
        await client.small(SMALL)
        taken_s.append(time.perf_counter() - began)
    wall_s = time.perf_counter() - start
    _check(sent, await transfer)
    return _calls(taken_s, wall_s)


def _measure_blocking(
    connected: AbstractContextManager[Client],
    connect: Connect,
    address: str,
    plan: Plan,
) -> Measured:
    calls_s, large_bytes = plan.amount.calls_s, plan.amount.large_bytes
    with ExitStack() as clients:
        client = clients.enter_context(connected)
        for _ in range(WARM_UP_CALLS):
            _check(SMALL, client.small(SMALL))
        sequential = _calls_blocking([client], calls_s)
        many = [client] * IN_FLIGHT
        if not plan.shared:
            many = [_open(clients, connect(address)) for _ in many]
        for each in many:
            _check(SMALL, each.small(SMALL))
        return Measured(
            sequential=sequential,
            at_once=_calls_blocking(many, calls_s),
            medium_Bps=_arrays_blocking(client, MEDIUM_BYTES, plan.medium),
            large_Bps=_arrays_blocking(client, large_bytes, plan.large),
            mixed=None,
        )


def _open(clients: ExitStack, connected: Connected) -> Client:
    assert isinstance(connected, AbstractContextManager)
    return clients.enter_context(connected)


def _calls_blocking(clients: Sequence[Client], for_s: float) -> Calls:
    """Call from one thread for each client."""
    all_taken_s: list[list[float]] = [[] for _ in clients]
    failures: list[Exception] = []
    together = threading.Barrier(len(clients) + 1)

    def work(client: Client, taken_s: list[float]) -> None:
        together.wait()
        try:
            while (began := time.perf_counter()) < until:
                client.small(SMALL)
                taken_s.append(time.perf_counter() - began)
        except Exception as error:  # the thread's edge: raised by the one that waits
            failures.append(error)

    threads = [
        threading.Thread(target=work, args=each, daemon=True)
        for each in zip(clients, all_taken_s, strict=True)
    ]
    for thread in threads:
        thread.start()
    start = time.perf_counter()
    until = start + for_s
    together.wait()
    for thread in threads:
        thread.join()
    wall_s = time.perf_counter() - start
    for failure in failures:
        raise failure
    return _calls([one_s for taken_s in all_taken_s for one_s in taken_s], wall_s)


def _arrays_blocking(client: Client, size: int, repeats: int) -> float | None:
    sent, taken_s = _random(size), []
    for _ in range(repeats):
        began = time.perf_counter()
        received = client.array(sent)
        taken_s.append(time.perf_counter() - began)
        _check(sent, received)
        del received
    return float(size / np.median(taken_s)) if taken_s else None


def _random(size: int) -> Array:
    return np.random.default_rng(0).random(size // 4, np.float32)


def _check(sent: Any, received: Any) -> None:
    if type(received) is not type(sent) or not np.array_equal(sent, received):
        raise RuntimeError(f"sent {sent!r}, got {received!r}")


def _calls(taken_s: Sequence[float], wall_s: float) -> Calls:
    p50_ms, p99_ms = np.percentile(taken_s, [50, 99]) * 1e3
    return Calls(per_s=len(taken_s) / wall_s, p50_ms=p50_ms, p99_ms=p99_ms)
