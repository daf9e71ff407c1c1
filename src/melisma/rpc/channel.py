"""The sending half of a session, which caller and dispatcher share."""

import asyncio
from typing import Any

import numpy as np

from melisma.errors import RpcError, TransportError
from melisma.rpc import frames
from melisma.rpc.limits import Limits
from melisma.rpc.link import Link, Transfer
from melisma.rpc.metrics import Metrics
from melisma.rpc.transport import Transport
from melisma.rpc.values import Buffer

#: Larger bodies are sent in chunks, as the first buffer of a transfer.
BODY_BYTES = 1 << 16


class Channel:
    """Sends frames and values to one peer, on one event loop."""

    def __init__(self, name: str, limits: Limits, metrics: Metrics) -> None:
        self.loop = asyncio.get_running_loop()
        self.name, self.limits, self.metrics = name, limits, metrics
        self.link = Link()
        self.transport: Transport | None = None
        #: What the peer exposes; True for idempotent functions.
        self.functions: dict[str, bool] = {}
        self.ended: RpcError | None = None  #: why the session ended
        self._transfers = 0

    def send(self, frame: frames.Frame) -> None:
        """Send a frame, now or when a transport is connected."""
        self.link.send(frames.encode(frame))

    def encode(
        self, kind: Any, fields: tuple[Any, ...], body: bytes, buffers: list[Buffer]
    ) -> Transfer:
        """Return the frame of a packed value; TransportError if it is too large."""
        if not buffers and len(body) <= BODY_BYTES:
            return Transfer(frames.encode(kind(*fields, 0, (), frames.wrap(body))))
        wrapped = frames.wrap(body)
        if len(body) > BODY_BYTES:
            buffers = [np.frombuffer(body, np.uint8), *buffers]
            wrapped = frames.BODY_IN_TRANSFER
        sizes = tuple([buffer.size for buffer in buffers])
        if sum(sizes) > self.link.room_bytes:
            raise TransportError(
                f"{sum(sizes)} bytes are more than the {self.link.room_bytes} that"
                f" {self.name} accepts: send parts, or raise its limits.message_bytes"
            )
        self._transfers += 1
        head = frames.encode(kind(*fields, self._transfers, sizes, wrapped))
        if len(head) > frames.FRAME_BYTES:
            raise TransportError(
                f"{len(sizes)} arrays are too many for one frame: send parts"
            )
        return Transfer(head, self._transfers, buffers)

    def send_transfer(self, transfer: Transfer) -> None:
        """Send a frame and the buffers that follow it, if any."""
        if transfer.bytes:
            self.link.send_transfer(transfer)
        else:
            self.link.send(transfer.head)
