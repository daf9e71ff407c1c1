"""Call functions of other processes and machines, as easily as those of this one.

    @rpc.expose                                    peer = rpc.connect("host:8765")
    def add(a, b): return a + b                    peer.add(1, 2)

    rpc.serve().wait()

Whoever dials can be called back over the same connection, so a device behind a router
needs no open port. ``docs/rpc.md`` has the patterns, the wire and the security model.
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
