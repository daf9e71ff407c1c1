"""Axon's own names, so that programs written for it run after a change of import.

    from melisma.rpc import axon

Axon is the RPC library of the thesis (§2.4). Its stubs differ in how the caller waits:
``Sync`` returns the value, ``Async`` a handle to ``join``, ``Coro`` something to await.

Differences from Axon:
1. Simplex and duplex stubs are the same: one connection carries the answer whenever it
   comes, the caller needs no open port, and there is no time limit to get around.
2. A call starts when it is made, runs once, and may be joined or awaited many times.
3. No pickle, and only decorated functions can be called.
4. A worker on an address that others can reach asks for a token (``melisma.rpc.serve``
   prints it); ``init`` without arguments serves this machine.
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
    """What Axon keeps in ``axon.config``."""

    port = 8000  #: where workers listen and stubs dial


config = Config()
_connections: dict[str, Connection] = {}
_connecting = threading.Lock()


def _init(**options: Any) -> Any:
    """Serve every decorated function until Ctrl-C; in a coroutine, to be awaited."""
    return serve(port=config.port, **options).wait()


def _connection(worker: str) -> Connection:
    """Return the line to a worker, one for all stubs of this process."""
    address = worker if "://" in worker else f"{worker}:{config.port}"
    with _connecting:
        if address not in _connections:
            _connections[address] = connect(address)
        return _connections[address]


def _stub(answer: Callable[[Call], Any]) -> Callable[..., Callable[..., Any]]:
    """Return a maker of stubs that give their caller ``answer`` of each call."""

    def make(*, worker_ip: str, rpc_name: str) -> Callable[..., Any]:
        function = _connection(worker_ip)[rpc_name]
        return lambda *args, **kwargs: answer(function.submit(*args, **kwargs))

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
