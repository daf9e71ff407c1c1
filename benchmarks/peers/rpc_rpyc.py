"""RPyC: a service of one method, with a thread for each connection.

Arrays go as ``tobytes`` and come as ``np.frombuffer``, on both sides: RPyC sends bytes
as they are, where an array would stay with its owner and be asked element by element.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import rpyc
from rpyc.utils.server import ThreadedServer

from peers.rpc_measure import Array

PATIENT = {"sync_request_timeout": None}


def _small(self: Any, text: bytes) -> bytes:
    return text


def _array(self: Any, data: bytes) -> bytes:
    return np.frombuffer(data, np.float32).tobytes()


def serve(tell: Callable[[str], None]) -> None:
    """Serve two functions."""
    methods = {"exposed_small": _small, "exposed_array": _array}
    service = type("Echo", (rpyc.Service,), methods)
    server = ThreadedServer(
        service, hostname="127.0.0.1", port=0, protocol_config=PATIENT, backlog=128
    )
    tell(str(server.port))
    server.start()


class RpycClient:
    """One connection."""

    def __init__(self, connection: Any) -> None:
        self._root = connection.root

    def small(self, text: bytes) -> bytes:
        """Return ``text`` as it came back."""
        received: bytes = self._root.small(text)
        return received

    def array(self, values: Array) -> Array:
        """Return the array as it came back."""
        return np.frombuffer(self._root.array(values.tobytes()), np.float32)


@contextmanager
def connect(address: str) -> Iterator[RpycClient]:
    """Open a connection, for one thread."""
    with rpyc.connect("127.0.0.1", int(address), config=PATIENT) as connection:
        yield RpycClient(connection)
