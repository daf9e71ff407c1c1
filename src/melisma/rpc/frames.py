"""What travels between two peers.

A frame is one of the structs below, as a msgpack array that starts with its number;
or a chunk of memory: the byte 0xC1, the number of its transfer (8 bytes, little-endian)
and up to CHUNK_BYTES of memory. Several small frames may travel as one message: the
byte 0xC2, then each with its length (4 bytes, little-endian) before it.

``Call``, ``Result`` and ``Item`` carry a value. ``sizes`` lists the memory that follows
in chunks under the number ``transfer``, so that the receiver checks and makes room
before any of it arrives. A value's body is wrapped in an array; nil in its place says
that the body was large, and is the first memory of the transfer.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from melisma.rpc.values import Malformed

PROTOCOL: Final = (1, 0)
CHUNK: Final = 0xC1
BATCH: Final = 0xC2
#: Small enough that a short call is never far behind in the queue.
CHUNK_BYTES: Final = 1 << 16
#: Nothing honest is larger: a chunk with its prefix, or a frame with its body.
FRAME_BYTES: Final = 1 << 18


class Frame(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Base of all frames."""


class Hello(Frame, tag=1, frozen=True):
    """First in each direction: who speaks, and where the session stands."""

    protocol: tuple[int, int]
    library: str
    name: str
    session: bytes  # the key of the session to go on with, or of the new one
    received: int  # frames of that session that have arrived here
    message_bytes: int  # the most memory that may be under way to this side
    functions: dict[str, bool]  # what this side exposes; true where idempotent
    ping_s: float  # how often this side gives a sign of life


class Refused(Frame, tag=2, frozen=True):
    """In place of a Hello: no conversation, and why."""

    reason: str
    permanent: bool = False  # dialling again is of no use


class Ack(Frame, tag=3, frozen=True):
    """Frames of the session received so far; also the sign of life."""

    received: int


class Bye(Frame, tag=4, frozen=True):
    """The session is over: nothing is to be resumed."""

    reason: str


class Call(Frame, tag=5, frozen=True):
    """Run a function."""

    id: int
    function: str
    within_s: float | None
    transfer: int
    sizes: tuple[int, ...]
    body: msgspec.Raw


class Cancel(Frame, tag=6, frozen=True):
    """The caller no longer waits."""

    id: int


class Credit(Frame, tag=7, frozen=True):
    """The caller has room for more of a stream."""

    id: int
    amount: int


class Result(Frame, tag=8, frozen=True):
    """The answer, or the end of a stream."""

    id: int
    transfer: int
    sizes: tuple[int, ...]
    body: msgspec.Raw


class Stream(Frame, tag=9, frozen=True):
    """The answer is a stream: items follow."""

    id: int


class Item(Frame, tag=10, frozen=True):
    """One item of a stream."""

    id: int
    transfer: int
    sizes: tuple[int, ...]
    body: msgspec.Raw


class Fault(Frame, tag=11, frozen=True):
    """The call brought no answer: the function raised, or was not to be called."""

    id: int
    refused: bool
    error: str
    message: str
    traceback: str


class Abort(Frame, tag=12, frozen=True):
    """The rest of a transfer will not come."""

    transfer: int


#: Frames of the connection, not of the session: never counted, never sent again.
UNCOUNTED = frozenset({Hello, Refused, Ack, Bye})

AnyFrame = (
    Hello | Refused | Ack | Bye | Call | Cancel | Credit
    | Result | Stream | Item | Fault | Abort
)  # fmt: skip

encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(AnyFrame)
_PREFIX = struct.Struct("<BQ")
_LENGTH = struct.Struct("<I")
LENGTH_BYTES: Final = _LENGTH.size
#: Stands for a body that is the first memory of its transfer.
BODY_IN_TRANSFER = msgspec.Raw(b"\xc0")


def decode(data: bytes) -> Any:
    """Return the frame in ``data``; Malformed if there is none."""
    try:
        return _decoder.decode(data)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"a frame cannot be read: {error}") from error


def printable(text: str) -> str:
    """Return what the far side wrote, fit to be shown on one line."""
    return "".join(c if c.isprintable() else " " for c in text[:500])


def wrap(body: bytes) -> msgspec.Raw:
    """Return a body as it stands in a frame."""
    return msgspec.Raw(b"\x91" + body)


def unwrap(wrapped: msgspec.Raw) -> bytes | None:
    """Return a frame's body, or None if it travels as memory."""
    data = bytes(wrapped)
    if data[:1] == b"\x91":
        return data[1:]
    if data == b"\xc0":
        return None
    raise Malformed("a value without its envelope")


def batch(frames: Sequence[bytes]) -> bytes:
    """Return several frames as one message."""
    parts = [bytes([BATCH])]
    for frame in frames:
        parts += (_LENGTH.pack(len(frame)), frame)
    return b"".join(parts)


def split_batch(data: bytes) -> Iterator[bytes]:
    """Return the frames of a batch one by one; Malformed if it is cut short."""
    at, end = 1, len(data)
    while at < end:
        start = at + LENGTH_BYTES
        if start > end:
            raise Malformed("a batch ends within a length")
        at = start + _LENGTH.unpack_from(data, start - LENGTH_BYTES)[0]
        if at > end:
            raise Malformed("a batch ends within a frame")
        yield data[start:at]


def chunk_prefix(transfer: int) -> bytes:
    """Return what stands before a transfer's memory."""
    return _PREFIX.pack(CHUNK, transfer)


def split_chunk(data: bytes) -> tuple[int, memoryview]:
    """Return a chunk's transfer and memory."""
    if len(data) < _PREFIX.size:
        raise Malformed(f"a chunk of {len(data)} bytes has no room for its prefix")
    return _PREFIX.unpack_from(data)[1], memoryview(data)[_PREFIX.size :]
