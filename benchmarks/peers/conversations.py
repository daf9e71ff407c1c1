"""What a hostile peer sends: valid conversations with a server, and errors in them.

A conversation is written as bytes, so that a fuzzer of bytes can keep and change it,
and any bytes can be read as one. ``spoilt`` makes errors that such a fuzzer hardly
finds: in the values of a frame, in the order of frames, between two connections.
"""

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import msgspec
import numpy as np

from melisma import rpc
from melisma.rpc import frames
from melisma.rpc.values import pack, pack_call

#: Stand for the secrets of the server that is fuzzed, which differ in each run.
TOKEN, KEY = b"token-of-the-fuzzed-server", b"key-of-a-session"
#: Larger than that no piece of a conversation is, and no more does it have.
PIECE_BYTES, MOST_PIECES = (1 << 16) - 1, 150
_HEAD = struct.Struct("<BH")
_encode, Ext = msgspec.msgpack.encode, msgspec.msgpack.Ext


@rpc.register(name="fuzz.Point")
@dataclass
class Point:
    """A registered class with a check of its own."""

    x: float
    y: float = 0.0

    def __post_init__(self) -> None:
        self.inverse = 1 / self.x


class How(IntEnum):
    """How a piece reaches the server."""

    AT_ONCE = 0
    LATER = 1  #: after the server's next turns
    MUCH_LATER = 2  #: after a second
    RECONNECTED = 3  #: as the first one over another connection
    UNREAD = 4  #: and nothing that the server sends is read from now on
    FRAMED = 5  #: to a port: in a WebSocket's frame


Piece = tuple[How, bytes]


@dataclass
class Conversation:
    """The pieces that one peer sends: messages, or bytes to a port."""

    pieces: list[Piece] = field(default_factory=list)
    to_port: bool = False

    def written(self) -> bytes:
        """Return it as bytes."""
        parts = [bytes([self.to_port])]
        for how, data in self.pieces:
            parts += (_HEAD.pack(how, len(data[:PIECE_BYTES])), data[:PIECE_BYTES])
        return b"".join(parts)

    @classmethod
    def read(cls, data: bytes) -> "Conversation":
        """Return the conversation that any bytes are; the last piece may be cut."""
        pieces: list[Piece] = []
        at = 1
        while at + _HEAD.size <= len(data) and len(pieces) < MOST_PIECES:
            how, size = _HEAD.unpack_from(data, at)
            at += _HEAD.size
            pieces.append((How(how % len(How)), data[at : at + size]))
            at += size
        return cls(pieces, to_port=bool(data[:1] and data[0] % 2))


def websocket(data: bytes) -> bytes:
    """Return a WebSocket's binary message, masked by zeros."""
    size = len(data)
    length = bytes([0x80 | size]) if size < 126 else struct.pack(">BH", 0xFE, size)
    return b"\x82" + length + bytes(4) + data


# Valid conversations


def hello(name: str = "offender", **changes: Any) -> bytes:
    """Return a valid first frame."""
    fields: dict[str, Any] = {
        **{"protocol": frames.PROTOCOL, "library": "0", "name": name, "session": b""},
        **{"received": 0, "message_bytes": 1 << 20, "functions": {"train": True}},
        "ping_s": 5.0,
    }
    return frames.encode(frames.Hello(**(fields | changes)))


def call(function: str, *args: Any, id: int = 1, **changes: Any) -> bytes:
    """Return a call; large arrays need ``transfer``, and their chunks after it."""
    body, buffers = pack_call(args, {})
    sizes = tuple(buffer.size for buffer in buffers)
    fields: dict[str, Any] = {"within_s": None, "transfer": 0, "sizes": sizes}
    fields |= {"id": id, "function": function, "body": frames.wrap(body)} | changes
    return frames.encode(frames.Call(**fields))


def answer(value: Any, id: int = 1, kind: Any = frames.Result) -> bytes:
    """Return an answer to the server's call ``id``."""
    return frames.encode(kind(id, 0, (), frames.wrap(pack(value)[0])))


def chunks(transfer: int, data: bytes, step: int = 4000) -> list[bytes]:
    """Return a buffer in chunks."""
    prefix = frames.chunk_prefix(transfer)
    return [prefix + data[at : at + step] for at in range(0, len(data), step)]


#: The body of a call with one array, of 500,000 bytes.
_ONE_ARRAY = frames.wrap(pack_call((np.zeros(500_000, np.uint8),), {})[0])


def request(line: str, body: bytes = b"", *headers: str) -> bytes:
    """Return a request to the server's port."""
    head = [f"{line} HTTP/1.1", "Host: 127.0.0.1", *headers]
    if body:
        head += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*head, "", ""]).encode() + body


def seeds() -> list[Conversation]:
    """Return valid conversations that together use every part of the protocol."""
    array, many = np.arange(1500.0), np.arange(4000, dtype=np.uint8)
    body = pack_call(([0] * 6000,), {})[0]
    bye = frames.encode(frames.Bye("done"))
    values: list[Any] = [
        *(None, True, -(2**63), 2.5, "text", b"bytes", [1, [2]], (1, 2), {1: {"a": 2}}),
        *({1, 2}, frozenset({3}), np.float32(1.5), np.eye(2), Point(1.0, 2.0)),
    ]
    both = [
        message
        for pair in zip(
            chunks(1, array.tobytes()), chunks(2, array[::-1].tobytes()), strict=True
        )
        for message in pair
    ]
    messages = [
        [call("echo", value, id=i) for i, value in enumerate(values, 1)],
        [call("in_thread", values, id=1), call("fail", id=2), call("wait", 0.5, id=3)],
        [
            call("echo", array, id=1, transfer=1),
            call("echo", array[::-1], id=2, transfer=2),
            *both,
        ],
        [
            frames.encode(
                frames.Call(2, "echo", 3.0, 7, (len(body),), frames.BODY_IN_TRANSFER)
            ),
            *chunks(7, body),
        ],
        [
            call("count", 40, id=1),
            call("numbers", 20, id=2),
            call("count", 9, id=3),
            call("numbers", 3, id=4),
            frames.encode(frames.Credit(1, 8)),
            frames.encode(frames.Credit(2, 16)),
            frames.encode(frames.Ack(2)),
            frames.encode(frames.Cancel(1)),
        ],
        [answer([1.5, 2]), frames.encode(frames.Stream(2)), answer(many[:9], 2)],
        [
            frames.encode(frames.Fault(1, False, "ValueError", "no", "trace")),
            frames.encode(frames.Stream(2)),
            *(answer(i, 2, frames.Item) for i in range(12)),
            answer(None, 2),
        ],
        [
            frames.encode(frames.Stream(2)),
            frames.encode(
                frames.Item(2, 4, (many.size * 2,), frames.wrap(pack(np.eye(1))[0]))
            ),
            *chunks(4, many.tobytes() * 2),
            frames.encode(frames.Abort(4)),
        ],
        [
            frames.batch([call("echo", i, id=i) for i in range(20)]),
            frames.batch([frames.encode(frames.Cancel(i)) for i in range(3)]),
        ],
        [
            *(
                call("echo", id=i, transfer=i, sizes=(500_000,), body=_ONE_ARRAY)
                for i in (1, 2)
            ),
            frames.chunk_prefix(1) + bytes(60_000),
        ],
        [call("zeros", 300_000, id=1), call("zeros", 9000, id=2, within_s=2.0)],
        [call("open_door", id=1), call("secret", id=2), call("__init__", id=3)],
        [
            call("echo", array, id=1, transfer=1),
            frames.encode(frames.Abort(1)),
            frames.encode(frames.Cancel(1)),
            call("wait", 9.0, id=2, within_s=0.1),
        ],
    ]
    conversations = [
        Conversation(
            [
                (How.AT_ONCE, hello()),
                *((How(k % 3 == 0), message) for k, message in enumerate(sent)),
                *([(How.LATER, bye)] if i % 2 else []),
            ]
        )
        for i, sent in enumerate(messages)
    ]
    again = hello(session=KEY, received=1)
    conversations.append(
        Conversation(
            [
                (How.AT_ONCE, hello()),
                (How.LATER, call("zeros", 200_000, id=1)),
                (How.UNREAD, call("zeros", 200_000, id=2)),
                (How.RECONNECTED, again),
                (How.LATER, call("echo", 3, id=3)),
                (How.RECONNECTED, hello()),
                (How.MUCH_LATER, call("echo", 1, id=1)),
            ]
        )
    )
    bearer = f"Authorization: Bearer {TOKEN.decode()}"
    upgrade = request(
        "GET /rpc",
        b"",
        *(bearer, "Connection: Upgrade", "Upgrade: websocket"),
        *("Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="),
    )
    json = b'{"args": [[1, "two"]], "kwargs": {}}'
    requests = [
        *(request(f"POST /call/{f}", json, bearer) for f in ("echo", "in_thread")),
        request("POST /call/echo", json),
        request("POST /call/open_door", b"{}", bearer),
        request("POST /call/count", b'{"args": [3]}', bearer),
        request("POST /call/numbers", b'{"args": [3]}', bearer),
        request("GET /rpc", b"", bearer),
    ]
    conversations += [
        Conversation([(How.AT_ONCE, sent), (How.LATER, sent)], to_port=True)
        for sent in requests
    ]
    conversations += [
        Conversation(
            [
                (How.AT_ONCE, upgrade),
                *((How.FRAMED, piece) for _, piece in conversations[i].pieces),
                (How.LATER, b"\x89\x80" + bytes(4)),
                (How.LATER, b"\x88\x82" + bytes(4) + b"\x03\xe8"),
            ],
            to_port=True,
        )
        for i in (0, 2, 4)
    ]
    return conversations


# Errors in them

NUMBERS = (
    *range(-2, 10), 16, 64, 255, 4096, 4097, 1 << 16, 1 << 20, (1 << 20) + 1, 2**31,
    2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1, -(2**31), -(2**63),
)  # fmt: skip
FLOATS = (0.0, -0.0, 1e-9, 0.5, -1.0, 1e9, 1e308, *map(float, ("nan", "inf", "-inf")))
NAMES = (
    *("offender", "innocent", "other", "", " ", "x" * 65, "\x1b[2J", "echo", "count"),
    *("in_thread", "numbers", "zeros", "wait", "fail", "open_door", "train", "watch"),
    *("fuzz.Point", "<f8", "|O", "|u1", "float32", "bfloat16", "<f4", "<c16"),
)


def spoilt(
    conversation: Conversation, choice: random.Random, others: Sequence[Conversation]
) -> Conversation:
    """Return a conversation with a few errors, or with parts of another one."""
    pieces = list(conversation.pieces)
    for _ in range(choice.choice((1, 1, 1, 2, 2, 3, 5))):
        at = choice.randrange(len(pieces) + 1)
        how, data = pieces[at] if at < len(pieces) else (How.LATER, b"")
        match choice.randrange(14):
            case 0:
                del pieces[at : at + choice.choice((1, 1, 1, 3))]
            case 1:
                pieces[at:at] = [(how, data)] * choice.choice((1, 1, 2, 30))
            case 2:
                pieces.insert(choice.randrange(len(pieces) + 1), (how, data))
                del pieces[at : at + 1]
            case 3:
                other = choice.choice(others).pieces
                start = choice.randrange(len(other) + 1)
                pieces[at:at] = other[start : start + choice.choice((1, 2, 4, 20))]
            case 4:
                pieces[at:at] = [(how, frame(choice))]
            case 5:
                pieces[at : at + 1] = [(choice.choice(list(How)), data)]
            case 6:
                pieces[at : at + 1] = [(how, data[: choice.randrange(len(data) + 1)])]
            case 7:
                cut = choice.randrange(len(data) + 1)
                pieces[at : at + 1] = [(how, data[:cut]), (how, data[cut:])]
            case 8 | 9:
                pieces[at : at + 1] = [(how, _flipped(data, choice))]
            case 10:
                few = [piece for _, piece in pieces[at : at + 3]]
                pieces[at : at + 3] = [(how, frames.batch(few))]
            case _:
                pieces[at : at + 1] = [(how, _changed_message(data, choice))]
    return Conversation(pieces, conversation.to_port)


def frame(choice: random.Random) -> bytes:
    """Return something like a frame."""
    id, transfer = choice.choice(NUMBERS), choice.choice(NUMBERS)
    sizes = [choice.choice(NUMBERS) for _ in range(choice.choice((0, 0, 1, 2)))]
    body = choice.choice(([[[value(choice)], {}]], [value(choice)], None))
    match choice.randrange(6):
        case 0:
            return _encode([choice.randrange(14), id, value(choice), value(choice)])
        case 1:
            return frames.chunk_prefix(transfer % 2**64) + bytes(choice.choice((0, 9)))
        case 2:
            kind = choice.choice((8, 10))
            return _encode([kind, choice.choice((1, 2, id)), transfer, sizes, body])
        case 3:
            limit_s = choice.choice((None, *FLOATS))
            return _encode(
                [5, id, choice.choice(NAMES), limit_s, transfer, sizes, body]
            )
        case 4:
            return _encode([choice.choice((3, 6, 9, 12)), id])
        case _:
            return _encode([7, id, transfer])


def value(choice: random.Random, depth: int = 3) -> Any:
    """Return a value of msgpack, with extensions as ours and unlike them."""
    kind = choice.randrange(11 if depth else 6)
    match kind:
        case 0:
            return choice.choice((None, True, False))
        case 1 | 2:
            return choice.choice(NUMBERS)
        case 3:
            return choice.choice(FLOATS)
        case 4:
            return choice.choice(NAMES)
        case 5:
            return choice.randbytes(choice.choice((0, 1, 8, 16)))
        case 6:
            return [value(choice, depth - 1) for _ in range(choice.randrange(4))]
        case 7:
            return {choice.choice(NAMES): value(choice, depth - 1)}
        case 8:
            shape = [choice.choice(NUMBERS) for _ in range(choice.randrange(3))]
            source = choice.choice((0, 1, bytes(8), value(choice, depth - 1)))
            return Ext(
                choice.choice((4, 6)), _encode([choice.choice(NAMES), shape, source])
            )
        case 9:
            fields = {"x": value(choice, depth - 1), choice.choice("xyz"): 1}
            return Ext(choice.choice((5, 7)), _encode([choice.choice(NAMES), fields]))
        case _:
            code = choice.choice((*range(9), -1, 127))
            return Ext(code, _encode(value(choice, depth - 1)))


def _changed_message(data: bytes, choice: random.Random) -> bytes:
    """Return a message of which one value is another."""
    if data[:1] == bytes([frames.CHUNK]):
        return frames.chunk_prefix(choice.choice(NUMBERS) % 2**64) + data[9:]
    try:
        if data[:1] == bytes([frames.BATCH]):
            parts = list(frames.split_batch(data))
            at = choice.randrange(len(parts))
            parts[at] = _changed_message(parts[at], choice)
            return frames.batch(parts)
        return _encode(_changed(msgspec.msgpack.decode(data), choice))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return _flipped(data, choice)


def _changed(node: Any, choice: random.Random) -> Any:
    """Return a value with a change somewhere within."""
    stop = choice.random() < 0.1
    if isinstance(node, list) and node and not stop:
        at = choice.randrange(len(node))
        match choice.randrange(12):
            case 0:
                return node[:at] + node[at + 1 :]
            case 1:
                return [*node[:at], value(choice), *node[at:]]
            case _:
                return [*node[:at], _changed(node[at], choice), *node[at + 1 :]]
    if isinstance(node, dict) and node and not stop:
        key = choice.choice(list(node))
        return node | {key: _changed(node[key], choice)}
    if isinstance(node, Ext) and not stop:
        return Ext(node.code, _changed_message(bytes(node.data), choice))
    if isinstance(node, int) and choice.random() < 0.3:
        return node + choice.choice((-1, 1))
    return value(choice)


def _flipped(data: bytes, choice: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(choice.choice((1, 1, 2, 4))):
        at = choice.randrange(len(changed) + 1)
        match choice.randrange(4):
            case 0:
                changed[at:at] = choice.randbytes(choice.choice((1, 1, 4)))
            case 1:
                del changed[at : at + choice.choice((1, 1, 4))]
            case _ if at < len(changed):
                changed[at] = choice.randrange(256)
            case _:
                changed.append(choice.randrange(256))
    return bytes(changed)
