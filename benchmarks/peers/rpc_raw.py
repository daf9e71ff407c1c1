"""A bare TCP socket: eight bytes of length, then memory. No calls, no names, no types.

What any stack on top of TCP could reach with blocking sockets. Each message is received
into fresh memory, as whoever keeps the arrays must.
"""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from peers.rpc_measure import Array

AT_ONCE_BYTES = 65536  #: up to this, length and memory are sent in one go


def serve(tell: Callable[[str], None]) -> None:
    """Send back whatever comes, with one thread per connection."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        tell(str(listener.getsockname()[1]))
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_echo, args=(connection,), daemon=True).start()


def _echo(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection:
        while (memory := _receive(connection)) is not None:
            _send(connection, memory.data)


def _send(connection: socket.socket, memory: memoryview) -> None:
    length = memory.nbytes.to_bytes(8)
    if memory.nbytes <= AT_ONCE_BYTES:
        connection.sendall(length + memory)
    else:
        connection.sendall(length)
        connection.sendall(memory)


def _receive(connection: socket.socket) -> NDArray[np.uint8] | None:
    length = connection.recv(8, socket.MSG_WAITALL)
    if not length:
        return None
    memory = np.empty(int.from_bytes(length), np.uint8)
    view = memory.data
    while view:
        view = view[connection.recv_into(view) :]
    return memory


class RawClient:
    """One connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def small(self, text: bytes) -> bytes:
        """Return ``text`` as it came back."""
        return self._exchange(memoryview(text)).tobytes()

    def array(self, values: Array) -> Array:
        """Return the array as it came back."""
        return self._exchange(values.data.cast("B")).view(np.float32)

    def _exchange(self, memory: memoryview) -> NDArray[np.uint8]:
        _send(self._connection, memory)
        received = _receive(self._connection)
        assert received is not None, "the server hung up"
        return received


@contextmanager
def connect(address: str) -> Iterator[RawClient]:
    """Connect a socket."""
    with socket.create_connection(("127.0.0.1", int(address))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield RawClient(connection)
