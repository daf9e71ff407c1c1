"""Closing a connection whose peer does not answer the closing handshake."""

from pathlib import Path

import pytest

from melisma import rpc
from melisma.rpc import websocket

GUARD_S = 60.0  # against hanging; nothing is measured with it


@rpc.expose
def nothing() -> None:
    """Something to offer."""


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
