"""Something else answers at the server's address: a client that was let in dials on."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.rpc.test_security import kept, secured, token_of

from melisma import rpc
from melisma.errors import AccessError, UnverifiedError
from melisma.rpc import certificates, dialer
from melisma.rpc.tokens import Tokens

#: Guards against hanging; nothing is measured with it.
GUARD_S = 60.0

Answer = Callable[[socket.socket], None]


@rpc.expose
def add(a: int, b: int) -> int:
    return a + b


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialer, "LONGEST_BACKOFF_S", 0.02)
    monkeypatch.setattr(dialer, "LONGEST_UNVERIFIED_S", 0.02)


def says(text: bytes) -> Answer:
    def answer(client: socket.socket) -> None:
        client.recv(1 << 16)
        client.sendall(text)

    return answer


def with_certificate(folder: Path, valid_days: float) -> Answer:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*kept(folder, certificates.self_signed(valid_days)))

    def answer(client: socket.socket) -> None:
        with tls.wrap_socket(client, server_side=True) as stream:
            stream.recv(1 << 16)

    return answer


FORBIDDEN = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
PORTAL = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nlog in"
ELSEWHERE = b"HTTP/1.1 302 Found\r\nLocation: http://%s/\r\n\r\n" % (b"a" * 300)
GARBAGE = b"\x00\xffSSH-2.0-whatever\r\n\r\n"


class Place(NamedTuple):
    port: int
    enough: threading.Event  #: set once it has answered ``times`` times


@contextmanager
def in_its_place(port: int, answer: Answer, times: int) -> Iterator[Place]:
    """Answer at a port in place of the server."""
    enough = threading.Event()

    def listen() -> None:
        for count in range(1, 1_000_000):
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client, suppress(OSError):
                client.settimeout(GUARD_S)
                answer(client)
            if count == times:
                enough.set()

    with socket.create_server(("127.0.0.1", port)) as listener:
        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        yield Place(listener.getsockname()[1], enough)
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def dialled_on(
    first: rpc.Server,
    again: Callable[[int], rpc.Server],
    answer: Answer,
    join: str,
) -> None:
    """Assert that a client survives somebody else in the place of its server."""
    with rpc.connect(join, name="pi") as there:
        first.close()
        with in_its_place(first.port, answer, times=4) as place:
            assert place.enough.wait(GUARD_S)
        with again(first.port) as second:
            second.wait_for("pi", timeout_s=GUARD_S)
            assert there.add(1, 2) == 3


def slower_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in caplog.messages if "more slowly" in text]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (FORBIDDEN, "failed"),
        (GARBAGE, "failed"),
        (b"", "nobody answers"),
    ],
)
def test_a_server_without_tls_in_its_place_is_an_outage(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    text: bytes,
    reason: str,
) -> None:
    monkeypatch.setattr(dialer, "TOLD_FROM_S", 0.0)
    first = secured(tmp_path)
    dialled_on(
        first, lambda port: secured(tmp_path, port=port), says(text), first.invite()
    )
    assert any(reason in line for line in caplog.messages)


@pytest.mark.parametrize("valid_days", [1, -1])
def test_another_certificate_is_an_outage_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, valid_days: float
) -> None:
    first = secured(tmp_path / "ours")
    dialled_on(
        first,
        lambda port: secured(tmp_path / "ours", port=port),
        with_certificate(tmp_path / "theirs", valid_days),
        first.invite(),
    )
    (line,) = slower_lines(caplog)
    assert "another certificate than the join string pins" in line
    assert caplog.messages[-1].startswith("connected to 127.0.0.1")


@pytest.mark.parametrize("text", [FORBIDDEN, NOT_FOUND, PORTAL, ELSEWHERE, GARBAGE])
def test_another_server_on_a_port_of_loopback_is_an_outage(
    caplog: pytest.LogCaptureFixture, text: bytes
) -> None:
    def serve(port: int) -> rpc.Server:
        return rpc.serve(add, port=port, say=len)

    first = serve(0)
    dialled_on(first, serve, says(text), first.address)
    assert len(slower_lines(caplog)) == 1


def test_the_server_itself_ends_it_after_an_outage(tmp_path: Path) -> None:
    first = secured(tmp_path / "ours")
    join = first.invite("pi")
    with rpc.connect(join, name="pi") as there:
        first.close()
        Tokens(tmp_path / "ours" / "tokens.json").revoke(token_of(join)[:8])
        answer = with_certificate(tmp_path / "theirs", 1)
        with in_its_place(first.port, answer, times=2) as place:
            assert place.enough.wait(GUARD_S)
        with (
            secured(tmp_path / "ours", port=first.port),
            pytest.raises(AccessError, match="does not accept this token") as caught,
        ):
            there.wait()
    assert not isinstance(caught.value, UnverifiedError)
