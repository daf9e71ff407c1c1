"""A value that arrives in chunks."""

from collections import deque
from typing import Any

import numpy as np

from melisma.rpc.memory import Reservation
from melisma.rpc.values import Buffer, Malformed


class IncomingTransfer:
    """A frame whose buffers are arriving; if not ``wanted``, they are discarded."""

    def __init__(self, frame: Any, wanted: bool) -> None:
        self.frame, self.wanted = frame, wanted
        self.left_bytes = self.bytes = sum(frame.sizes)
        self.reserved: Reservation | None = None
        self.buffers: list[Buffer] = []
        self._views: deque[memoryview] = deque()
        self._offset = 0

    def fill(self, chunk: memoryview) -> None:
        """Copy a chunk into the buffers; Malformed if it exceeds them."""
        if self.left_bytes == self.bytes and self.wanted:
            self._allocate()
        self.left_bytes -= len(chunk)
        if self.left_bytes < 0:
            raise Malformed("a transfer is longer than announced")
        while chunk and self._views:
            view = self._views[0]
            part = min(len(chunk), len(view) - self._offset)
            view[self._offset : self._offset + part] = chunk[:part]
            self._offset += part
            chunk = chunk[part:]
            if self._offset == len(view):
                self._views.popleft()
                self._offset = 0

    def discard(self) -> None:
        """Keep nothing of it any more: nobody waits for it."""
        self.wanted, self.buffers = False, []
        self._views.clear()
        if self.reserved:
            self.reserved.release()
            self.reserved = None

    def _allocate(self) -> None:
        try:
            self.buffers = [np.empty(size, np.uint8) for size in self.frame.sizes]
        except MemoryError:
            raise Malformed(f"{self.bytes} bytes are more than the memory") from None
        self._views = deque(buffer.data for buffer in self.buffers)
