"""Remote calls: run functions of other processes and machines like local ones.

    @rpc.expose                                    peer = rpc.connect("host:8765")
    def add(a, b): return a + b                    peer.add(1, 2)

    rpc.serve().wait()

Both ends of a connection may expose and call, so a device behind a router, which can
only dial out, needs no open port. ``docs/rpc.md`` has the patterns, the wire format
and the security model.
"""

from melisma.rpc.connection import Connection, aconnect, connect
from melisma.rpc.limits import Limits
from melisma.rpc.metrics import Latencies, Metrics
from melisma.rpc.peer import Call, Function, Group, Peer, Stream
from melisma.rpc.request import Request, current
from melisma.rpc.server import Server, aserve, serve
from melisma.rpc.service import expose
from melisma.rpc.tokens import Tokens
from melisma.rpc.values import register

__all__ = [
    "Call",
    "Connection",
    "Function",
    "Group",
    "Latencies",
    "Limits",
    "Metrics",
    "Peer",
    "Request",
    "Server",
    "Stream",
    "Tokens",
    "aconnect",
    "aserve",
    "connect",
    "current",
    "expose",
    "register",
    "serve",
]
