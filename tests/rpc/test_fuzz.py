"""Hostile frames by the thousand harm nobody, and a fault of the server is found."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fuzz_frames
import pytest
import typer
from peers.conversations import (
    TOKEN,
    Conversation,
    How,
    call,
    hello,
    request,
    seeds,
    spoilt,
)
from peers.fuzzed_server import FuzzedServer, Violation
from tests.benchmarks.printed import output, row

from melisma.rpc import frames
from melisma.rpc.dispatch import Dispatcher
from melisma.rpc.incoming import IncomingTransfer
from melisma.rpc.listener import Listener
from melisma.rpc.session import Session
from melisma.rpc.tokens import Identity


def _upgrade(key: str) -> bytes:
    return (
        "GET /rpc HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\n"
        f"Authorization: Bearer {TOKEN.decode()}\r\nUpgrade: websocket\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
    ).encode()


STREAM = frames.encode(frames.Stream(2))
UNREADABLE = frames.encode(frames.Item(2, 0, (), frames.wrap(b"\xd4\x63\0")))
LARGE = frames.encode(frames.Item(2, 1, (1 << 17,), frames.BODY_IN_TRANSFER))
#: Conversations that broke a server once, by what they did.
CRASHERS: dict[str, Conversation] = {
    "an item of a stream that cannot be decoded": Conversation(
        [(How.AT_ONCE, hello()), (How.LATER, STREAM), (How.LATER, UNREADABLE)]
    ),
    "an item of a stream that is too large": Conversation(
        [(How.AT_ONCE, hello()), (How.LATER, STREAM), (How.LATER, LARGE)]
    ),
    "a second request that is not HTTP": Conversation(
        [(How.AT_ONCE, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"), (How.LATER, b"Host: a")],
        to_port=True,
    ),
    "a header that is not HTTP": Conversation(
        [(How.AT_ONCE, b"GET / HTTP/1.1\r\n\0: 1\r\n\r\n")], to_port=True
    ),
    "a WebSocket's key that is not ASCII": Conversation(
        [(How.AT_ONCE, _upgrade("é"))], to_port=True
    ),
}


@pytest.fixture(scope="module")
def server() -> Iterator[FuzzedServer]:
    with FuzzedServer() as server:
        yield server


@pytest.mark.parametrize("crasher", CRASHERS)
def test_what_broke_a_server_once_does_not_again(
    server: FuzzedServer, crasher: str
) -> None:
    assert server.converse(CRASHERS[crasher].written()) > 0


def test_valid_conversations_are_served_to_their_end(server: FuzzedServer) -> None:
    for conversation in seeds():
        assert server.converse(conversation.written()) == len(conversation.pieces)


def test_thousands_of_hostile_frames_harm_nobody(server: FuzzedServer) -> None:
    choice, valid, taken = random.Random(0), seeds(), 0
    while taken < 3000:
        conversation = spoilt(choice.choice(valid), choice, valid)
        taken += server.converse(conversation.written())


def test_a_conversation_is_read_back_as_it_was_written() -> None:
    for conversation in (*seeds(), *CRASHERS.values()):
        assert Conversation.read(conversation.written()) == conversation


def test_any_bytes_are_a_conversation(server: FuzzedServer) -> None:
    choice = random.Random(0)
    for size in range(100):
        server.converse(choice.randbytes(size))


def test_conversations_that_reach_new_lines_are_kept(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fuzz_frames.main(frames=250, seed=0, guidance="own", corpus=tmp_path)
    assert len(list(tmp_path.iterdir())) > len(seeds())
    printed = output(capsys)
    assert row(printed, "nothing crashed")[0] >= 250
    run, of, share = row(printed, "session")
    assert 0.7 * of < run <= of
    assert share == round(100 * run / of)


def test_another_guidance_is_refused() -> None:
    with pytest.raises(typer.BadParameter, match="'owm': give own"):
        fuzz_frames.main(frames=1, guidance="owm")


# Faults planted in the server


def found(conversation: Conversation) -> str:
    """Return what a new server is found to do wrong in a conversation."""
    with FuzzedServer() as server, pytest.raises(Violation) as violation:
        server.converse(conversation.written())
    return str(violation.value)


def test_a_call_without_permission_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Dispatcher, "_allows", lambda *_: True)
    door = Conversation([(How.AT_ONCE, hello()), (How.LATER, call("open_door"))])
    assert "open_door ran for 'offender'" in found(door)


def test_a_call_over_http_without_a_token_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    everything = Identity("0")
    monkeypatch.setattr(Listener, "_identify", lambda *_: everything)
    post = request("POST /call/echo", b"{}")
    assert "echo ran for 'HTTP'" in found(
        Conversation([(How.AT_ONCE, post)], to_port=True)
    )


def test_memory_that_is_never_given_back_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(IncomingTransfer, "discard", lambda _: None)
    half = call("echo", id=1, transfer=1, sizes=(5000,))
    assert "'memory': 5000" in found(
        Conversation([(How.AT_ONCE, hello()), (How.LATER, half)])
    )


def test_a_session_that_never_ends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "_start_grace", lambda _: None)
    assert "'sessions': {'offender'}" in found(
        Conversation([(How.AT_ONCE, hello()), (How.LATER, call("echo", 1))])
    )


def test_an_unexpected_error_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise KeyError("a frame nobody thought of")

    monkeypatch.setattr(Session, "_on_abort", broken)
    abort = frames.encode(frames.Abort(1))
    assert "KeyError('a frame nobody thought of')" in found(
        Conversation([(How.AT_ONCE, hello()), (How.LATER, abort)])
    )
