"""TLS without chores: a certificate made on the first start, pinned by who joins."""

import datetime
import hashlib
import ipaddress
import socket
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from melisma.errors import ConfigError
from melisma.rpc.tokens import locked, write_private

#: Long, because a new certificate means a new join string for every device.
VALID_DAYS = 3650


def ensure(folder: Path) -> tuple[Path, Path]:
    """Return certificate and key in ``folder``, self-signed and made if missing."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    with locked(folder):
        if not (certificate.exists() and key.exists()):
            made, secret = self_signed(VALID_DAYS)
            write_private(key, secret)
            write_private(certificate, made)
    return certificate, key


def self_signed(valid_days: float) -> tuple[bytes, bytes]:
    """Return a new certificate for this machine and its key, both as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "melisma")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), x509.DNSName(socket.gethostname())]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=max(1.0, -2 * valid_days)))
        .not_valid_after(now + datetime.timedelta(days=valid_days))
        .add_extension(
            x509.SubjectAlternativeName(
                [*names, x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            ),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    return (
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def fingerprint(der: bytes) -> str:
    """Return the SHA-256 of a certificate in DER form."""
    return hashlib.sha256(der).hexdigest()


def fingerprint_of(certificate: Path) -> str:
    """Return the fingerprint of a certificate in a PEM file."""
    return fingerprint(_der(certificate))


def _der(certificate: Path) -> bytes:
    loaded = x509.load_pem_x509_certificate(certificate.read_bytes())
    return loaded.public_bytes(serialization.Encoding.DER)


def expired(der: bytes) -> datetime.datetime | None:
    """Return when a certificate expired, or None if it has not.

    That it is valid only from a later day on is not looked at: a device without a
    clock of its own starts in the past.
    """
    until = x509.load_der_x509_certificate(der).not_valid_after_utc
    return until if until < datetime.datetime.now(datetime.UTC) else None


def server_context(
    certificate: Path, key: Path, client_ca: Path | None
) -> ssl.SSLContext:
    """Return the TLS settings of a server; ``client_ca`` asks peers for theirs too.

    Raises ConfigError for files that do not fit, and for an expired certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
        until = expired(_der(certificate))
        if client_ca:
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ValueError) as error:  # ssl's errors are OSErrors
        raise ConfigError(
            f"no TLS with certificate {certificate} and key {key}: {error}"
        ) from None
    if until:
        raise ConfigError(
            f"the certificate {certificate} expired on {until:%Y-%m-%d}: replace it;"
            " one made by melisma is made anew when it is deleted, and needs new join"
            " strings"
        )
    return context


def client_context(
    *,
    ca: Path | None = None,
    pinned: bool = False,
    certificate: Path | None = None,
    key: Path | None = None,
) -> ssl.SSLContext:
    """Return the TLS settings of who dials.

    ``pinned`` leaves the check to a fingerprint; otherwise the server's certificate
    must come from ``ca``, or from an authority that this machine trusts.
    """
    if pinned:  # nobody's authority counts; reading them all takes a while
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context = ssl.create_default_context(cafile=ca)
    if certificate:
        context.load_cert_chain(certificate, key)
    return context
