"""Authentication, permissions, TLS, and secrets that never leak."""

import hmac
import http.client
import json
import logging
import socket
import ssl
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from melisma import rpc
from melisma.errors import AccessError, ConfigError, RpcError, TransportError
from melisma.rpc import certificates
from melisma.rpc.address import Address
from melisma.rpc.tokens import Tokens

ran: list[str] = []


@rpc.expose
def add(a: int, b: int) -> int:
    return a + b


@rpc.expose
def read_clock() -> str:
    return "noon"


@rpc.expose
def erase() -> None:
    ran.append("erase")


ALL = (add, read_clock, erase)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[rpc.Server]:
    """A server with TLS and tokens, on loopback."""
    with secured(tmp_path) as here:
        yield here


def secured(folder: Path, **options: Any) -> rpc.Server:
    options = {"port": 0, "say": len, **options}
    return rpc.serve(*ALL, secure=True, folder=folder, **options)


def token_of(join: str) -> str:
    return str(Address.of(join).token)


def with_token(join: str, token: str) -> str:
    return join.replace(token_of(join), token)


def refused(join: str, **options: Any) -> AccessError:
    """Return the error of a refused connection, checked not to hold the token."""
    with pytest.raises(AccessError) as caught:
        rpc.connect(join, **options)
    secret = token_of(join).partition(".")[2] or "no secret"
    chain: BaseException | None = caught.value
    while chain:
        assert secret not in f"{chain} {chain!r}"
        chain = chain.__cause__ or chain.__context__
    return caught.value


# Tokens


def test_a_token_lets_in_and_a_wrong_one_does_not(server: rpc.Server) -> None:
    join = server.invite()
    with rpc.connect(join) as there:
        assert there.add(1, 2) == 3
    id, _, secret = token_of(join).partition(".")
    for wrong in (f"{id}.{secret[::-1]}", f"{id}.", f"00000000.{secret}", "nonsense"):
        assert "does not accept this token" in str(refused(with_token(join, wrong)))


def test_nobody_comes_in_without_a_token(server: rpc.Server) -> None:
    join = server.invite()
    error = refused(join.replace(f"{token_of(join)}@", ""))
    assert "ask for a new join string" in str(error)


def test_a_revoked_token_is_refused_and_the_others_still_work(
    server: rpc.Server, tmp_path: Path
) -> None:
    lost, kept = server.invite(), server.invite()
    Tokens(tmp_path / "tokens.json").revoke(token_of(lost).partition(".")[0])
    refused(lost)
    with rpc.connect(kept) as there:
        assert there.add(1, 2) == 3


def test_who_is_expelled_after_its_token_was_revoked_stays_out(
    server: rpc.Server, tmp_path: Path
) -> None:
    join = server.invite("pi")
    with rpc.connect(join, name="pi") as there:
        Tokens(tmp_path / "tokens.json").revoke(token_of(join).partition(".")[0])
        assert there.add(1, 2) == 3  # the session goes on until somebody ends it
        server.expel("pi", "it was lost")
        with pytest.raises(AccessError) as caught:
            there.wait()
        with pytest.raises(AccessError):
            there.add(1, 2)
    assert token_of(join) not in f"{caught.value} {caught.value!r}"
    assert list(server.peers) == []


def test_a_peer_whose_token_was_revoked_does_not_get_back_in(tmp_path: Path) -> None:
    first = secured(tmp_path)
    join = first.invite()
    with rpc.connect(join) as there:
        first.close()
        Tokens(tmp_path / "tokens.json").revoke(token_of(join).partition(".")[0])
        with secured(tmp_path, port=first.port), pytest.raises(AccessError):
            there.wait()


def test_the_file_of_tokens_holds_no_secret_and_only_its_owner_reads_it(
    tmp_path: Path,
) -> None:
    tokens = Tokens(tmp_path / "new" / "tokens.json")
    secrets = [token.partition(".")[2] for token in (tokens.add(), tokens.add("pi"))]
    content = tokens.path.read_text()
    assert not any(secret in content for secret in secrets)
    assert stat.S_IMODE(tokens.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(tokens.path.parent.stat().st_mode) == 0o700
    assert [path.name for path in tokens.path.parent.iterdir()] == ["tokens.json"]


def test_secrets_are_compared_in_constant_time_even_for_unknown_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[int] = []

    def spy(digest: str, other: str) -> bool:
        compared.append(len(other))
        return digest == other

    tokens = Tokens(tmp_path / "tokens.json")
    token = tokens.add()
    monkeypatch.setattr(hmac, "compare_digest", spy)
    assert tokens.identify(token).id == token[:8]
    with pytest.raises(AccessError):
        tokens.identify("unknown.secret")
    assert compared == [64, 64]


def test_every_change_on_disk_is_seen_however_quickly_they_follow(
    tmp_path: Path,
) -> None:
    here, elsewhere = Tokens(tmp_path / "tokens.json"), Tokens(tmp_path / "tokens.json")
    for _ in range(50):
        token = elsewhere.add()
        assert here.identify(token)
        elsewhere.add()
        elsewhere.revoke(token[:8])
        with pytest.raises(AccessError):
            here.identify(token)


def test_tokens_made_and_revoked_at_once_are_all_kept_and_all_gone(
    tmp_path: Path,
) -> None:
    def add_two_and_revoke_one(tokens: Tokens) -> None:
        for _ in range(10):
            tokens.revoke(tokens.add()[:8])
            tokens.add()

    shared, path = Tokens(tmp_path / "tokens.json"), tmp_path / "tokens.json"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add_two_and_revoke_one, [shared, shared, Tokens(path), shared]))
    assert len(Tokens(path).list()) == 40


def test_a_damaged_file_of_tokens_lets_nobody_in(
    server: rpc.Server, tmp_path: Path
) -> None:
    join = server.invite()
    (tmp_path / "tokens.json").write_text("[{]")
    with pytest.raises(TransportError, match="answers 500"):
        rpc.connect(join)


# Names


def test_a_devices_token_is_for_its_name_alone(server: rpc.Server) -> None:
    join = server.invite("pi")
    with pytest.raises(TransportError, match="this token is for 'pi'"):
        rpc.connect(join, name="laptop")
    with rpc.connect(join, name="pi"):
        assert list(server.peers) == ["pi"]


def test_another_token_cannot_take_a_connected_name(server: rpc.Server) -> None:
    shared = server.invite()
    for name, mine, others in (
        ("shared", shared, (shared, server.invite())),
        ("bound", server.invite("bound"), (shared, server.invite("bound"))),
    ):
        with rpc.connect(mine, name=name) as there:
            for other in others:
                with pytest.raises(TransportError, match=f"'{name}' (is|has)"):
                    rpc.connect(other, name=name)
            assert there.add(1, 2) == 3


def test_a_name_that_a_token_is_bound_to_is_kept_for_it_while_it_is_away(
    server: rpc.Server,
) -> None:
    shared, bound = server.invite(), server.invite("pi")
    with pytest.raises(TransportError, match="'pi' has a token of its own"):
        rpc.connect(shared, name="pi")
    with rpc.connect(bound, name="pi"):
        assert list(server.peers) == ["pi"]


# Expelled


def let_in(join: str, name: str) -> bool:
    """Return whether a token lets a peer of that name in."""
    try:
        with rpc.connect(join, name=name) as there:
            return bool(there.add(1, 2) == 3)
    except AccessError:
        return False


def test_who_is_expelled_loses_the_name_for_its_own_token_alone(
    server: rpc.Server,
) -> None:
    offender, owner = server.invite(), server.invite()
    with rpc.connect(offender, name="pi") as there:
        server.expel("pi", "it lied")
        with pytest.raises(AccessError, match="it lied"):
            there.wait()
    assert "'pi' was expelled: it lied" in str(refused(offender, name="pi"))
    assert let_in(owner, "pi")  # nobody took its name from it
    assert let_in(offender, "other")  # a token that is bound to no name


def test_who_left_before_it_was_expelled_is_known_by_its_token(tmp_path: Path) -> None:
    gone = threading.Event()
    with secured(tmp_path, left=lambda peer: gone.set()) as server:
        offender, owner = server.invite(), server.invite()
        assert let_in(offender, "pi")
        assert gone.wait(30)
        server.expel("pi", "it lied")
        assert not let_in(offender, "pi")
        assert let_in(owner, "pi")


def test_a_name_that_was_expelled_before_this_start_is_refused_to_all(
    server: rpc.Server,
) -> None:
    server.expel("pi", "it lied, before the run was resumed")
    assert not let_in(server.invite(), "pi")
    assert not let_in(server.invite("pi"), "pi")


def test_a_device_with_a_token_of_its_own_is_out_for_good(server: rpc.Server) -> None:
    join = server.invite("pi")
    assert let_in(join, "pi")
    assert asked(join, "POST", "/call/add", b'{"args": [1, 2]}') == 200
    server.expel("pi", "it lied")
    assert not let_in(join, "pi")
    with pytest.raises(TransportError, match="this token is for 'pi'"):
        rpc.connect(join, name="other")
    assert asked(join, "POST", "/call/add", b'{"args": [1, 2]}') == 403
    with pytest.raises(TransportError, match="'pi' has a token of its own"):
        rpc.connect(server.invite(), name="pi")


# Expiry, and the token that is shared


def test_a_token_expires(server: rpc.Server, tmp_path: Path) -> None:
    assert let_in(server.invite("pi", lifetime_s=3600.0), "pi")
    expired = server.invite("late", lifetime_s=0.0)
    assert "does not accept this token" in str(refused(expired, name="late"))
    with pytest.raises(AccessError, match=r"expired on \d{4}-\d\d-\d\d"):
        Tokens(tmp_path / "tokens.json").identify(token_of(expired))


def test_the_shared_join_string_is_the_same_at_every_start(tmp_path: Path) -> None:
    with secured(tmp_path) as first:
        join = first.join_string()
        assert stat.S_IMODE((tmp_path / "shared-token").stat().st_mode) == 0o600
    with secured(tmp_path, port=first.port) as second:
        assert second.join_string() == join
        assert let_in(join, "pi")
    assert len(Tokens(tmp_path / "tokens.json").list()) == 1


@pytest.mark.parametrize("content", [b"", b"\xff\n", b"ab12.guess\n", None])
def test_another_token_is_shared_once_that_one_is_revoked_or_damaged(
    tmp_path: Path, content: bytes | None
) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    token = tokens.shared()
    if content is None:
        tokens.revoke(token[:8])
    else:
        (tmp_path / "shared-token").write_bytes(content)
    other = tokens.shared()
    assert other != token
    assert tokens.shared() == other
    assert tokens.identify(other).name is None


def test_a_file_of_tokens_of_version_0_2_is_read(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    token = tokens.add("pi")
    (entry,) = tokens.list()
    old = {"id": entry.id, "sha256": entry.sha256, "name": "pi", "may_call": ["*"]}
    tokens.path.write_text(json.dumps([old]))
    assert tokens.identify(token).name == "pi"
    (entry,) = tokens.list()
    assert (entry.made, entry.expires) == (None, None)


# Permissions


def test_a_peer_calls_what_its_token_permits_and_nothing_else(
    server: rpc.Server,
) -> None:
    ran.clear()
    with rpc.connect(server.invite(may_call=("add", "read_*"))) as there:
        assert there.add(1, 2) == 3
        assert there.read_clock() == "noon"
        assert there.functions == ["add", "read_clock"]
        for name in ("erase", "ad", "adds", "Add", "unread_clock", "__class__"):
            with pytest.raises(AccessError, match=f"may not call {name}$"):
                there[name]()
    assert ran == []


def test_a_post_calls_what_its_token_permits_and_nothing_else(
    server: rpc.Server,
) -> None:
    ran.clear()
    join = server.invite(may_call=("add", "read_*"))
    assert asked(join, "POST", "/call/add", b'{"args": [1, 2]}') == 200
    assert asked(join, "POST", "/call/read_clock") == 200
    for name in ("erase", "er%61se", "ad", "unread_clock", "__class__"):
        assert asked(join, "POST", f"/call/{name}") == 403
    assert ran == []


def asked(join: str, method: str, path: str, body: bytes = b"", **headers: str) -> int:
    """Return the status of a plain HTTP request."""
    address = Address.of(join)
    place, headers = str(address), {"Content-Type": "application/json", **headers}
    connection = http.client.HTTPConnection(place, timeout=30)
    if address.tls:
        unchecked = certificates.client_context(pinned=True)
        connection = http.client.HTTPSConnection(place, timeout=30, context=unchecked)
        headers["Authorization"] = f"Bearer {address.token}"
    try:
        connection.request(method, path, body, headers)
        return connection.getresponse().status
    finally:
        connection.close()


def upgraded(join: str, **headers: str) -> int:
    """Return the status of a WebSocket upgrade."""
    headers |= {"Connection": "Upgrade", "Upgrade": "websocket"}
    headers |= {"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": f"{'A' * 22}=="}
    return asked(join, "GET", "/rpc", b"", **headers)


# Certificates


def test_the_first_start_makes_a_certificate_and_shows_one_join_string(
    tmp_path: Path,
) -> None:
    messages: list[str] = []
    with secured(tmp_path, say=messages.append) as here:
        (join,) = (word for word in " ".join(messages).split() if "melisma://" in word)
        assert stat.S_IMODE((tmp_path / "key.pem").stat().st_mode) == 0o600
        assert here.fingerprint == Address.of(join).fingerprint
        with rpc.connect(join) as there:
            assert there.add(1, 2) == 3
    assert len(messages) == 1


def test_the_second_start_has_the_same_certificate_and_shows_no_token(
    tmp_path: Path,
) -> None:
    messages: list[str] = []
    with secured(tmp_path) as first:
        join = first.invite()
    with secured(tmp_path, say=messages.append, port=first.port) as second:
        assert second.fingerprint == first.fingerprint
        with rpc.connect(join) as there:
            assert there.add(1, 2) == 3
    assert len(messages) == 1
    assert "melisma://" not in messages[0]


@pytest.mark.parametrize("host", ["10.0.0.7", "fe80::1", "hub.example"])
def test_a_join_string_is_read_as_it_was_written(host: str) -> None:
    address = Address(
        host=host, port=8765, tls=True, token="ab12.S-_3", fingerprint="0f" * 32
    )
    assert Address.of(address.join_string()) == address


@contextmanager
def impostor(
    folder: Path, pem: tuple[bytes, bytes]
) -> Iterator[tuple[int, Future[bytes]]]:
    """A silent TLS server: its port, and a future of all that a client sends."""
    heard: Future[bytes] = Future()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*kept(folder, pem))

    def listen() -> None:
        client, _ = listener.accept()
        received = b""
        with suppress(OSError), tls.wrap_socket(client, server_side=True) as stream:
            while more := stream.recv(4096):
                received += more
        client.close()
        heard.set_result(received)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=listen, daemon=True).start()
        yield listener.getsockname()[1], heard


def kept(folder: Path, pem: tuple[bytes, bytes]) -> tuple[Path, Path]:
    """Write a certificate and its key under the names that a server uses."""
    folder.mkdir(exist_ok=True)
    (folder / "certificate.pem").write_bytes(pem[0])
    (folder / "key.pem").write_bytes(pem[1])
    return folder / "certificate.pem", folder / "key.pem"


def test_an_impostor_is_not_told_the_token(tmp_path: Path) -> None:
    with impostor(tmp_path, certificates.self_signed(1)) as (port, heard):
        join = f"melisma://ab.secret@127.0.0.1:{port}#{'00' * 32}"
        assert "another certificate than" in str(refused(join))
        assert heard.result(30) == b""


def test_a_server_of_an_unknown_authority_is_not_told_the_token(tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(certificates.self_signed(1)[0])
    for ca in (None, other):
        with impostor(tmp_path, certificates.self_signed(1)) as (port, heard):
            join = f"melisma://ab.secret@127.0.0.1:{port}"
            assert "the TLS handshake with" in str(refused(join, ca=ca))
            assert heard.result(30) == b""


def test_a_server_does_not_start_with_an_expired_certificate(tmp_path: Path) -> None:
    kept(tmp_path, certificates.self_signed(-1))
    with pytest.raises(ConfigError, match=r"certificate\.pem expired on"):
        secured(tmp_path)


@pytest.mark.parametrize("pinned", [True, False])
def test_a_device_refuses_an_expired_certificate_and_keeps_its_token(
    tmp_path: Path, pinned: bool
) -> None:
    with impostor(tmp_path, certificates.self_signed(-1)) as (port, heard):
        pem = tmp_path / "certificate.pem"
        pin = f"#{certificates.fingerprint_of(pem)}" if pinned else ""
        error = refused(f"melisma://ab.secret@127.0.0.1:{port}{pin}", ca=pem)
        assert "expired" in str(error)
        assert heard.result(30) == b""


def test_ones_own_certificate_is_checked_against_its_authority(tmp_path: Path) -> None:
    pem, key = kept(tmp_path / "own", certificates.self_signed(1))
    with secured(tmp_path, certificate=pem, key=key) as here:
        join = here.invite()
        assert "#" not in join
        with rpc.connect(join, ca=pem) as there:
            assert there.add(1, 2) == 3
        assert "the TLS handshake with" in str(refused(join))
    assert not (tmp_path / "key.pem").exists()


def test_a_certificate_without_its_key_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs its key"):
        secured(tmp_path, certificate=tmp_path / "certificate.pem")


def test_a_server_can_ask_peers_for_certificates_too(tmp_path: Path) -> None:
    mine, key = kept(tmp_path / "mine", certificates.self_signed(1))
    theirs, their_key = kept(tmp_path / "theirs", certificates.self_signed(1))
    with secured(tmp_path, client_ca=mine) as here:
        join = here.invite()
        with rpc.connect(join, certificate=mine, key=key) as there:
            assert there.add(1, 2) == 3
        for shown in ({}, {"certificate": theirs, "key": their_key}):
            with pytest.raises(RpcError):
                rpc.connect(join, **shown)
        assert list(here.peers) == []


def test_old_versions_of_tls_are_not_spoken(server: rpc.Server) -> None:
    old = certificates.client_context(pinned=True)
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection,
        pytest.raises(ssl.SSLError, match=r"EOF|alert protocol version"),
    ):
        old.wrap_socket(connection)


# Where to listen and dial


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "", "hub.example"])
def test_nothing_but_loopback_is_served_without_tls_and_token(host: str) -> None:
    with pytest.raises(ConfigError, match="requires TLS and a token"):
        rpc.serve(add, host=host, port=0, secure=False, say=len)


def test_a_plain_server_says_that_it_is_for_this_machine_only() -> None:
    messages: list[str] = []
    with rpc.serve(add, port=0, say=messages.append) as here:
        assert messages[0].startswith(
            f"listening on {here.address}, for this machine only"
        )
        assert here.invite() == here.address
        with rpc.connect(here.address) as there:
            assert there.add(1, 2) == 3


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "hub.example"])
def test_a_token_never_crosses_a_network_in_the_clear(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("the network was touched")

    monkeypatch.setattr(aiohttp.ClientSession, "ws_connect", never)
    for address, token in ((f"{host}:1", "ab.secret"), (f"//ab.secret@{host}:1", None)):
        with pytest.raises(ConfigError, match="could be read and changed") as caught:
            rpc.connect(address, token=token)
        assert "ab.secret" not in str(caught.value)


# Browsers


@pytest.mark.parametrize("secure", [True, False])
def test_pages_of_other_origins_cannot_call(tmp_path: Path, secure: bool) -> None:
    ran.clear()
    with rpc.serve(*ALL, port=0, secure=secure, folder=tmp_path, say=len) as here:
        join = here.invite()
        own = Address.of(join).url
        for page in (
            "https://evil.example",
            "null",
            "",
            f"{own}1",
            "http://[",
            "http:",
        ):
            assert asked(join, "POST", "/call/erase", Origin=page) == 403
            assert upgraded(join, Origin=page) == 403
        assert ran == []
        assert asked(join, "POST", "/call/erase", Origin=own) == 200
        assert upgraded(join, Origin=own) == 101
    assert ran == ["erase"]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8765", "[::", "", "@"])
def test_a_plain_server_answers_to_this_machines_own_names_only(host: str) -> None:
    ran.clear()
    with rpc.serve(*ALL, port=0, say=len) as here:
        assert asked(here.address, "POST", "/call/erase", Host=host) == 403
        assert upgraded(here.address, Host=host) == 403
        assert ran == []
        for own in (f"localhost:{here.port}", "127.0.0.1", f"[::1]:{here.port}"):
            assert asked(here.address, "POST", "/call/erase", Host=own) == 200
            assert upgraded(here.address, Host=own) == 101


# Who is not let in yet


@pytest.mark.parametrize("said", [b"", b"POST /call/erase HTTP/1.1\r\nHost: "])
def test_a_guest_that_asks_for_nothing_is_sent_away(
    monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr("melisma.rpc.listener.IDLE_S", 0.05)
    with (
        rpc.serve(add, port=0, say=len) as here,
        socket.create_connection(("127.0.0.1", here.port), timeout=30) as guest,
    ):
        guest.sendall(said)
        assert guest.recv(1) == b""


# What is written and shown


@pytest.mark.parametrize(
    "text",
    [
        "melisma://ab.secret@hub：8765",  # a wide colon, as some keyboards write it
        "melisma://ab.secret@hub:port",
        "melisma://hub:ab.secret",
        "melisma://ab.secret@[hub]:1",
        "melisma://ab.secret@hub:1#short",
        "http://ab.secret@hub:1",
        "melisma://ab.secret@",
    ],
)
def test_a_join_string_that_cannot_be_read_is_not_quoted(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Address.of(text)
    assert "ab.secret" not in str(caught.value)


def test_no_secret_is_logged_or_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with secured(tmp_path) as here:
        join = here.invite()
        wrong = with_token(join, f"{token_of(join)[:9]}{'w' * 43}")
        refused(wrong)
        with rpc.connect(join) as there:
            assert there.add(1, 2) == 3
            shown = f"{here!r} {here.address} {there!r} {there.name} {vars(there)}"
    shown += f"{Address.of(join)!r} {Address.of(join)} {caplog.text}"
    for secret in (token_of(join)[9:], "w" * 43):
        assert secret not in shown
