"""TLS: a self-signed certificate, made on the first start and pinned by clients."""

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
    """Return certificate and key in ``folder``, generated there if missing."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    with locked(folder):
        if not (certificate.exists() and key.exists()):
            certificate_pem, key_pem = self_signed(VALID_DAYS)
            write_private(key, key_pem)
            write_private(certificate, certificate_pem)
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

    The start of its validity is not checked: the clock of a device without a battery
    starts in the past.
    """
    until = x509.load_der_x509_certificate(der).not_valid_after_utc
    return until if until < datetime.datetime.now(datetime.UTC) else None


def server_context(
    certificate: Path, key: Path, client_ca: Path | None
) -> ssl.SSLContext:
    """Return the TLS context of a server; with ``client_ca``, one for mutual TLS.

    Raises ConfigError if the files do not load or the certificate has expired.
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
            f"cannot use certificate {certificate} with key {key}: {error}"
        ) from None
    if until:
        raise ConfigError(
            f"the certificate {certificate} expired on {until:%Y-%m-%d}: replace it;"
            " delete one made by melisma to have a new one generated, and hand out"
            " new join strings"
        )
    return context


def client_context(
    *,
    ca: Path | None = None,
    pinned: bool = False,
    certificate: Path | None = None,
    key: Path | None = None,
) -> ssl.SSLContext:
    """Return the TLS context of a client.

    ``pinned`` verifies nothing here: the caller compares the fingerprint. Otherwise the
    server's certificate must be signed by ``ca``, or by an authority of this machine.
    """
    if pinned:  # no authority counts, and loading all of them is slow
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context = ssl.create_default_context(cafile=ca)
    if certificate:
        context.load_cert_chain(certificate, key)
    return context
