"""How devices are asked to join: the command, the link for phones, its QR code."""

from melisma import rpc
from melisma.browser.phones import Phones
from melisma.browser.qr import symbol
from melisma.bundles.bundle import Bundle
from melisma.errors import ConfigError
from melisma.rpc.address import Address, is_loopback, join_command
from melisma.views.web.live import Invitation


def invitation(
    server: rpc.Server, phones: Phones | None = None, bundle: Bundle | None = None
) -> Invitation:
    """Return how devices join a server; it holds a token, and is written nowhere."""
    trust = f" --trust {bundle.hash}" if bundle else ""
    command = join_command(*credentials(server, phones)) + trust
    link = phones.link if phones else ""
    host = Address.of(server.address).host
    return Invitation(
        command=command,
        link=link,
        why=phones.why if phones else "",
        code=_rows(link or command),
        local=is_loopback(host) and not (phones and phones.elsewhere),
    )


def credentials(
    server: rpc.Server, phones: Phones | None = None
) -> tuple[str, str | None]:
    """Return the join string of a server, and the token that it lacks, if any.

    Where the server speaks no TLS, and phones come by a proxy that ends it, so do all.
    """
    loose = server.loose_token
    if loose and phones and phones.proxy:
        return server.join_string(phones.proxy), None
    return server.join_string(), loose


def _rows(text: str) -> list[str]:
    """Return a QR code as rows of 0 and 1; none of a text that is too long for it."""
    try:
        modules = symbol(text.encode())
    except ConfigError:
        return []
    return ["".join("01"[dark] for dark in row) for row in modules.tolist()]
