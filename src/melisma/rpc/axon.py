"""Axon's API on top of ``melisma.rpc``: change the import, keep the program.

    from melisma.rpc import axon

Axon is the RPC library of the thesis (§2.4). Its stubs differ in how the caller waits:
``Sync`` returns the value, ``Async`` a handle to ``join``, ``Coro`` something to await.

Differences from Axon:
1. Simplex and duplex stubs are the same: the answer returns over the caller's own
   connection, so the caller needs no open port and long calls no duplex stub.
2. A call starts when it is made, runs once, and may be joined or awaited many times.
3. No pickle, and only decorated functions can be called.
4. ``init`` without arguments listens on loopback. On any other address a worker
   requires TLS and a token, as ``melisma.rpc.serve`` does.
"""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from melisma.rpc.connection import Connection, connect
from melisma.rpc.peer import Call
from melisma.rpc.server import serve
from melisma.rpc.service import expose


class Config:
    """Axon's settings, ``axon.config``."""

    port = 8000  #: where workers listen and stubs connect


config = Config()
_connections: dict[str, Connection] = {}
_connecting = threading.Lock()


def _init(**options: Any) -> Any:
    """Serve every decorated function until Ctrl-C; in a coroutine, to be awaited."""
    return serve(port=config.port, **options).wait()


def _connection(worker: str) -> Connection:
    """Return the connection to a worker, which all stubs of this process share."""
    address = worker if "://" in worker else f"{worker}:{config.port}"
    with _connecting:
        if address not in _connections:
            _connections[address] = connect(address)
        return _connections[address]


def _stub(convert: Callable[[Call], Any]) -> Callable[..., Callable[..., Any]]:
    """Return a stub factory; stubs return ``convert(call)`` for each call they make."""

    def make(*, worker_ip: str, rpc_name: str) -> Callable[..., Any]:
        function = _connection(worker_ip)[rpc_name]
        return lambda *args, **kwargs: convert(function.submit(*args, **kwargs))

    return make


async def _awaited(call: Call) -> Any:
    return await call


_sync, _async, _coro = _stub(Call.result), _stub(lambda call: call), _stub(_awaited)

worker = SimpleNamespace(rpc=expose, init=_init)
client = SimpleNamespace(
    SyncSimplexStub=_sync,
    AsyncSimplexStub=_async,
    CoroSimplexStub=_coro,
    SyncDuplexStub=_sync,
    AsyncDuplexStub=_async,
    CoroDuplexStub=_coro,
)
