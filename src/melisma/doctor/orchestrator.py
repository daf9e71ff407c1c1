"""The way to an orchestrator: address, certificate, token, clock and link.

Nothing here joins a run. The token is sent only after the certificate was verified.
"""

import datetime
import email.utils
import http.client
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http import HTTPStatus
from typing import NamedTuple

from cryptography import x509

from melisma import __version__
from melisma.doctor.finding import Finding, note, ok, trouble
from melisma.errors import ConfigError, readable
from melisma.rpc import certificates
from melisma.rpc.address import Address, is_loopback
from melisma.rpc.probing import MOST_BYTES, VERSION

#: Longest wait for the network, each time.
PATIENCE_S = 5.0
#: How long each direction of the link is measured, about.
MEASURED_S = 0.5
#: A clock that is off by more is told; the server's has whole seconds.
OFF_S = 5.0
#: A certificate that ends sooner is told.
SOON = datetime.timedelta(days=14)
#: A link that needs longer than this for a model of a million parameters is told.
SLOW_BPS = 4e6 / 10.0

_ASK = "ask for a new join string"
#: What a network, TLS or a server that is none can answer with.
_FAILURES = (OSError, http.client.HTTPException)


class Answer(NamedTuple):
    """What the server said to a request."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes
    arrived_s: float  #: Unix time


class Refuted(Exception):
    """The certificate is not the one of this server; holds the finding."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.says)
        self.finding = finding


class TooLarge(http.client.HTTPException):
    """A proxy takes no request of that size, which learners do not make."""


def orchestrator(text: str, token: str | None = None) -> Iterator[Finding]:
    """Say what is found on the way to the orchestrator at an address."""
    try:
        address = Address.of(text)
    except ConfigError as error:
        yield trouble("address", str(error), "copy the line that serve prints")
        return
    if not address.tls and not is_loopback(address.host):
        yield trouble(
            "address",
            f"{address} is not on this machine, and has no TLS: join refuses it",
            "use the whole join string that serve printed, melisma://…",
        )
        return
    try:
        began = time.perf_counter()
        with _connected(address):
            rtt_s = time.perf_counter() - began
    except OSError as error:
        yield _nobody(address, error)
        return
    says = f"{address} answers in {1e3 * rtt_s:.3g} ms"
    yield ok("reachable", says, host=address.host, port=address.port, rtt_s=rtt_s)
    try:
        if address.tls:
            yield from _certificate(address)
        yield from _served(address, token or address.token)
    except Refuted as error:
        yield error.finding
    except _FAILURES as error:
        yield trouble(
            "server",
            f"{address} does not speak as a melisma server does: {_said(error)}",
            "check host and port; a server with TLS needs the whole join string",
        )


def _nobody(address: Address, error: OSError) -> Finding:
    if isinstance(error, socket.gaierror):
        says, fix = (
            f"{address.host} has no address",
            "check its spelling, or give the IP",
        )
    elif isinstance(error, ConnectionRefusedError):
        says = f"nobody listens at {address}"
        fix = "start `melisma serve` there, or check the port that it printed"
    elif isinstance(error, TimeoutError):
        says = f"no answer from {address} within {PATIENCE_S:.0f} s"
        fix = f"open TCP port {address.port} in its firewall; is it on this network?"
    else:
        says, fix = f"{address} cannot be reached: {_said(error)}", "check the network"
    return trouble("reachable", says, fix, host=address.host, port=address.port)


def _certificate(address: Address) -> Iterator[Finding]:
    """Verify the server's certificate as a learner does; Refuted if it is another."""
    try:
        der = _presented(address)
    except ssl.SSLCertVerificationError as error:
        why = error.verify_message.rstrip(".")
        says = f"{address} has one that is not to be trusted: {why}"
        fix = "use the whole join string, with what follows #"
        raise Refuted(trouble("certificate", says, fix)) from None
    except ssl.SSLError as error:
        fix = "check the port: does serve run there without TLS?"
        raise Refuted(
            trouble("certificate", f"no TLS at {address}: {_said(error)}", fix)
        ) from None
    except ValueError as error:
        says = f"{address} has an unusable one: {_said(error)}"
        raise Refuted(trouble("certificate", says, _ASK)) from None
    loaded = x509.load_der_x509_certificate(der)
    first, last = loaded.not_valid_before_utc, loaded.not_valid_after_utc
    facts = {
        "fingerprint": certificates.fingerprint(der),
        "pinned": address.fingerprint is not None,
        "from": first.isoformat(),
        "until": last.isoformat(),
    }
    if address.fingerprint and facts["fingerprint"] != address.fingerprint:
        says = f"{address} has another one than the join string pins"
        fix = f"{_ASK}; if it is not a new one, somebody intercepts the connection"
        raise Refuted(trouble("certificate", says, fix, **facts))
    now = datetime.datetime.now(datetime.UTC)
    if last < now:
        says = f"expired on {last:%Y-%m-%d}; this clock says {now:%Y-%m-%d}"
        fix = f"if the clock is right, replace it on the server and {_ASK}"
        raise Refuted(trouble("certificate", says, fix, **facts))
    how = "the one that is pinned" if address.fingerprint else "of a known authority"
    says = f"{how}, valid until {last:%Y-%m-%d}"
    if first > now:
        says += f", and from {first:%Y-%m-%d} on: this clock says {now:%Y-%m-%d}"
        yield note("certificate", says, "set this machine's clock", **facts)
    elif last < now + SOON:
        yield note("certificate", says, "replace it on the server soon", **facts)
    else:
        yield ok("certificate", says, **facts)


def _presented(address: Address) -> bytes:
    """Return the server's certificate; one without a pin is verified by authorities."""
    context = certificates.client_context(pinned=address.fingerprint is not None)
    with (
        _connected(address) as plain,
        context.wrap_socket(plain, server_hostname=address.host) as wrapped,
    ):
        der = wrapped.getpeercert(binary_form=True)
    if not der:
        raise ValueError("it presented no certificate")
    return der


def _served(address: Address, token: str | None) -> Iterator[Finding]:
    """Say whether a melisma server is there that takes the token, and how fast."""
    with closing(_client(address)) as client:
        before_s = time.time()
        answer = _ask(client, token, "GET", "/link?bytes=0")
        yield from _clock(answer, (before_s + answer.arrived_s) / 2.0)
        if not _is_ours(answer):
            yield trouble(
                "server",
                f"{address} answers {answer.status}, and is no melisma server",
                "check host and port: is there a proxy in between?",
            )
            return
        if answer.status in (401, 403):
            what = "this token" if token else "a connection without a token"
            yield trouble("token", f"{address} refuses {what}", _fix_of(token))
            return
        yield ok("token", "it is accepted" if token else "none is needed")
        if answer.status != 200:
            says = f"not measured: the server answers {answer.status} (an older one?)"
            yield note("link", says, "have the same version on both sides")
            return
        yield from _version(answer)
        yield from _link(client, token)


def _is_ours(answer: Answer) -> bool:
    """Return whether a melisma server answered; a proxy may have signed for it."""
    said = [answer.headers.get(name) or "" for name in ("Server", "WWW-Authenticate")]
    return VERSION in answer.headers or any("melisma" in text for text in said)


def _fix_of(token: str | None) -> str:
    if token:
        return f"{_ASK}: this one was revoked, has expired, or is another server's"
    return "use the whole join string that serve printed, or --token"


def _version(answer: Answer) -> Iterator[Finding]:
    theirs = readable(answer.headers.get(VERSION) or "unknown", 20)
    if theirs == __version__:
        yield ok("server", f"melisma {theirs}, as here", version=theirs)
    else:
        yield note(
            "server",
            f"melisma {theirs}; here it is {__version__}",
            "have the same version on both sides",
            version=theirs,
        )


def _clock(answer: Answer, here_s: float) -> Iterator[Finding]:
    """Say how far this clock is from the server's, which tells whole seconds."""
    try:
        date = email.utils.parsedate_to_datetime(answer.headers.get("Date") or "")
        off_s = here_s - (date.timestamp() + 0.5)
    except (ValueError, TypeError, OverflowError):
        return
    says = f"within {OFF_S:.0f} s of the server's"
    if abs(off_s) > OFF_S:
        way = "ahead of" if off_s > 0 else "behind"
        yield note(
            "clocks",
            f"this one is {abs(off_s):.0f} s {way} the server's",
            "set both (timedatectl set-ntp true): dates of tokens and certificates "
            "are judged by them; deadlines are not",
            offset_s=off_s,
        )
    else:
        yield ok("clocks", says, offset_s=off_s)


def _link(client: http.client.HTTPConnection, token: str | None) -> Iterator[Finding]:
    """Measure both directions by growing transfers, for about half a second each."""

    def down(size: int) -> int:
        return len(_asked(client, token, "GET", f"/link?bytes={size}").body)

    def up(size: int) -> int:
        _asked(client, token, "POST", "/link", bytes(size))
        return size

    down(0)
    down_bps, up_bps = _bytes_per_s(down), _bytes_per_s(up)
    says = f"{down_bps / 1e6:.3g} MB/s down, {up_bps / 1e6:.3g} MB/s up"
    facts = {"down_bytes_per_s": down_bps, "up_bytes_per_s": up_bps}
    if min(down_bps, up_bps) < SLOW_BPS:
        fix = "[wire] up = 'int8', and deadlines that leave time for the transfers"
        yield note("link", says, fix, **facts)
    else:
        yield ok("link", says, **facts)


def _asked(
    client: http.client.HTTPConnection,
    token: str | None,
    method: str,
    path: str,
    body: bytes | None = None,
) -> Answer:
    answer = _ask(client, token, method, path, body)
    if answer.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        raise TooLarge
    if answer.status != 200:
        raise http.client.HTTPException(f"{path} answers {answer.status}")
    return answer


def _bytes_per_s(transfer: Callable[[int], int]) -> float:
    """Return the rate of transfers that grow: that of the last one."""
    size, began, rate = 1 << 14, time.perf_counter(), 0.0
    while True:
        start = time.perf_counter()
        try:
            moved = transfer(size)
        except TooLarge:
            if not rate:
                raise
            return rate
        now = time.perf_counter()
        took_s = max(now - start, 1e-6)
        rate = moved / took_s
        if size == MOST_BYTES or now + 4 * took_s > began + MEASURED_S:
            return rate
        size = min(MOST_BYTES, 4 * size)


def _client(address: Address) -> http.client.HTTPConnection:
    """Return a client whose connection is the verified one, or a plain one."""
    client = http.client.HTTPConnection(address.host, address.port, PATIENCE_S)
    plain = _connected(address)
    if not address.tls:
        client.sock = plain
        return client
    pinned = address.fingerprint is not None
    context = certificates.client_context(pinned=pinned)
    wrapped = context.wrap_socket(plain, server_hostname=address.host)
    der = wrapped.getpeercert(binary_form=True) or b""
    if pinned and certificates.fingerprint(der) != address.fingerprint:
        wrapped.close()
        raise OSError("its certificate changed in between")
    client.sock = wrapped
    return client


def _ask(
    client: http.client.HTTPConnection,
    token: str | None,
    method: str,
    path: str,
    body: bytes | None = None,
) -> Answer:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    client.request(method, path, body, headers)
    reply = client.getresponse()
    arrived_s = time.time()
    return Answer(reply.status, reply.headers, reply.read(2 * MOST_BYTES), arrived_s)


def _connected(address: Address) -> socket.socket:
    return socket.create_connection((address.host, address.port), PATIENCE_S)


def _said(error: BaseException) -> str:
    return readable(" ".join(str(error).split()) or type(error).__name__)
