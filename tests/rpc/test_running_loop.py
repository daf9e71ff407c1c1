"""The whole of rpc in a thread whose event loop runs: coroutines and notebooks."""

import ast
import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from melisma import rpc
from melisma.errors import TransportError
from melisma.rpc import axon, dialer

GUARD_S = 60.0  # against hanging; nothing is measured with it


class Workshop:
    @rpc.expose
    def add(self, a: int, b: int) -> int:
        return a + b

    @rpc.expose
    def count(self, n: int) -> Iterator[int]:
        yield from range(n)

    @rpc.expose
    async def nest(self, address: str) -> str:
        try:
            rpc.connect(address)
        except RuntimeError as error:
            return str(error)
        return "connected"


async def run_cells(*cells: str) -> dict[str, Any]:
    """Run code as a notebook does: on the loop, with ``await`` at the top level."""
    names: dict[str, Any] = {"rpc": rpc, "workshop": Workshop()}
    for cell in cells:
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        value = eval(compile(cell, "<cell>", "exec", flags=flags), names)
        if inspect.isawaitable(value):
            await value
    return names


def test_a_notebook_serves_connects_and_calls() -> None:
    names = asyncio.run(
        run_cells(
            "server = rpc.serve(workshop, port=0, say=len)",
            "peer = rpc.connect(server.address, workshop, name='pi')",
            "awaited = await peer.add(1, 2)",
            "blocked = peer.add.submit(3, 4).result()",
            "items = [item for item in peer.count.submit(3)]",
            "followed = [item async for item in peer.count(3)]",
            "back = await (await server.wait_for('pi'))['pi'].add(5, 6)",
            "group = await server.peers.add(7, 8)",
            "shown = repr(peer.add(9, 10))",
            "peer.close(); await server.close()",
        )
    )
    assert (names["awaited"], names["blocked"], names["back"]) == (3, 7, 11)
    assert names["items"] == names["followed"] == [0, 1, 2]
    assert names["group"] == {"pi": 15}
    assert "await it, or take its result()" in names["shown"]


def test_servers_and_connections_close_with_their_context() -> None:
    async def scenario() -> rpc.Connection:
        with rpc.serve(Workshop(), port=None) as server, rpc.connect(server) as peer:
            assert await peer.add(1, 2) == 3
        return peer

    peer = asyncio.run(scenario())
    with pytest.raises(TransportError, match="closed on this side"):
        peer.add(1, 2)


def test_axons_stubs_work(monkeypatch: pytest.MonkeyPatch) -> None:
    connections: dict[str, rpc.Connection] = {}
    monkeypatch.setattr(axon, "_connections", connections)

    async def scenario() -> list[int]:
        with rpc.serve(Workshop(), port=0, say=len) as server:
            monkeypatch.setattr(axon.config, "port", server.port)
            where = {"worker_ip": "127.0.0.1", "rpc_name": "add"}
            answers = [
                axon.client.SyncSimplexStub(**where)(1, 2),
                axon.client.AsyncSimplexStub(**where)(3, 4).join(),
                await axon.client.CoroSimplexStub(**where)(5, 6),
            ]
            for connection in connections.values():
                await connection.close()
            return answers

    assert asyncio.run(scenario()) == [3, 7, 11]


@pytest.mark.parametrize(
    ("block", "advice"),
    [
        (lambda server, peer: rpc.connect(server), r"await aconnect\(…\)"),
        (lambda server, peer: server.__exit__(), "await its async form"),
        (lambda server, peer: next(peer), "use async for"),
    ],
    ids=["connect", "exit", "stream"],
)
def test_a_loop_that_would_wait_for_itself_is_an_error_with_advice(
    block: Callable[[rpc.Server, rpc.Stream], object], advice: str
) -> None:
    async def scenario() -> None:
        async with (
            await rpc.aserve(Workshop(), port=None) as server,
            await rpc.aconnect(server) as peer,
        ):
            stream = await peer.count(3)
            with pytest.raises(RuntimeError, match=advice):
                block(server, stream)
            assert [item async for item in stream] == [0, 1, 2]

    asyncio.run(scenario())


def test_an_exposed_coroutine_does_not_block_the_loop_it_runs_on() -> None:
    with (
        rpc.serve(Workshop(), port=0, say=len) as server,
        rpc.connect(server.address) as peer,
    ):
        assert "await aconnect" in peer.nest.within(GUARD_S)(server.address)


def test_dialling_a_server_of_ones_own_blocked_loop_says_what_to_await(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        async with await rpc.aserve(Workshop(), port=0, say=print) as server:
            with monkeypatch.context() as patch:
                patch.setattr(dialer, "CONNECT_S", 0.1)
                with pytest.raises(TransportError) as caught:
                    rpc.connect(server.address)
            assert "await aconnect(…)" in caught.value.__notes__[0]
            async with await rpc.aconnect(server.address) as peer:
                assert await peer.add(1, 2) == 3

    asyncio.run(scenario())
