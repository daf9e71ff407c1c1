"""A bridge, namespaces behind it and the rates of their links, by `ip` and `tc`.

A namespace is connected to the bridge by a veth pair: the outer end has the name of
the namespace, the inner end is ``eth0``.
"""

import ctypes
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Network
from pathlib import Path

from melisma.errors import ConfigError

BURST_S = 0.004  #: tokens a bucket holds: one tick of most kernels (250 Hz)
QUEUE_S = 0.05  #: what may wait for tokens before packets are dropped
FRAME = 1514  #: bytes: the longest Ethernet frame
SEGMENT = 65_536  #: bytes a socket hands down at once; the bucket cuts it into frames
_NETWORK = 0x40000000  #: CLONE_NEWNET


def claim_network() -> tuple[socket.socket, IPv4Network]:
    """Claim a free 10.77.x.0/24 for as long as the socket is open.

    The socket is bound to the network's name: the kernel lets one process alone bind
    it, and frees it however that process ends. ConfigError if none is free.
    """
    routes = json.loads(ip("-j", "-4", "route", "show"))
    used = [IPv4Network(r["dst"]) for r in routes if r["dst"] != "default"]
    for x in range(1, 255):
        network = IPv4Network(f"10.77.{x}.0/24")
        # A route as wide as 10.0.0.0/8 is a way out, not a neighbour.
        if any(other.prefixlen > 8 and network.overlaps(other) for other in used):
            continue
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0melisma testbed {network}")
        except OSError:
            claim.close()
        else:
            return claim, network
    raise ConfigError("no 10.77.x.0/24 is free: end other testbeds, or their routes")


def add_bridge(bridge: str, network: IPv4Network, alias: str) -> None:
    """Add a bridge with the network's first address."""
    # A MAC address of its own: by default it is the lowest of the ports', changes as
    # ports are added, and learners that cached the old one are not heard.
    mac = bytes((2, 0, *network[1].packed)).hex(":")
    ip("link", "add", bridge, "address", mac, "type", "bridge")
    ip("link", "set", bridge, "alias", alias)
    _disable_ipv6(bridge)
    ip("address", "add", f"{network[1]}/{network.prefixlen}", "dev", bridge)
    ip("link", "set", bridge, "up")


def add_namespace(
    name: str, address: str, bridge: str, gateway: str, alias: str
) -> None:
    """Add a namespace behind the bridge, with no route but to the gateway."""
    inside = ("-n", name)
    ip("netns", "add", name)
    ip("link", "add", name, "type", "veth", "peer", "eth0", "netns", name)
    ip("link", "set", name, "alias", alias)
    _disable_ipv6(name)
    _disable_ipv6("eth0", *inside)
    ip("link", "set", name, "master", bridge)
    ip("link", "set", name, "type", "bridge_slave", "isolated", "on")
    ip("link", "set", name, "up")
    ip(*inside, "link", "set", "lo", "up")
    ip(*inside, "address", "add", f"{address}/32", "dev", "eth0")
    ip(*inside, "link", "set", "eth0", "up")
    ip(*inside, "route", "add", gateway, "dev", "eth0")


def limit_rates(name: str, down_bps: float | None, up_bps: float | None) -> None:
    """Limit what a namespace receives and sends, in bits/s; None is no limit."""
    for rate_bps, namespace, end in (
        (down_bps, (), name),
        (up_bps, ("-n", name), "eth0"),
    ):
        if rate_bps is not None:
            words = ("qdisc", "add", "dev", end, "root", *bucket(rate_bps))
            _run([tool("tc"), *namespace, *words])


def impersonate(name: str, address: str) -> None:
    """Give a namespace the orchestrator's address: nothing there reaches the real one.

    What listens at it (``listen``) decides what does.
    """
    ip("-n", name, "address", "add", f"{address}/32", "dev", "lo")


def listen(name: str, address: str, port: int) -> socket.socket:
    """Return a socket that listens in a namespace; OSError if the port is taken there.

    A socket stays where it was made, and namespaces are entered by threads alone, so
    one thread enters, makes it and ends.
    """

    def make() -> socket.socket:
        with open(f"/run/netns/{name}", "rb") as namespace:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.setns(namespace.fileno(), _NETWORK):
                error = ctypes.get_errno()
                raise OSError(error, f"setns: {os.strerror(error)}")
        return socket.create_server((address, port))

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(make).result()


def bucket(rate_bps: float) -> list[str]:
    """Return tc's words for a token bucket of ``rate_bps``, headers included.

    It holds 4 ms of tokens, not one of the segments of 64 KiB that sockets hand down:
    the kernel cuts those into frames. A larger bucket would let the first part of every
    transfer pass at once, for small models the most of it.
    """
    burst = max(round(rate_bps * BURST_S / 8), 2 * FRAME)
    queue = max(round(rate_bps * QUEUE_S / 8), 2 * SEGMENT)
    return f"tbf rate {round(rate_bps)}bit burst {burst} limit {burst + queue}".split()


def names() -> set[str]:
    """Names of all links and namespaces, ours and others."""
    links = {name for _, name in socket.if_nameindex()}
    return links | {line.split()[0] for line in ip("netns", "list").splitlines()}


def processes(name: str) -> set[int]:
    """Ids of the processes in a namespace; none if it is not there."""
    return set(map(int, ip("netns", "pids", name, check=False).split()))


def remove(name: str) -> None:
    """Remove the link and the namespace of this name, as far as they are there."""
    ip("link", "delete", name, check=False)
    ip("netns", "delete", name, check=False)


def tool(name: str) -> str:
    """Return the path of a program of iproute2; empty if it is not installed."""
    # Not every user's PATH, nor every service's, has the administrator's folders.
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
    return shutil.which(name, path=path) or ""


def ip(*words: str, check: bool = True) -> str:
    """Return what `ip` prints; ConfigError if it fails, unless that does not matter."""
    return _run([tool("ip"), *words], check)


def _run(argv: Sequence[str], check: bool = True) -> str:
    # In a session of its own: Ctrl-C must not kill the tool that is cleaning up.
    done = subprocess.run(argv, capture_output=True, text=True, start_new_session=True)
    if check and done.returncode:
        raise ConfigError(
            f"`{Path(argv[0]).name} {' '.join(argv[1:])}` failed: "
            f"{done.stderr.strip() or done.returncode}; a testbed needs a kernel with "
            "network namespaces, veth, bridge and tbf"
        )
    return done.stdout


def _disable_ipv6(link: str, *namespace: str) -> None:
    if Path("/proc/sys/net/ipv6").exists():
        ip(*namespace, "link", "set", link, "addrgenmode", "none")
