"""Service discovery on the local network by zeroconf (``melisma[discovery]``).

A server advertises its name, address and certificate fingerprint, never a token. Any
machine on the network can advertise anything, so an entry proves nothing: devices
still join by a join string, whose fingerprint they check.
"""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from melisma.errors import ConfigError
from melisma.rpc.address import reachable

if TYPE_CHECKING:
    from melisma.rpc.server import Server

KIND = "_melisma._tcp.local."


@dataclass(frozen=True, slots=True)
class Found:
    """A server as it advertises itself."""

    name: str
    address: str  #: HOST:PORT
    fingerprint: str | None  #: of its certificate; None for a plain server


@contextmanager
def advertised(server: "Server", name: str) -> Iterator[None]:
    """Advertise ``server`` on the local network while the context lasts."""
    zeroconf = _zeroconf()
    host, _, port = server.address.rpartition(":")
    address = socket.gethostbyname(reachable(host))
    info = zeroconf.ServiceInfo(
        KIND,
        f"{name}.{KIND}",
        addresses=[socket.inet_aton(address)],
        port=int(port),
        properties={"sha256": server.fingerprint or ""},
    )
    with _open(zeroconf, address) as announcer:
        try:
            announcer.register_service(info)
        except zeroconf.NonUniqueNameException:
            raise ConfigError(
                f"another server is advertised as '{name}': choose another name"
            ) from None
        yield
        announcer.unregister_service(info)


def discover(wait_s: float = 2.0, on: str | None = None) -> list[Found]:
    """Return the servers that answer within ``wait_s``, sorted by name.

    ``on`` is the address of the network interface to listen on; all if None.
    """
    zeroconf = _zeroconf()
    names: set[str] = set()

    def on_change(name: str, **_: Any) -> None:
        names.add(name)

    with _open(zeroconf, on) as listener:
        browser = zeroconf.ServiceBrowser(listener, KIND, handlers=[on_change])
        threading.Event().wait(wait_s)
        infos = {name: listener.get_service_info(KIND, name) for name in list(names)}
        browser.cancel()
    return sorted(
        (_found(name, info) for name, info in infos.items() if info),
        key=lambda found: found.name,
    )


def _found(name: str, info: Any) -> Found:
    pin = (info.properties.get(b"sha256") or b"").decode("ascii", "replace")
    address = f"{info.parsed_addresses()[0]}:{info.port}"
    return Found(name.removesuffix(f".{KIND}"), address, pin or None)


def _open(zeroconf: Any, address: str | None) -> Any:
    """Return a Zeroconf on one interface, or on all.

    It is created in a thread without an event loop, where it starts its own: it would
    use the loop of a notebook, and block that loop while waiting for it.
    """
    interfaces = [address] if address else zeroconf.InterfaceChoice.All
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(zeroconf.Zeroconf, interfaces).result()


def _zeroconf() -> Any:
    try:
        import zeroconf
    except ImportError:
        raise ConfigError(
            "discovery needs zeroconf: pip install 'melisma[discovery]'"
        ) from None
    return zeroconf
