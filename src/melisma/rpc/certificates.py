"""TLS: a self-signed certificate, made on the first start and pinned by clients.

Browsers pin nothing: for them an authority of one's own can sign the certificate
(`ensure_signed`), which a phone that installs the authority trusts like any other.
"""

import datetime
import hashlib
import ipaddress
import socket
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from melisma.errors import ConfigError
from melisma.rpc.tokens import locked, write_private

#: Long, because a new certificate means a new join string for every device.
VALID_DAYS = 3650
#: Of certificates that an authority of one's own signs: Apple takes up to 825 days.
SIGNED_DAYS, RENEWED_DAYS = 800, 30
#: All that such an authority can vouch for: who steals its key, or installs it, opens
#: no other site by it.
PRIVATE = [
    *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"),
    *("100.64.0.0/10", "127.0.0.0/8", "::1/128", "fc00::/7", "fe80::/10"),
]
PRIVATE_NAMES = ["localhost", "local", "lan", "home.arpa", "internal"]


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
        _key_pem(key),
    )


def ensure_signed(folder: Path, host: str) -> tuple[Path, Path]:
    """Return certificate and key for browsers at ``host``, signed by `authority`.

    Made in ``folder`` if missing, soon to expire, or for other addresses. ConfigError
    if the authority cannot vouch for the host.
    """
    certificate, key = folder / "signed.pem", folder / "signed-key.pem"
    names = [_name(name) for name in dict.fromkeys([host, "localhost", "127.0.0.1"])]
    with locked(folder):
        if not (certificate.exists() and key.exists() and _covers(certificate, names)):
            authority, signing = _authority(folder)
            certificate_pem, key_pem = _signed(names, authority, signing)
            write_private(key, key_pem)
            write_private(certificate, certificate_pem)
    return certificate, key


def authority(folder: Path) -> Path:
    """Return the certificate of the authority in ``folder``."""
    return folder / "authority.pem"


def _authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Return the authority and its key, made in ``folder`` if missing or expired."""
    file, key_file = authority(folder), folder / "authority-key.pem"
    if file.exists() and key_file.exists() and not expired(_der(file)):
        loaded = serialization.load_pem_private_key(key_file.read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        return x509.load_pem_x509_certificate(file.read_bytes()), loaded
    key = ec.generate_private_key(ec.SECP256R1())
    networks = [x509.IPAddress(ipaddress.ip_network(network)) for network in PRIVATE]
    vouches = [*map(x509.DNSName, PRIVATE_NAMES), *networks]
    name = _called(f"melisma on {socket.gethostname()[:40]}")
    certificate = (
        _builder(name, name, key, VALID_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.NameConstraints(vouches, None), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    write_private(key_file, _key_pem(key))
    write_private(file, certificate.public_bytes(serialization.Encoding.PEM))
    return certificate, key


def _signed(
    names: list[x509.GeneralName],
    authority: x509.Certificate,
    signing: ec.EllipticCurvePrivateKey,
) -> tuple[bytes, bytes]:
    """Return a certificate of a server that has these names, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(_called("melisma"), authority.subject, key, SIGNED_DAYS)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
            critical=False,
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()),
            critical=False,
        )
        .sign(signing, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key)


def _builder(
    name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: float
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1.0))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _called(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(host: str) -> x509.GeneralName:
    """Return a host as certificates name it; ConfigError unless it is private."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        if any(f".{host}".endswith(f".{name}") for name in PRIVATE_NAMES):
            return x509.DNSName(host)
    else:
        if any(address in ipaddress.ip_network(network) for network in PRIVATE):
            return x509.IPAddress(address)
    raise ConfigError(
        f"an authority of one's own vouches for private addresses and names that end "
        f"in .local alone, not for {host!r}: give its --certificate and --key"
    )


def _covers(certificate: Path, names: list[x509.GeneralName]) -> bool:
    """Whether a certificate has these names, and is valid for a while."""
    loaded = x509.load_pem_x509_certificate(certificate.read_bytes())
    soon = datetime.timedelta(days=RENEWED_DAYS)
    if loaded.not_valid_after_utc - soon < datetime.datetime.now(datetime.UTC):
        return False
    named = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return list(named.value) == names


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
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
