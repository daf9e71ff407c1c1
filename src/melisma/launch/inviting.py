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
    command = join_command(server.join_string()) + trust
    link = phones.link if phones else ""
    host = Address.of(server.address).host
    return Invitation(
        command=command,
        link=link,
        why=phones.why if phones else "",
        code=_rows(link or command),
        local=is_loopback(host) and not (phones and phones.elsewhere),
    )


def _rows(text: str) -> list[str]:
    """Return a QR code as rows of 0 and 1; none of a text that is too long for it."""
    try:
        modules = symbol(text.encode())
    except ConfigError:
        return []
    return ["".join("01"[dark] for dark in row) for row in modules.tolist()]
