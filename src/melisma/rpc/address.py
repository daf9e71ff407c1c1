"""Addresses of servers, and join strings: address, token and certificate in one.

melisma://TOKEN@HOST:PORT#FINGERPRINT     TLS, pinned to one certificate
melisma://TOKEN@HOST:PORT                 TLS, certificate checked against authorities
HOST:PORT                                 no TLS: loopback only
"""

import ipaddress
import re
import socket
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from melisma.errors import ConfigError

SCHEME = "melisma"
DEFAULT_PORT = 8765
_SHAPES = "HOST:PORT, or the join string that the server printed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of a server, and the credentials to connect to it."""

    host: str
    port: int
    tls: bool = False
    token: str | None = field(default=None, repr=False)
    fingerprint: str | None = None

    @classmethod
    def of(cls, text: str) -> "Address":
        """Parse an address; ConfigError, which never holds the token, if it is none."""
        try:
            parts = urlsplit(text if "//" in text else f"//{text}")
            host, port = parts.hostname, parts.port
        except ValueError:  # its message may hold the token
            raise ConfigError(f"not an address: write {_SHAPES}") from None
        if parts.scheme not in ("", SCHEME) or not host or parts.path not in ("", "/"):
            raise ConfigError(f"not an address: write {_SHAPES}")
        fingerprint = parts.fragment or None
        if fingerprint and not re.fullmatch(r"[0-9a-f]{64}", fingerprint):
            raise ConfigError(
                "the fingerprint after # should be 64 hexadecimal digits: copy the"
                " whole join string, in quotes"
            )
        return cls(
            host=host,
            port=port or DEFAULT_PORT,
            tls=parts.scheme == SCHEME,
            token=parts.username,
            fingerprint=fingerprint,
        )

    @classmethod
    def behind(cls, url: str, token: str) -> "Address":
        """Return the address of a proxy that ends TLS, by its https:// URL."""
        parts = urlsplit(url)
        port = parts.port or 443
        return cls(host=parts.hostname or "", port=port, tls=True, token=token)

    def join_string(self) -> str:
        """Return the address as one string, token included."""
        authority = f"{_bracketed(self.host)}:{self.port}"
        if not self.tls:
            return authority
        token = f"{self.token}@" if self.token else ""
        pin = f"#{self.fingerprint}" if self.fingerprint else ""
        return f"{SCHEME}://{token}{authority}{pin}"

    @property
    def url(self) -> str:
        """Return the URL of the server's root."""
        scheme = "https" if self.tls else "http"
        return f"{scheme}://{_bracketed(self.host)}:{self.port}"

    def __str__(self) -> str:
        return f"{_bracketed(self.host)}:{self.port}"


def join_command(join: str, token: str | None = None) -> str:
    """Return the command with which a device joins; other users do not see a token.

    The ``token`` is one that the join string lacks.
    """
    if Address.of(join).token is None:
        given = f"MELISMA_TOKEN='{token}' " if token else ""
        return f"{given}melisma join '{join}'"
    return f"MELISMA_JOIN='{join}' melisma join"


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def reachable(host: str) -> str:
    """Return the address under which other machines reach ``host`` of this one."""
    if host not in ("0.0.0.0", "::", ""):
        return host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; selects the interface
        except OSError:
            return socket.gethostname()
        return str(probe.getsockname()[0])


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
