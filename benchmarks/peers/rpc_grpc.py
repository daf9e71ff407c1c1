"""gRPC over asyncio: generic handlers of bytes, messages of any size.

Arrays go as ``tobytes`` and come as ``np.frombuffer``, on both sides.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import numpy as np

from peers.rpc_measure import Array

UNLIMITED = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
]


async def _small(request: bytes, context: Any) -> bytes:
    return request


async def _array(request: bytes, context: Any) -> bytes:
    return np.frombuffer(request, np.float32).tobytes()


def serve(tell: Callable[[str], None]) -> None:
    """Serve two coroutines, in the clear."""
    asyncio.run(_serve(tell))


async def _serve(tell: Callable[[str], None]) -> None:
    server = grpc.aio.server(options=UNLIMITED)
    handlers = {
        "small": grpc.unary_unary_rpc_method_handler(_small),
        "array": grpc.unary_unary_rpc_method_handler(_array),
    }
    generic = grpc.method_handlers_generic_handler("Echo", handlers)
    server.add_generic_rpc_handlers((generic,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    tell(f"127.0.0.1:{port}")
    await server.wait_for_termination()


class GrpcClient:
    """One channel."""

    def __init__(self, channel: Any) -> None:
        self._small = channel.unary_unary("/Echo/small")
        self._array = channel.unary_unary("/Echo/array")

    async def small(self, text: bytes) -> bytes:
        """Return ``text`` as it came back."""
        received: bytes = await self._small(text)
        return received

    async def array(self, values: Array) -> Array:
        """Return the array as it came back."""
        return np.frombuffer(await self._array(values.tobytes()), np.float32)


@asynccontextmanager
async def connect(address: str) -> AsyncIterator[GrpcClient]:
    """Open a channel."""
    async with grpc.aio.insecure_channel(address, options=UNLIMITED) as channel:
        yield GrpcClient(channel)
