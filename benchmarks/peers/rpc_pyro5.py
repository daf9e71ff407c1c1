"""Pyro5: an object, with a thread for each connection.

Its default serializer, serpent, writes bytes as base64 text, so its msgpack is used.
Arrays go as ``tobytes`` and come as ``np.frombuffer``, on both sides.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import Pyro5.api

from peers.rpc_measure import Array

Pyro5.config.SERIALIZER = "msgpack"
Pyro5.config.THREADPOOL_SIZE = 128  # connections at a time


class Echo:
    """What is served."""

    def small(self, text: bytes) -> bytes:
        """Return the text."""
        return text

    def array(self, data: bytes) -> bytes:
        """Return the array."""
        return np.frombuffer(data, np.float32).tobytes()


def serve(tell: Callable[[str], None]) -> None:
    """Serve an object."""
    daemon = Pyro5.api.Daemon(host="127.0.0.1", port=0)
    tell(str(daemon.register(Pyro5.api.expose(Echo))))
    daemon.requestLoop()


class PyroClient:
    """One proxy, which has to be claimed by each thread that uses it."""

    def __init__(self, proxy: Any) -> None:
        self._proxy = proxy

    def small(self, text: bytes) -> bytes:
        """Return ``text`` as it came back."""
        self._proxy._pyroClaimOwnership()
        received: bytes = self._proxy.small(text)
        return received

    def array(self, values: Array) -> Array:
        """Return the array as it came back."""
        self._proxy._pyroClaimOwnership()
        return np.frombuffer(self._proxy.array(values.tobytes()), np.float32)


@contextmanager
def connect(address: str) -> Iterator[PyroClient]:
    """Make a proxy, with a connection of its own."""
    with Pyro5.api.Proxy(address) as proxy:
        yield PyroClient(proxy)
        proxy._pyroClaimOwnership()
