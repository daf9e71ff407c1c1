"""A device measures its link before it takes part."""

import json
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from melisma import rpc
from melisma.rpc.address import Address
from melisma.rpc.probing import MOST, MOST_BYTES


@pytest.fixture
def server(tmp_path: Path) -> Iterator[rpc.Server]:
    with rpc.serve(secure=True, folder=tmp_path, port=0, say=len) as here:
        yield here


def ask(
    server: rpc.Server, query: str = "", body: bytes | None = None, token: str = ""
) -> bytes:
    address = Address.of(server.join_string())
    request = urllib.request.Request(f"{address.url}/link{query}", body)
    request.add_header("Authorization", f"Bearer {token or address.token}")
    request.add_header("Content-Type", "application/octet-stream")
    tls = ssl._create_unverified_context()
    with urllib.request.urlopen(request, context=tls, timeout=30) as reply:
        return bytes(reply.read())


def test_as_many_bytes_come_as_were_asked_for(server: rpc.Server) -> None:
    assert len(ask(server, "?bytes=100000")) == 100_000
    assert ask(server, "?bytes=64") != ask(server, "?bytes=64")
    assert ask(server) == b""


def test_what_is_sent_is_counted(server: rpc.Server) -> None:
    assert json.loads(ask(server, body=bytes(300_000))) == {"bytes": 300_000}


@pytest.mark.parametrize("asked", [str(MOST_BYTES + 1), "-1", "x", "1e3", "9" * 30])
def test_more_than_a_little_is_refused(server: rpc.Server, asked: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="400"):
        ask(server, f"?bytes={asked}")


def test_nobody_measures_without_a_token(server: rpc.Server) -> None:
    with pytest.raises(urllib.error.HTTPError, match="401"):
        ask(server, "?bytes=10", token="ab.secret")


def test_no_more_is_taken_than_is_sent(server: rpc.Server) -> None:
    with pytest.raises(urllib.error.HTTPError, match="400"):
        ask(server, body=bytes(MOST_BYTES + 1))


def test_a_few_measure_at_a_time_and_calls_go_on(tmp_path: Path) -> None:
    with rpc.serve(port=0, say=len) as here, ExitStack() as slow:
        for _ in range(MOST):  # each sends less than it said, and waits
            reader = socket.create_connection(("127.0.0.1", here.port))
            slow.enter_context(reader)
            head = "POST /link HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
            reader.sendall(head.encode())
        url = f"http://{here.address}/link?bytes=1"
        with pytest.raises(urllib.error.HTTPError, match="503"):
            keep_asking(url)
        with rpc.connect(here.address, name="a"):
            here.wait_for("a", timeout_s=30)


def keep_asking(url: str) -> None:
    """Ask until it is refused: the server may not have read all requests yet."""
    for _ in range(1000):
        urllib.request.urlopen(url, timeout=30).close()
