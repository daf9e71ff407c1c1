"""Axon: pickles in base64 in an HTTP form, to Flask's own server.

Flask refuses forms above half a megabyte, so that limit is lifted. Stubs that block are
used, the fastest of Axon's. It is served as its ``init`` does, but on loopback only.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import axon
from werkzeug.serving import make_server

from peers.rpc_measure import Array


def serve(tell: Callable[[str], None]) -> None:
    """Serve one function."""

    def echo(value: Any) -> Any:
        return value

    axon.worker.rpc()(echo)
    app = axon.config.default_worker_tl.app
    app.config["MAX_FORM_MEMORY_SIZE"] = None
    server = make_server("127.0.0.1", 0, app, threaded=True)
    tell(f"http://127.0.0.1:{server.port}/rpc")
    server.serve_forever()


class AxonClient:
    """The stub of the server."""

    def __init__(self, stub: Any) -> None:
        self._stub = stub

    def small(self, text: bytes) -> bytes:
        """Return ``text`` as it came back."""
        received: bytes = self._stub.echo(text)
        return received

    def array(self, values: Array) -> Array:
        """Return the array as it came back."""
        received: Array = self._stub.echo(values)
        return received


@contextmanager
def connect(address: str) -> Iterator[AxonClient]:
    """Ask the server for its stub; many threads may use it."""
    yield AxonClient(axon.client.get_stub(address, stub_type=axon.stubs.SyncStub))
