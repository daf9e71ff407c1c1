"""The wire format: frames, chunks and batches.

A frame is one of the structs below, encoded as a msgpack array that starts with its
tag. A chunk is a part of a buffer: the byte 0xC1, the id of its transfer (8 bytes,
little-endian) and up to CHUNK_BYTES of data. A batch is several small frames in one
message: the byte 0xC2, then each frame after its length (4 bytes, little-endian).

``Call``, ``Result`` and ``Item`` carry a value. ``sizes`` lists the buffers that follow
in chunks with the id ``transfer``, so the receiver checks and allocates them before any
data arrives. The body of a value is wrapped in an array; nil in its place means that
the body was large and is the first buffer of the transfer.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from melisma.rpc.values import Malformed

PROTOCOL: Final = (1, 0)
CHUNK: Final = 0xC1
BATCH: Final = 0xC2
#: Small, so a short call never waits long behind a chunk.
CHUNK_BYTES: Final = 1 << 16
#: Limit of a message: a chunk with its prefix, a batch, or a frame with its body.
FRAME_BYTES: Final = 1 << 18


class Frame(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Base of all frames."""


class Hello(Frame, tag=1, frozen=True):
    """The handshake, first in each direction: name, limits and session state."""

    protocol: tuple[int, int]
    library: str
    name: str
    session: bytes  # the key of the session to resume, or of a new one
    received: int  # frames of that session received so far
    message_bytes: int  # limit on buffers in transfer to the sender of this
    functions: dict[str, bool]  # what the sender exposes; true if idempotent
    ping_s: float  # the sender's interval between pings


class Refused(Frame, tag=2, frozen=True):
    """The reply to a Hello that is not accepted."""

    reason: str
    permanent: bool = False  # retrying is of no use


class Ack(Frame, tag=3, frozen=True):
    """Confirms frames of the session; also the ping."""

    received: int


class Bye(Frame, tag=4, frozen=True):
    """Ends the session; it cannot be resumed."""

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
    """The caller cancelled or timed out."""

    id: int


class Credit(Frame, tag=7, frozen=True):
    """Lets the producer of a stream send more."""

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
    """The call failed: the function raised, or the call was refused."""

    id: int
    refused: bool
    error: str
    message: str
    traceback: str


class Abort(Frame, tag=12, frozen=True):
    """The sender cancelled the rest of a transfer."""

    transfer: int


#: Frames of the connection, not of the session: not counted, never sent again.
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
#: In place of a body that is the first buffer of its transfer.
BODY_IN_TRANSFER = msgspec.Raw(b"\xc0")


def decode(data: bytes) -> Any:
    """Return the frame in ``data``; Malformed if it is not one."""
    try:
        return _decoder.decode(data)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"a frame cannot be decoded: {error}") from error


def printable(text: str) -> str:
    """Return text of a peer as one line that is safe to print."""
    return "".join(c if c.isprintable() else " " for c in text[:500])


def wrap(body: bytes) -> msgspec.Raw:
    """Return a body as it is put in a frame."""
    return msgspec.Raw(b"\x91" + body)


def unwrap(wrapped: msgspec.Raw) -> bytes | None:
    """Return the body in a frame, or None if it is the first buffer."""
    data = bytes(wrapped)
    if data[:1] == b"\x91":
        return data[1:]
    if data == b"\xc0":
        return None
    raise Malformed("the body of a value is not wrapped in an array")


def batch(frames: Sequence[bytes]) -> bytes:
    """Return several frames as one message."""
    parts = [bytes([BATCH])]
    for frame in frames:
        parts += (_LENGTH.pack(len(frame)), frame)
    return b"".join(parts)


def split_batch(data: bytes) -> Iterator[bytes]:
    """Yield the frames of a batch; Malformed if it is truncated."""
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
    """Return the bytes before the data of a transfer's chunk."""
    return _PREFIX.pack(CHUNK, transfer)


def split_chunk(data: bytes) -> tuple[int, memoryview]:
    """Return the transfer id and the data of a chunk."""
    if len(data) < _PREFIX.size:
        raise Malformed(f"a chunk of {len(data)} bytes has no room for its prefix")
    return _PREFIX.unpack_from(data)[1], memoryview(data)[_PREFIX.size :]
