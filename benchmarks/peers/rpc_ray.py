"""Ray: one actor on this machine, arrays by ``ray.put``.

Between processes of one machine Ray shares memory: an array is copied into it, and
whoever gets it reads it there.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import ray

from peers.rpc_measure import Array

NAMESPACE, ACTOR = "bench", "echo"
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}


class Echo:
    """The actor; with coroutines it takes many calls at a time."""

    async def echo(self, value: Any) -> Any:
        """Return the value."""
        return value


def serve(tell: Callable[[str], None]) -> None:
    """Start a cluster of this machine alone, with one actor."""
    with ray.init(
        address="local",
        num_cpus=1,
        include_dashboard=False,
        namespace=NAMESPACE,
        _node_ip_address="127.0.0.1",
        **QUIET,
    ):
        remote: Any = ray.remote(Echo)
        actor = remote.options(name=ACTOR).remote()
        ray.get(actor.echo.remote(b""))
        tell(ray.get_runtime_context().gcs_address)
        threading.Event().wait()


class RayClient:
    """A handle of the actor."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def small(self, text: bytes) -> bytes:
        """Return ``text`` as it came back."""
        received: bytes = ray.get(self._actor.echo.remote(text))
        return received

    def array(self, values: Array) -> Array:
        """Return the array as it came back."""
        received: Array = ray.get(self._actor.echo.remote(ray.put(values)))
        return received


@contextmanager
def connect(address: str) -> Iterator[RayClient]:
    """Join the cluster; many threads may use the handle."""
    with ray.init(address=address, namespace=NAMESPACE, **QUIET):
        yield RayClient(ray.get_actor(ACTOR))
