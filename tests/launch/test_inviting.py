"""What a server that speaks no TLS tells devices to join with."""

from pathlib import Path

from melisma import rpc
from melisma.browser.phones import Phones
from melisma.launch.inviting import credentials, invitation


def test_all_come_by_the_proxy_that_ends_tls(tmp_path: Path) -> None:
    phones = Phones(url="https://lab.example.org/")
    with rpc.serve(port=0, plain=True, folder=tmp_path, say=len) as server:
        join, token = credentials(server, phones)
        told = invitation(server, phones)
        secret = server.loose_token
    assert (join, token) == (f"melisma://{secret}@lab.example.org:443", None)
    assert told.command == f"MELISMA_JOIN='{join}' melisma join"


def test_without_a_proxy_the_token_stands_apart(tmp_path: Path) -> None:
    with rpc.serve(port=0, plain=True, folder=tmp_path, say=len) as server:
        assert credentials(server, Phones()) == (server.address, server.loose_token)
        told = invitation(server, Phones())
        assert told.command == (
            f"MELISMA_TOKEN='{server.loose_token}' melisma join '{server.address}'"
        )


def test_with_tls_the_join_string_has_it_all(tmp_path: Path) -> None:
    phones = Phones(url="https://lab.example.org")
    with rpc.serve(port=0, secure=True, folder=tmp_path, say=len) as server:
        assert credentials(server, phones) == (server.join_string(), None)
