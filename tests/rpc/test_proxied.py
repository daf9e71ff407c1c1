"""Servers behind a proxy: one that passes TCP on, and one that ends TLS."""

import asyncio
import re
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.rpc.proxies import Proxy

from melisma import rpc
from melisma.errors import TransportError, UnverifiedError
from melisma.rpc import certificates
from melisma.rpc.address import Address, join_command

PATIENCE_S = 60.0  # guards against hanging; nothing is measured with it
#: The shortest of the usual timeouts of proxies; nginx and HAProxy have 50 or 60 s.
SHORTEST_S = 10.0


class Doubler:
    @rpc.expose
    def double(self, number: int) -> int:
        return 2 * number


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await scenario()

    asyncio.run(whole())


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.005)


async def serve(folder: Path, **options: Any) -> rpc.Server:
    served: rpc.Server = await rpc.aserve(
        Doubler(), port=0, folder=folder, say=lambda _: None, **options
    )
    return served


def ending_tls(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """Return what a proxy ends TLS with, and its certificate."""
    pem, key = certificates.self_signed(30)
    certificate = folder / "proxy.pem"
    certificate.write_bytes(pem)
    (folder / "proxy-key.pem").write_bytes(key)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, folder / "proxy-key.pem")
    return tls, certificate


def test_the_pin_holds_through_a_proxy_that_passes_tcp_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            await serve(tmp_path, secure=True) as server,
            Proxy(server.port) as proxy,
        ):
            there = re.sub(r":\d+#", f":{proxy.port}#", server.join_string())
            async with await rpc.aconnect(there, name="pi") as peer:
                assert await peer.double(21) == 42
            assert proxy.accepted == 1

    run(scenario)


def test_who_waits_for_work_is_never_idle_to_a_proxy(tmp_path: Path) -> None:
    limits = rpc.Limits(ping_s=0.02)

    async def scenario() -> None:
        async with (
            await serve(tmp_path, secure=True, limits=limits) as server,
            Proxy(server.port) as proxy,
        ):
            there = re.sub(r":\d+#", f":{proxy.port}#", server.join_string())
            async with await rpc.aconnect(there, name="pi", limits=limits):
                for _ in range(3):
                    before = proxy.forwarded_bytes
                    await until(lambda before=before: proxy.forwarded_bytes > before)  # type: ignore[misc]
            assert proxy.accepted == 1

    run(scenario)
    assert rpc.Limits().ping_s < SHORTEST_S


def test_a_learner_joins_by_a_proxy_that_ends_tls(tmp_path: Path) -> None:
    tls, certificate = ending_tls(tmp_path)

    async def scenario() -> None:
        async with (
            await serve(tmp_path, plain=True) as server,
            Proxy(server.port, tls) as proxy,
        ):
            join = server.join_string(f"https://localhost:{proxy.port}")
            async with await rpc.aconnect(join, name="pi", ca=certificate) as peer:
                assert await peer.double(21) == 42
            pinned = f"{join}#{certificates.fingerprint_of(certificate)}"
            async with await rpc.aconnect(pinned, name="pi") as peer:
                assert await peer.double(21) == 42
            with pytest.raises(UnverifiedError, match="certificate verify failed"):
                await rpc.aconnect(join, name="pi")

    run(scenario)


def test_a_server_without_tls_gives_its_token_apart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with await serve(tmp_path, plain=True) as server:
            join, token = server.join_string(), server.loose_token
            assert token
            assert join_command(join, token).startswith(f"MELISMA_TOKEN='{token}' ")
            async with await rpc.aconnect(join, name="pi", token=token) as peer:
                assert await peer.double(21) == 42
            with pytest.raises(UnverifiedError, match="does not accept this token"):
                await rpc.aconnect(join, name="pi")
        async with await serve(tmp_path, secure=True) as server:
            assert server.loose_token is None

    run(scenario)


def test_the_address_of_a_proxy_is_that_of_its_url() -> None:
    assert Address.behind("https://lab.example.org", "a.b").join_string() == (
        "melisma://a.b@lab.example.org:443"
    )
    assert Address.behind("https://[::1]:8443", "a.b").join_string() == (
        "melisma://a.b@[::1]:8443"
    )


def test_a_proxy_that_passes_no_websockets_on_is_suspected(tmp_path: Path) -> None:
    async def answer(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async def scenario() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as there:
            port = there.sockets[0].getsockname()[1]
            with pytest.raises(TransportError, match="passes no WebSockets on"):
                await rpc.aconnect(f"127.0.0.1:{port}", name="pi")

    run(scenario)
