"""Calls outlive connections: over real sockets, through a proxy that cuts them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from tests.rpc.proxies import Proxy

from melisma import rpc
from melisma.errors import RpcError, TransportError
from melisma.rpc import dialer

PATIENCE_S = 30.0  # guards against hanging; nothing is measured with it
QUICK = rpc.Limits(ping_s=0.05, silence_s=0.4, grace_s=PATIENCE_S)


class Counter:
    """Counts how often each of its functions ran."""

    def __init__(self) -> None:
        self.runs = 0
        self.begun, self.release = asyncio.Event(), asyncio.Event()
        self.cancelled = asyncio.Event()

    @rpc.expose
    async def slow(self, value: Any) -> Any:
        self.runs += 1
        self.begun.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return value

    @rpc.expose(idempotent=True)
    async def repeatable(self, value: Any) -> Any:
        return await self.slow(value)

    @rpc.expose
    async def add(self, a: int, b: int) -> int:
        self.runs += 1
        return a + b

    @rpc.expose
    async def numbers(self, n: int) -> AsyncIterator[int]:
        for i in range(n):
            yield i


def run(
    scenario: Callable[[Counter, rpc.Server, Proxy], Awaitable[None]],
    limits: rpc.Limits = QUICK,
) -> None:
    async def whole() -> None:
        async with asyncio.timeout(PATIENCE_S):
            counter = Counter()
            async with (
                await rpc.aserve(
                    counter, port=0, limits=limits, say=lambda _: None
                ) as server,
                Proxy(server.port) as proxy,
            ):
                await scenario(counter, server, proxy)

    asyncio.run(whole())


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.005)


def test_a_call_survives_a_cut_and_runs_once() -> None:
    async def scenario(counter: Counter, server: rpc.Server, proxy: Proxy) -> None:
        async with await rpc.aconnect(proxy.address, limits=QUICK) as peer:
            call = peer.slow.submit("kept")
            await counter.begun.wait()
            for _ in range(3):
                proxy.cut()
                await until(lambda: not peer.connected)
                await until(lambda: peer.connected)
            counter.release.set()
            assert await call == "kept"
            assert counter.runs == 1
            assert peer.metrics.reconnections == 3

    run(scenario)


def test_an_answer_given_during_the_break_arrives_after_it() -> None:
    async def scenario(counter: Counter, server: rpc.Server, proxy: Proxy) -> None:
        async with await rpc.aconnect(proxy.address, limits=QUICK) as peer:
            call = peer.slow.submit("late")
            await counter.begun.wait()
            proxy.cut()
            counter.release.set()
            assert await call == "late"
            assert counter.runs == 1

    run(scenario)


def test_a_call_made_during_the_break_is_carried_out_once_after_it() -> None:
    async def scenario(counter: Counter, server: rpc.Server, proxy: Proxy) -> None:
        async with await rpc.aconnect(proxy.address, limits=QUICK) as peer:
            proxy.cut()
            await until(lambda: not peer.connected)
            assert await peer.add(1, 2) == 3
            assert counter.runs == 1

    run(scenario)


@pytest.mark.parametrize("megabytes", [0.3, 5, 17, 30])
def test_a_transfer_goes_on_where_it_was_cut(megabytes: float) -> None:
    async def scenario(counter: Counter, server: rpc.Server, proxy: Proxy) -> None:
        async with await rpc.aconnect(proxy.address, limits=QUICK) as peer:
            array = np.arange(2_000_000.0)  # 16 MB there, 16 MB back
            counter.release.set()
            proxy.cut_after(int(megabytes * 1e6))
            np.testing.assert_array_equal(await peer.slow(array), array)
            assert counter.runs == 1
            assert peer.metrics.reconnections == 1
            # Sent again is what was on the way, not the whole.
            assert proxy.forwarded_bytes < 32e6 + 12e6

    run(scenario)


def test_many_calls_and_streams_survive_many_cuts() -> None:
    async def scenario(counter: Counter, server: rpc.Server, proxy: Proxy) -> None:
        async with await rpc.aconnect(proxy.address, limits=QUICK) as peer:

            async def cutting() -> None:
                for _ in range(10):
                    await asyncio.sleep(0.03)
                    proxy.cut()

            async def summed(n: int) -> int:
                return sum([item async for item in peer.numbers(n)])

            async def adding(worker: int) -> int:
                return sum([await peer.add(worker, i) for i in range(50)])

            cuts = asyncio.create_task(cutting())
            sums = await asyncio.gather(*(adding(w) for w in range(8)), summed(2_000))
            await cuts
            assert sums == [w * 50 + 1225 for w in range(8)] + [1_999_000]
            assert counter.runs == 400

    run(scenario)


def test_a_silent_connection_is_given_up_and_the_call_resumed() -> None:
    async def scenario(counter: Counter, server: rpc.Server, proxy: Proxy) -> None:
        async with await rpc.aconnect(proxy.address, limits=QUICK) as peer:
            call = peer.slow.submit("thawed")
            await counter.begun.wait()
            proxy.freeze()
            await until(lambda: not peer.connected)
            proxy.cut()
            proxy.thaw()
            counter.release.set()
            assert await call == "thawed"
            assert counter.runs == 1

    run(scenario)


def test_after_the_grace_calls_fail_and_functions_are_cancelled() -> None:
    limits = rpc.Limits(ping_s=0.05, silence_s=0.2, grace_s=0.2)

    async def scenario(counter: Counter, server: rpc.Server, proxy: Proxy) -> None:
        peer = await rpc.aconnect(proxy.address, limits=limits, name="gone")
        call = peer.slow.submit(1)
        await counter.begun.wait()
        proxy.freeze()
        with pytest.raises(TransportError, match=r"did not reconnect within 0\.2 s"):
            await call
        await counter.cancelled.wait()
        await until(lambda: not server.peers)
        with pytest.raises(TransportError, match="did not reconnect"):
            await peer.add(1, 2)
        proxy.cut()
        proxy.thaw()
        await until(lambda: peer.connected)
        assert await peer.add(1, 2) == 3
        await peer.close()

    run(scenario, limits)


def test_a_restarted_server_repeats_what_is_idempotent_and_fails_the_rest() -> None:
    async def scenario(counter: Counter, server: rpc.Server, proxy: Proxy) -> None:
        async with await rpc.aconnect(proxy.address, limits=QUICK) as peer:
            once, again = peer.slow.submit(1), peer.repeatable.submit(2)
            await until(lambda: counter.runs == 2)
            proxy.freeze()
            proxy.cut()
            await until(lambda: not peer.connected)
            fresh = Counter()
            fresh.release.set()
            restarted = await rpc.aserve(
                fresh, port=0, limits=QUICK, say=lambda _: None
            )
            proxy._target = restarted.port
            proxy.thaw()
            assert await again == 2
            with pytest.raises(TransportError, match="may or may not have run"):
                await once
            assert fresh.runs == 1
            await restarted.close()

    run(scenario)


def test_a_dialled_out_device_is_called_through_cuts() -> None:
    async def scenario(counter: Counter, server: rpc.Server, proxy: Proxy) -> None:
        device = Counter()
        async with await rpc.aconnect(
            proxy.address, device, name="nano-1", limits=QUICK
        ):
            peers = await server.wait_for("nano-1")
            call = peers["nano-1"].slow.submit(np.ones(1_000_000))
            await device.begun.wait()
            proxy.cut()
            device.release.set()
            np.testing.assert_array_equal(await call, np.ones(1_000_000))
            assert device.runs == 1

    run(scenario)


def test_cancelling_during_the_break_reaches_the_function_after_it() -> None:
    async def scenario(counter: Counter, server: rpc.Server, proxy: Proxy) -> None:
        async with await rpc.aconnect(proxy.address, limits=QUICK) as peer:
            call = peer.slow.submit(1)
            await counter.begun.wait()
            proxy.cut()
            await until(lambda: not peer.connected)
            call.cancel()
            await counter.cancelled.wait()
            assert counter.runs == 1

    run(scenario)


def test_a_call_cancelled_before_it_left_never_runs() -> None:
    async def scenario(counter: Counter, server: rpc.Server, proxy: Proxy) -> None:
        async with await rpc.aconnect(proxy.address, limits=QUICK) as peer:
            proxy.cut()
            await until(lambda: not peer.connected)
            never = peer.slow.submit(np.ones(100_000))
            never.cancel()
            small = peer.slow.submit(1)
            small.cancel()
            assert await peer.add(1, 2) == 3
            assert counter.runs == 1

    run(scenario)


def test_cancelling_an_upload_stops_it() -> None:
    async def scenario(counter: Counter, server: rpc.Server, proxy: Proxy) -> None:
        async with await rpc.aconnect(proxy.address, limits=QUICK) as peer:
            call = peer.slow.submit(np.zeros(20_000_000))  # 160 MB
            await until(lambda: proxy.forwarded_bytes > 2e6)
            call.cancel()
            assert await peer.add(1, 2) == 3
            assert proxy.forwarded_bytes < 100e6
            assert counter.runs == 1

    run(scenario)


def test_a_server_that_is_not_there_yet_is_waited_for() -> None:
    async def scenario(counter: Counter, server: rpc.Server, proxy: Proxy) -> None:
        port, address = server.port, server.address
        await server.close()
        dialling = asyncio.create_task(rpc.aconnect(address, patience_s=PATIENCE_S))
        await asyncio.sleep(0.05)
        late = await rpc.aserve(Counter(), port=port, say=lambda _: None)
        async with await dialling as peer:
            assert await peer.add(1, 2) == 3
        await late.close()

    run(scenario)


@pytest.mark.parametrize(("from_s", "told"), [(60.0, False), (0.0, True)])
def test_an_outage_is_told_once_it_lasts(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    from_s: float,
    told: bool,
) -> None:
    monkeypatch.setattr(dialer, "TOLD_FROM_S", from_s)

    async def scenario(counter: Counter, server: rpc.Server, proxy: Proxy) -> None:
        port = server.port
        async with await rpc.aconnect(server.address, limits=QUICK) as peer:
            await server.close()
            await asyncio.sleep(0.5)  # a few tries
            late = await rpc.aserve(Counter(), port=port, say=lambda _: None)
            while True:
                with suppress(RpcError):
                    assert await peer.add(1, 2) == 3
                    break
                await asyncio.sleep(0.05)
        await late.close()

    run(scenario)
    assert any("dialling on: nobody answers" in m for m in caplog.messages) == told


def test_nobody_there_is_a_clear_error() -> None:
    async def scenario(counter: Counter, server: rpc.Server, proxy: Proxy) -> None:
        address = server.address
        await server.close()
        with pytest.raises(TransportError, match=f"nobody answers at {address}"):
            await rpc.aconnect(address)

    run(scenario)
