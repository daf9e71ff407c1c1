"""Servers that are advertised and found, on loopback."""

import asyncio
import secrets
import sys
from collections.abc import Iterator

import pytest
import zeroconf

from melisma import rpc
from melisma.errors import AccessError, ConfigError
from melisma.rpc.address import Address
from melisma.rpc.discovery import Found, advertised, discover

#: Names of this run alone: the local network is shared.
ONE, TWO, THREE = (f"lab {secrets.token_hex(4)}" for _ in range(3))


@rpc.expose
def add(a: int, b: int) -> int:
    return a + b


class Spied(zeroconf.ServiceInfo):
    """Remembers everything that is advertised about a server."""

    advertised_bytes = b""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        Spied.advertised_bytes += repr((args, options)).encode() + self.text


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rpc.Server]:
    """A server with TLS and tokens, advertised as ``ONE``."""
    folder = tmp_path_factory.mktemp("server")
    with (
        pytest.MonkeyPatch.context() as patch,
        rpc.serve(add, port=0, secure=True, folder=folder, say=len) as here,
    ):
        here.invite("pi")
        patch.setattr(zeroconf, "ServiceInfo", Spied)
        with advertised(here, ONE):
            patch.undo()
            yield here


def found(name: str, tries: int = 5) -> Found | None:
    """Return the server of that name; longer tries are for a busy network."""
    for i in range(tries):
        for there in discover(0.5 * 2**i, on="127.0.0.1"):
            if there.name == name:
                return there
    return None


@pytest.mark.slow
def test_a_server_is_found_with_its_address_and_fingerprint(server: rpc.Server) -> None:
    assert found(ONE) == Found(ONE, server.address, server.fingerprint)


@pytest.mark.slow
def test_what_is_found_does_not_let_in_without_a_token(server: rpc.Server) -> None:
    there = found(ONE)
    assert there
    with pytest.raises(AccessError):
        rpc.connect(f"melisma://{there.address}#{there.fingerprint}")
    token = Address.of(server.invite()).token
    with rpc.connect(f"melisma://{token}@{there.address}#{there.fingerprint}") as peer:
        assert peer.add(1, 2) == 3


def test_no_secret_is_advertised(server: rpc.Server) -> None:
    assert server._tokens
    assert str(server.fingerprint).encode() in Spied.advertised_bytes
    for entry in server._tokens.list():
        assert entry.id.encode() not in Spied.advertised_bytes
        assert entry.sha256.encode() not in Spied.advertised_bytes
    assert b"pi" not in Spied.advertised_bytes


@pytest.mark.slow
def test_a_plain_server_has_no_fingerprint_and_is_gone_after_its_context() -> None:
    with rpc.serve(add, port=0, say=len) as here:
        with advertised(here, TWO):
            assert found(TWO) == Found(TWO, here.address, None)
        assert found(TWO, tries=1) is None


@pytest.mark.slow
def test_servers_are_advertised_and_found_while_an_event_loop_runs() -> None:
    async def notebook() -> Found | None:
        with rpc.serve(add, port=0, say=len) as here, advertised(here, THREE):
            return found(THREE)

    there = asyncio.run(notebook())
    assert there
    assert there.name == THREE


def test_a_name_that_another_server_has_is_a_config_error(
    monkeypatch: pytest.MonkeyPatch, server: rpc.Server
) -> None:
    def taken(*_: object) -> None:
        raise zeroconf.NonUniqueNameException

    monkeypatch.setattr(zeroconf.Zeroconf, "register_service", taken)
    with (
        pytest.raises(ConfigError, match="choose another name"),
        advertised(server, TWO),
    ):
        pass


def test_without_zeroconf_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, server: rpc.Server
) -> None:
    monkeypatch.setitem(sys.modules, "zeroconf", None)
    with pytest.raises(ConfigError, match=r"pip install 'melisma\[discovery\]'"):
        discover()
    with pytest.raises(ConfigError, match="needs zeroconf"), advertised(server, "lab"):
        pass
