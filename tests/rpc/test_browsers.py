"""What a browser needs of the port: its token in a subprotocol, a certificate."""

import datetime
import http.client
import logging
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from melisma import rpc
from melisma.errors import AccessError, ConfigError
from melisma.rpc import certificates
from melisma.rpc.address import Address
from melisma.rpc.tokens import Tokens

MAY_ADD = ("add",)


@rpc.expose
def add(a: int, b: int) -> int:
    return a + b


def serve(folder: Path, **options: Any) -> rpc.Server:
    return rpc.serve(add, port=0, folder=folder, say=len, **options)


def dial(server: rpc.Server, *protocols: str, **headers: str) -> tuple[int, str]:
    """Ask for a WebSocket as browsers do; return the status and the subprotocol."""
    unchecked = ssl._create_unverified_context()
    is_tls = server.url.startswith("https:")
    there = (
        http.client.HTTPSConnection("127.0.0.1", server.port, context=unchecked)
        if is_tls
        else http.client.HTTPConnection("127.0.0.1", server.port)
    )
    asked = {"Connection": "Upgrade", "Upgrade": "websocket", **headers}
    asked |= {"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "x" * 22 + "=="}
    if protocols:
        asked["Sec-WebSocket-Protocol"] = ", ".join(protocols)
    try:
        there.request("GET", "/rpc", headers=asked)
        answer = there.getresponse()
        return answer.status, answer.headers.get("Sec-WebSocket-Protocol", "")
    finally:
        there.close()


def test_a_token_comes_in_a_subprotocol(tmp_path: Path) -> None:
    with serve(tmp_path, secure=True) as server:
        token = str(Address.of(server.invite()).token)
        offered = ("melisma", f"melisma.token.{token}")
        assert dial(server, *offered) == (101, "melisma")
        for wrong in ("", "melisma.token.", f"melisma.token.{token[:-1]}"):
            assert dial(server, "melisma", *filter(None, [wrong]))[0] == 401


def test_a_token_in_a_subprotocol_is_never_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with serve(tmp_path, secure=True) as server:
        token = str(Address.of(server.invite()).token)
        assert dial(server, f"melisma.token.{token}")[0] == 400
        assert dial(server, "melisma", f"melisma.token.{token}")[0] == 101
    assert token.partition(".")[2] not in caplog.text


def test_pages_of_other_origins_are_refused_with_a_token_too(tmp_path: Path) -> None:
    with serve(tmp_path, secure=True) as server:
        token = str(Address.of(server.invite()).token)
        protocols = ("melisma", f"melisma.token.{token}")
        assert dial(server, *protocols, Origin="https://evil.example")[0] == 403
        assert dial(server, *protocols, Origin=server.url)[0] == 101


def test_loopback_without_tokens_needs_none(tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        assert dial(server, "melisma") == (101, "melisma")


def test_a_shared_token_is_the_same_at_every_start_and_lasts_longer(
    tmp_path: Path,
) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    token = tokens.shared("phones-token", MAY_ADD, 60.0)
    (first,) = tokens.list()
    assert tokens.shared("phones-token", MAY_ADD, 3600.0) == token
    (second,) = tokens.list()
    assert first.expires is not None
    assert second.expires is not None
    assert 3500 < second.expires - first.expires < 3600
    assert (second.may_call, second.name) == (MAY_ADD, None)
    assert tokens.shared() != token


def test_a_shared_token_that_expired_is_replaced(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    token = tokens.shared("phones-token", MAY_ADD, -1.0)
    with pytest.raises(AccessError, match="expired"):
        tokens.identify(token)
    assert tokens.shared("phones-token", MAY_ADD, 60.0) != token


def test_plain_http_has_tokens_and_only_when_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="requires TLS"):
        serve(tmp_path, host="0.0.0.0", secure=False)
    with serve(tmp_path, plain=True) as server:
        token = str(server.shared_token("phones-token", MAY_ADD, 60.0))
        assert server.url.startswith("http://")
        assert dial(server, "melisma")[0] == 401
        assert dial(server, "melisma", f"melisma.token.{token}")[0] == 101
    with pytest.raises(ConfigError, match="choose one of them"):
        serve(tmp_path, plain=True, local_ca=True)


def test_who_installed_the_authority_trusts_the_server(tmp_path: Path) -> None:
    with serve(tmp_path, local_ca=True) as server:
        assert server.authority == certificates.authority(tmp_path)
        trusting = ssl.create_default_context(cafile=server.authority)
        for host in ("127.0.0.1", "localhost"):
            there = http.client.HTTPSConnection(host, server.port, context=trusting)
            there.request("GET", "/nothing")
            assert there.getresponse().status == 404
            there.close()
        with rpc.connect(server.join_string()) as connection:
            assert connection.add(1, 2) == 3  # the join string pins it, as any other


def test_the_authority_is_kept_and_vouches_for_private_addresses_alone(
    tmp_path: Path,
) -> None:
    signed, _ = certificates.ensure_signed(tmp_path, "192.168.1.20")
    before = certificates.authority(tmp_path).read_bytes(), signed.read_bytes()
    certificates.ensure_signed(tmp_path, "192.168.1.20")
    assert (
        certificates.authority(tmp_path).read_bytes(),
        signed.read_bytes(),
    ) == before
    certificates.ensure_signed(tmp_path, "10.0.0.7")  # it moved to another network
    assert certificates.authority(tmp_path).read_bytes() == before[0]
    assert signed.read_bytes() != before[1]
    leaf = x509.load_pem_x509_certificate(signed.read_bytes())
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == [
        "10.0.0.7",
        "127.0.0.1",
    ]
    lifetime = leaf.not_valid_after_utc - leaf.not_valid_before_utc
    assert lifetime < datetime.timedelta(days=825)  # the most that Apple takes
    for public in ("8.8.8.8", "example.org", "notlocal"):
        with pytest.raises(ConfigError, match="private addresses"):
            certificates.ensure_signed(tmp_path, public)


def test_the_authority_cannot_vouch_for_other_sites(tmp_path: Path) -> None:
    """Whoever steals its key opens no bank with it: OpenSSL refuses the names."""
    authority, signing = certificates._authority(tmp_path)
    names: list[x509.GeneralName]
    names = [x509.DNSName("localhost"), x509.DNSName("bank.example")]
    certificate, key = certificates._signed(names, authority, signing)
    (tmp_path / "forged.pem").write_bytes(certificate)
    (tmp_path / "forged-key.pem").write_bytes(key)
    forged = {
        "certificate": tmp_path / "forged.pem",
        "key": tmp_path / "forged-key.pem",
    }
    with serve(tmp_path, secure=True, **forged) as server:
        trusting = ssl.create_default_context(cafile=certificates.authority(tmp_path))
        there = http.client.HTTPSConnection("localhost", server.port, context=trusting)
        with pytest.raises(ssl.SSLCertVerificationError, match="permitted subtree"):
            there.request("GET", "/")
        there.close()
