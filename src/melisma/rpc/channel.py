"""The sending half of a session, shared by what makes calls and what answers them."""

import asyncio
from typing import Any

import numpy as np

from melisma.errors import RpcError, TransportError
from melisma.rpc import frames
from melisma.rpc.limits import Limits
from melisma.rpc.link import Bulk, Link
from melisma.rpc.metrics import Metrics
from melisma.rpc.transport import Carrier
from melisma.rpc.values import Memory

#: Bodies above this size travel as memory.
BODY_BYTES = 1 << 16


class Channel:
    """Sends frames and values to one peer, on one event loop."""

    def __init__(self, name: str, limits: Limits, metrics: Metrics) -> None:
        self.loop = asyncio.get_running_loop()
        self.name, self.limits, self.metrics = name, limits, metrics
        self.link = Link()
        self.carrier: Carrier | None = None
        self.functions: dict[str, bool] = {}  #: what the far side exposes
        self.over: RpcError | None = None  #: why no call can succeed, if so
        self._transfers = 0

    def post(self, frame: frames.Frame) -> None:
        """Send a frame, now or when there is a carrier."""
        self.link.send(frames.encode(frame))

    def envelope(
        self, kind: Any, fields: tuple[Any, ...], body: bytes, memories: list[Memory]
    ) -> Bulk:
        """Return a frame around a value; TransportError if the far side has no room."""
        if not memories and len(body) <= BODY_BYTES:
            return Bulk(frames.encode(kind(*fields, 0, (), frames.wrap(body))))
        wrapped = frames.wrap(body)
        if len(body) > BODY_BYTES:
            memories = [np.frombuffer(body, np.uint8), *memories]
            wrapped = frames.NOT_HERE
        sizes = tuple([memory.size for memory in memories])
        if sum(sizes) > self.link.room_bytes:
            raise TransportError(
                f"{sum(sizes)} bytes are more than the {self.link.room_bytes} that"
                f" {self.name} takes: send parts, or raise its message_bytes"
            )
        self._transfers += 1
        head = frames.encode(kind(*fields, self._transfers, sizes, wrapped))
        if len(head) > frames.FRAME_BYTES:
            raise TransportError(f"{len(sizes)} arrays are too many for one message")
        return Bulk(head, self._transfers, memories)

    def post_bulk(self, bulk: Bulk) -> None:
        """Send a frame and the memory that belongs to it."""
        if bulk.bytes:
            self.link.send_bulk(bulk)
        else:
            self.link.send(bulk.head)
