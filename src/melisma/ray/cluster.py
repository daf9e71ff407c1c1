"""Joining a Ray cluster, for sweeps and for crews.

Ray trusts everybody who reaches it: read docs/ray.md before a cluster listens on
anything but loopback or a network of one's own.
"""

import logging
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from melisma.errors import ConfigError
from melisma.rpc.address import is_loopback

try:
    import ray
    from ray.cluster_utils import Cluster
except ModuleNotFoundError as error:
    if error.name != "ray":
        raise
    raise ConfigError(
        "Ray is not installed: pip install 'melisma[ray]' on every node"
    ) from error

__all__ = ["joined", "ray"]

#: Longest that one waits for the head of a cluster to answer at all.
ANSWER_S = 5.0


@contextmanager
def joined(
    address: str | None,
    cpus: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """Be part of the cluster at ``address``, HOST:PORT, and leave it as it is.

    Without an address, a cluster of this machine alone is started, with so many CPUs
    or as many as there are cores, and ended with the block. Workers have variables of
    ``environment``. Raises ConfigError if the cluster does not answer, or if this
    machine is none of its nodes.
    """
    if address is None:
        with _started(cpus) as own, joined(own, environment=environment):
            yield
        return
    options: dict[str, Any] = {"address": _answering(address)}
    if environment:
        options["runtime_env"] = {"env_vars": dict(environment)}
    try:
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise ConfigError(f"Ray at {address}: {error}") from error
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _started(cpus: int | None) -> Iterator[str]:
    """The address of a cluster that no other machine reaches.

    `ray.init` would put this machine's outward address in place of 127.0.0.1, and
    listen there.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no reports of its use
    cluster: Any = Cluster()
    try:
        cluster.add_node(
            num_cpus=cpus or os.cpu_count(),
            node_ip_address="127.0.0.1",
            include_dashboard=False,
        )
        yield cluster.address
    finally:
        cluster.shutdown()


def _answering(address: str) -> str:
    """Return the address, as Ray needs it, of a head that answers.

    ConfigError if it does not: Ray itself would wait for many minutes.
    """
    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or not port:
        raise ConfigError(
            f"{address!r} is no address of a Ray cluster: give its head as HOST:PORT"
        )
    try:
        with socket.create_connection((host, port), ANSWER_S) as line:
            _greet(line)
    except OSError as error:
        raise ConfigError(
            f"no Ray cluster answers at {address} ({error}): `ray start --head --port "
            f"{port}` on {host} starts one"
        ) from error
    # 127.0.0.1 Ray would replace by this machine's outward address, where a cluster
    # of loopback alone does not answer; in this form it is left as it is.
    return f"[::ffff:127.0.0.1]:{port}" if is_loopback(host) else address


def _greet(line: socket.socket) -> None:
    """Raise OSError unless who listens speaks gRPC: settings answer settings."""
    if os.environ.get("RAY_USE_TLS") == "1":
        return  # that speaks first of certificates
    nothing_set = b"\0\0\0\x04\0\0\0\0\0"
    line.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + nothing_set)
    if line.recv(9)[3:4] != b"\x04":
        raise OSError("what listens there is something else")
