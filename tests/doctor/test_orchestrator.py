"""The way to an orchestrator, with servers that are there."""

import http.server
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from melisma import __version__, rpc
from melisma.doctor.finding import Finding
from melisma.doctor.orchestrator import orchestrator
from melisma.rpc import certificates


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rpc.Server]:
    """A server with TLS and tokens, on loopback."""
    folder = tmp_path_factory.mktemp("server")
    with rpc.serve(secure=True, folder=folder, port=0, say=len) as here:
        yield here


def found(address: str, token: str | None = None) -> dict[str, Finding]:
    return {finding.check: finding for finding in orchestrator(address, token)}


def problems(address: str) -> list[tuple[str, str]]:
    return [
        (name, f"{finding.says}: {finding.fix}")
        for name, finding in found(address).items()
        if finding.level == "problem"
    ]


def test_all_is_well_where_join_would_work(server: rpc.Server) -> None:
    seen = found(server.join_string())
    assert {finding.level for finding in seen.values()} == {"ok"}
    checks = ["reachable", "certificate", "clocks", "token", "server", "link"]
    assert list(seen) == checks
    assert seen["server"].facts["version"] == __version__
    assert seen["link"].facts["down_bytes_per_s"] > 0
    assert seen["certificate"].facts["fingerprint"] == server.fingerprint


def test_nobody_joins_by_it(server: rpc.Server) -> None:
    found(server.join_string())
    assert len(server.peers) == 0


def test_without_tls_on_this_machine_no_token_is_needed() -> None:
    with rpc.serve(port=0, say=len) as here:
        assert found(here.address)["token"].says == "none is needed"


def test_another_certificate_than_the_pinned_one_is_told(server: rpc.Server) -> None:
    join = re.sub("#.*", f"#{'0' * 64}", server.join_string())
    ((check, told),) = problems(join)
    assert check == "certificate"
    assert "has another one than the join string pins: ask for a new" in told


def test_a_join_string_without_its_end_is_told(server: rpc.Server) -> None:
    ((check, told),) = problems(re.sub("#.*", "", server.join_string()))
    assert check == "certificate"
    assert "self-signed certificate: use the whole join string" in told


def test_a_token_that_is_refused_is_told_and_not_shown(server: rpc.Server) -> None:
    join = re.sub("//.*@", "//ab.secret@", server.join_string())
    ((check, told),) = problems(join)
    assert (check, "refuses this token" in told) == ("token", True)
    assert "secret" not in repr(found(join))


def test_a_token_is_taken_in_place_of_the_join_strings(server: rpc.Server) -> None:
    token = re.findall("//(.*)@", server.join_string())[0]
    without = re.sub("//.*@", "//", server.join_string())
    assert "without a token" in found(without)["token"].says
    assert found(without, token)["token"].level == "ok"


def test_tls_is_told_where_there_is_none_and_where_it_is_missing(
    server: rpc.Server,
) -> None:
    ((check, told),) = problems(server.address)
    assert (check, "needs the whole join string" in told) == ("server", True)
    with rpc.serve(port=0, say=len) as here:
        ((check, told),) = problems(f"melisma://{here.address}")
    assert (check, "no TLS at" in told) == ("certificate", True)


def test_nobody_listening_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    ((check, told),) = problems(f"127.0.0.1:{port}")
    assert check == "reachable"
    assert f"nobody listens at 127.0.0.1:{port}: start `melisma serve`" in told


def test_a_name_without_an_address_is_told() -> None:
    ((check, _),) = problems("melisma://ab@nobody.invalid")
    assert check == "reachable"


@pytest.mark.parametrize(
    ("address", "says"),
    [("http://pi", "not an address"), ("192.0.2.7:1", "has no TLS: join refuses it")],
)
def test_an_address_that_join_would_refuse_is_told(address: str, says: str) -> None:
    ((check, told),) = problems(address)
    assert (check, says in told) == ("address", True)


@contextmanager
def presenting(folder: Path, valid_days: float) -> Iterator[tuple[str, list[bytes]]]:
    """A server with a certificate of so many days: its join string, what it heard."""
    pem, key = certificates.self_signed(valid_days)
    (folder / "c.pem").write_bytes(pem)
    (folder / "k.pem").write_bytes(key)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "c.pem", folder / "k.pem")
    heard: list[bytes] = []

    def listen() -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                client, _ = listener.accept()
                with suppress(OSError), tls.wrap_socket(client, server_side=True) as s:
                    heard.append(s.recv(4096))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=listen, daemon=True).start()
        pin = certificates.fingerprint_of(folder / "c.pem")
        yield f"melisma://ab.secret@127.0.0.1:{listener.getsockname()[1]}#{pin}", heard


def test_an_expired_certificate_is_told_and_gets_no_token(tmp_path: Path) -> None:
    with presenting(tmp_path, -1) as (join, heard):
        ((check, told),) = problems(join)
    assert check == "certificate"
    assert re.search(r"expired on \d{4}-\d\d-\d\d; this clock says", told)
    assert b"".join(heard) == b""


def test_a_certificate_that_ends_soon_is_noted(tmp_path: Path) -> None:
    with presenting(tmp_path, 3) as (join, _):
        seen = found(join)
    assert seen["certificate"].level == "note"
    assert "on the server soon" in seen["certificate"].fix
    assert seen["server"].level == "problem"  # it hangs up


@contextmanager
def answering(headers: dict[str, str], status: int) -> Iterator[str]:
    """An HTTP server with these headers: its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        server_version, sys_version = headers.pop("Server", "nginx"), ""

        def do_GET(self) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Server", self.server_version)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *words: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as there:
        threading.Thread(target=there.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{there.server_port}"
        there.shutdown()


def test_a_server_of_another_kind_is_told() -> None:
    with answering({}, 200) as address:
        ((check, told),) = problems(address)
    assert (check, "is no melisma server" in told) == ("server", True)


def test_a_server_that_measures_no_links_is_noted() -> None:
    with answering({"Server": "melisma"}, 404) as address:
        seen = found(address)
    assert (seen["link"].level, seen["token"].level) == ("note", "ok")


def test_clocks_that_differ_are_noted() -> None:
    late = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() - 3600))
    with answering({"Server": "melisma", "Date": late}, 404) as address:
        clocks = found(address)["clocks"]
    assert clocks.level == "note"
    assert re.search(r"3(599|60\d) s ahead of the server's", clocks.says)
    assert clocks.facts["offset_s"] == pytest.approx(3600, abs=60)


class Signing(http.server.BaseHTTPRequestHandler):
    """A proxy that signs answers with its own name and takes small bodies alone."""

    protocol_version, target = "HTTP/1.1", ""
    most_bytes = 1 << 20  # nginx's client_max_body_size

    def do_GET(self) -> None:
        self.forward(b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if len(body) > self.most_bytes:
            self.send_error(413)
        else:
            self.forward(body)

    def forward(self, body: bytes) -> None:
        there = http.client.HTTPConnection(self.target)
        there.request(self.command, self.path, body, dict(self.headers))
        answer = there.getresponse()
        content = answer.read()
        self.send_response_only(answer.status)
        for name, value in answer.headers.items():
            if name not in ("Server", "Transfer-Encoding"):
                self.send_header(name, value)
        self.send_header("Server", "nginx/1.22.1")
        self.end_headers()
        self.wfile.write(content)
        there.close()

    def log_message(self, *words: object) -> None:
        pass


@contextmanager
def ending_tls(folder: Path, server: rpc.Server) -> Iterator[str]:
    """End TLS before a server without it: the place and the pin of a join string."""
    pem, key = certificates.self_signed(30)
    (folder / "c.pem").write_bytes(pem)
    (folder / "k.pem").write_bytes(key)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "c.pem", folder / "k.pem")
    handler = type("Handler", (Signing,), {"target": server.address})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as there:
        there.socket = tls.wrap_socket(there.socket, server_side=True)
        threading.Thread(target=there.serve_forever, daemon=True).start()
        pin = certificates.fingerprint_of(folder / "c.pem")
        yield f"127.0.0.1:{there.server_port}#{pin}"
        there.shutdown()


def test_a_proxy_that_ends_tls_and_has_a_name_of_its_own_is_seen_through(
    tmp_path: Path,
) -> None:
    with (
        rpc.serve(plain=True, folder=tmp_path, port=0, say=len) as server,
        ending_tls(tmp_path, server) as place,
    ):
        token = server.shared_token("token", ("*",), 3600.0)
        seen = found(f"melisma://{token}@{place}")
        refused = found(f"melisma://ab.secret@{place}")
    assert {finding.level for finding in seen.values()} == {"ok"}
    assert "pinned" in seen["certificate"].says
    assert seen["link"].facts["up_bytes_per_s"] > 0
    assert "refuses this token" in refused["token"].says
