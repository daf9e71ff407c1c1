"""Closing a connection whose peer does not answer the closing handshake."""

import asyncio
import threading
import time
from pathlib import Path

import pytest

from melisma import rpc
from melisma.rpc import websocket

GUARD_S = 60.0  # against hanging; nothing is measured with it


@rpc.expose
def nothing() -> None:
    """Something to offer."""


@rpc.expose
def whose() -> str:
    """Return the name of the thread that answers."""
    return f"{threading.current_thread().ident}"


@pytest.mark.parametrize("secure", [False, True])
def test_who_has_no_time_for_goodbyes_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secure: bool
) -> None:
    monkeypatch.setattr(websocket, "CLOSE_S", 0.0)
    server = rpc.serve(
        nothing, port=0, folder=tmp_path, secure=secure, say=lambda text: None
    )
    with rpc.connect(server.invite(), nothing, name="hasty"):
        server.wait_for("hasty", timeout_s=GUARD_S)
        server.close()
    assert not server.peers


def test_threads_end_with_the_connection_that_they_answered_for() -> None:
    with rpc.serve(port=None, say=lambda text: None) as server:
        for _ in range(3):
            with rpc.connect(server, whose, name="caller"):
                peers = server.wait_for("caller", timeout_s=GUARD_S)
                thread = int(peers["caller"].whose())
                assert thread in {t.ident for t in threading.enumerate()}
            patience = time.monotonic() + GUARD_S
            while thread in {t.ident for t in threading.enumerate()}:
                assert time.monotonic() < patience, "a thread outlived its connection"
                time.sleep(0.001)


def test_a_connection_that_is_cancelled_does_not_cancel_the_closing_server() -> None:
    async def scenario() -> None:
        server = await rpc.aserve(port=None, say=lambda text: None)
        client = await rpc.aconnect(server, name="peer")
        (session,) = server._hub._sessions.values()
        bye = asyncio.create_task(asyncio.sleep(0.05))
        session._closing.add(bye)
        connection = asyncio.create_task(session.wait_closed())
        closing = asyncio.create_task(session.wait_closed())
        await asyncio.sleep(0)
        connection.cancel()
        await closing
        assert bye.done()
        assert not bye.cancelled()
        await client.close()
        await server.close()

    asyncio.run(scenario())
