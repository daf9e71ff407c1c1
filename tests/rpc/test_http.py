"""Calls over HTTP with JSON, as curl and other languages make them."""

import asyncio
import http.client
import json
import shutil
import ssl
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from aiohttp import web

from melisma import rpc
from melisma.errors import TransportError
from melisma.rpc import http as http_calls
from melisma.rpc.address import Address
from melisma.rpc.http import JSON_BYTES

JSON = {"Content-Type": "application/json"}


class Workshop:
    """A function of each kind; events tell when long ones begin and stop."""

    def __init__(self) -> None:
        self.begun, self.stopped = threading.Event(), threading.Event()

    @rpc.expose
    def greet(self, name: str = "you", *, loud: bool = False) -> str:
        return f"Hello {name}{'!' if loud else '.'}"

    @rpc.expose
    async def double(self, number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    @rpc.expose
    def arrays(self) -> dict[str, Any]:
        return {
            "array": np.arange(4, dtype=np.float32).reshape(2, 2),
            "number": np.int64(7),
            "tensor": torch.tensor([1.5, 2.5]),
            "tuple": (1, None),
        }

    @rpc.expose
    def count(self, to: int) -> Iterator[Any]:
        for i in range(to):
            yield np.array([i])

    @rpc.expose
    async def acount(self, to: int) -> AsyncIterator[int]:
        for i in range(to):
            yield i

    @rpc.expose
    def fail(self) -> None:
        raise ZeroDivisionError("by hand")

    @rpc.expose
    async def leave(self) -> None:
        raise SystemExit("the function wants to end the process")

    @rpc.expose
    def exhaust(self) -> int:
        return next(iter(()))

    @rpc.expose
    def fail_midway(self) -> Iterator[int]:
        yield 1
        raise ZeroDivisionError("after one")

    @rpc.expose
    def unsendable(self) -> object:
        return object()

    @rpc.expose
    def caller(self) -> tuple[str, str, bool]:
        request = rpc.current()
        return request.function, request.caller, request.peer is None

    @rpc.expose
    def wait(self) -> None:
        request = rpc.current()
        self.begun.set()
        request.sleep(60.0)
        if request.cancelled:
            self.stopped.set()

    @rpc.expose
    async def await_long(self) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            if rpc.current():
                self.stopped.set()

    @rpc.expose
    def flow(self) -> Iterator[str]:
        try:
            while True:
                self.begun.set()
                yield "drop " * 1000
        finally:
            self.stopped.set()


@pytest.fixture
def workshop() -> Workshop:
    return Workshop()


@pytest.fixture
def server(workshop: Workshop) -> Iterator[rpc.Server]:
    with rpc.serve(workshop, port=0, say=len) as here:
        yield here


def post(
    server: rpc.Server,
    function: str,
    body: object = None,
    *,
    data: bytes | None = None,
    headers: dict[str, str] = JSON,
    method: str = "POST",
) -> tuple[int, Any]:
    """Return status and content of the answer: lines of it, if it is a stream."""
    connection = http.client.HTTPConnection(server.address, timeout=30)
    content = json.dumps(body or {}).encode() if data is None else data
    try:
        connection.request(method, f"/call/{function}", content, headers)
        response = connection.getresponse()
        values = [json.loads(value) for value in response.read().splitlines()]
    finally:
        connection.close()
    if response.headers["Content-Type"] == "application/x-ndjson":
        return response.status, values
    assert response.headers.get_content_type() == "application/json"
    return response.status, values[0]


def error_of(answer: tuple[int, Any]) -> tuple[int, str, str]:
    status, content = answer
    assert set(content) == {"error"}
    assert set(content["error"]) == {"type", "message"}
    return status, content["error"]["type"], content["error"]["message"]


# What comes back


@pytest.mark.parametrize(
    ("body", "greeting"),
    [
        (b"", "Hello you."),
        (b"{}", "Hello you."),
        (b'{"args": ["John"]}', "Hello John."),
        (b'{"kwargs": {"name": "John", "loud": true}}', "Hello John!"),
        (b'{"args": ["John"], "kwargs": {"loud": true}}', "Hello John!"),
        ('{"args": ["Zoë"]}'.encode(), "Hello Zoë."),
    ],
)
def test_arguments_may_be_given_by_place_by_name_or_not_at_all(
    server: rpc.Server, body: bytes, greeting: str
) -> None:
    assert post(server, "greet", data=body) == (200, {"result": greeting})


def test_a_coroutine_is_awaited(server: rpc.Server) -> None:
    assert post(server, "double", {"args": [21]}) == (200, {"result": 42})


def test_calls_over_http_are_counted(server: rpc.Server) -> None:
    post(server, "double", {"args": [21]})
    assert server.metrics.answered["double"].calls == 1


def test_arrays_and_tensors_come_as_lists(server: rpc.Server) -> None:
    status, content = post(server, "arrays")
    assert status == 200
    assert content["result"] == {
        "array": [[0.0, 1.0], [2.0, 3.0]],
        "number": 7,
        "tensor": [1.5, 2.5],
        "tuple": [1, None],
    }


def test_arrays_with_too_many_numbers_for_json_are_refused(
    server: rpc.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_calls, "JSON_NUMBERS", 6)  # the answer has seven
    status, kind, message = error_of(post(server, "arrays"))
    assert (status, kind) == (500, "TypeError")
    assert message.endswith("are not sent as JSON: use melisma.rpc.connect")


def test_generators_answer_line_by_line(server: rpc.Server) -> None:
    assert post(server, "count", {"args": [2]}) == (200, [{"item": [0]}, {"item": [1]}])
    assert post(server, "acount", {"args": [2]}) == (200, [{"item": 0}, {"item": 1}])
    assert post(server, "count", {"args": [0]}) == (200, [])


def test_a_function_knows_who_calls(tmp_path: Path, workshop: Workshop) -> None:
    assert result_of_caller(tmp_path, workshop, None) == ["caller", "HTTP", True]
    assert result_of_caller(tmp_path, workshop, "pi") == ["caller", "pi", True]


def result_of_caller(folder: Path, workshop: Workshop, name: str | None) -> object:
    with rpc.serve(workshop, port=0, secure=True, folder=folder, say=len) as here:
        token = Address.of(here.invite(name)).token
        context = ssl.create_default_context(cafile=folder / "certificate.pem")
        connection = http.client.HTTPSConnection(here.address, context=context)
        connection.request(
            "POST", "/call/caller", b"", JSON | {"Authorization": f"Bearer {token}"}
        )
        content = json.loads(connection.getresponse().read())
        connection.close()
    return content["result"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_calls_a_function(server: rpc.Server) -> None:
    done = subprocess.run(
        [
            *("curl", "--silent", "--noproxy", "*", f"{server.address}/call/greet"),
            *("--header", "Content-Type: application/json"),
            *("--data", '{"args": ["John"]}'),
        ],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.stdout == '{"result":"Hello John."}', done.stderr


# What goes wrong in a function


def test_what_a_function_raises_comes_back_without_its_traceback(
    server: rpc.Server,
) -> None:
    error = error_of(post(server, "fail"))
    assert error == (500, "ZeroDivisionError", "by hand")


def test_an_error_in_the_middle_of_a_stream_is_its_last_line(
    server: rpc.Server,
) -> None:
    status, lines = post(server, "fail_midway")
    assert (status, lines[0]) == (200, {"item": 1})
    assert error_of((status, lines[1]))[1:] == ("ZeroDivisionError", "after one")
    assert len(lines) == 2


def test_a_function_cannot_end_the_server(server: rpc.Server) -> None:
    assert error_of(post(server, "leave"))[:2] == (500, "SystemExit")
    assert post(server, "double", {"args": [1]}) == (200, {"result": 2})


def test_a_stray_stop_iteration_is_an_error_like_any(server: rpc.Server) -> None:
    assert error_of(post(server, "exhaust"))[:2] == (500, "RuntimeError")


def test_wrong_arguments_are_the_functions_error(server: rpc.Server) -> None:
    for name in ("double", "greet", "count", "acount"):
        answer = post(server, name, {"args": [1, 2, 3, 4]})
        assert error_of(answer)[:2] == (500, "TypeError")


def test_a_result_that_json_cannot_hold_is_an_error(server: rpc.Server) -> None:
    error = error_of(post(server, "unsendable"))
    assert error == (500, "TypeError", "object cannot be sent as JSON")


# What goes wrong before


def test_an_unknown_function_gets_404_and_a_suggestion(server: rpc.Server) -> None:
    status, _, message = error_of(post(server, "gret"))
    assert status == 404
    assert "did you mean 'greet'?" in message


def test_what_is_not_json_by_its_type_gets_415(server: rpc.Server) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        answer = post(server, "greet", headers={"Content-Type": kind})
        assert error_of(answer)[0] == 415
    assert error_of(post(server, "greet", headers={}))[0] == 415


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[1]",
        b'{"arguments": []}',
        b'{"args": 3}',
        b'{"kwargs": []}',
        b'{"args": ["\xff"]}',
        b'{"args": [' + b"[" * 100_000,
        b" " * (JSON_BYTES + 1),
    ],
    ids=["cut", "list", "key", "args", "kwargs", "utf-8", "deep", "large"],
)
def test_a_body_that_is_not_right_gets_400(server: rpc.Server, body: bytes) -> None:
    assert error_of(post(server, "greet", data=body))[:2] == (400, "HTTPBadRequest")


def test_a_body_that_is_not_packed_as_it_says_gets_400(server: rpc.Server) -> None:
    answer = post(
        server, "greet", data=b"{}", headers=JSON | {"Content-Encoding": "gzip"}
    )
    assert error_of(answer)[:2] == (400, "HTTPBadRequest")


def test_other_methods_get_405(server: rpc.Server) -> None:
    for method in ("GET", "PUT", "OPTIONS"):
        connection = http.client.HTTPConnection(server.address)
        connection.request(method, "/call/greet")
        assert connection.getresponse().status == 405
        connection.close()


def test_a_call_without_a_right_token_gets_401(
    tmp_path: Path, workshop: Workshop
) -> None:
    with rpc.serve(workshop, port=0, secure=True, folder=tmp_path, say=len) as here:
        context = ssl.create_default_context(cafile=tmp_path / "certificate.pem")
        token = Address.of(here.invite()).token
        for headers in (
            {},
            {"Authorization": ""},
            {"Authorization": "Bearer"},
            {"Authorization": "Bearer \xff.\xff"},
            {"Authorization": f"Basic {token}"},
            {"Authorization": f"Bearer {token}x"},
        ):
            connection = http.client.HTTPSConnection(here.address, context=context)
            connection.request("POST", "/call/greet", b"", JSON | headers)
            response = connection.getresponse()
            assert error_of((response.status, json.load(response)))[0] == 401
            connection.close()


# A caller that goes away


@pytest.mark.parametrize("function", ["wait", "await_long", "flow"])
def test_a_caller_that_hangs_up_stops_the_function(
    server: rpc.Server, workshop: Workshop, function: str
) -> None:
    connection = http.client.HTTPConnection(server.address)
    connection.request("POST", f"/call/{function}", b"", JSON)
    assert workshop.begun.wait(30)
    connection.close()
    assert workshop.stopped.wait(30)


def test_a_peer_that_gives_up_while_it_is_let_in_leaves_no_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # TLS takes a moment to close, in which aiohttp has not noticed yet.
    async def gone(request: web.Request, response: web.StreamResponse) -> None:
        assert request.transport is not None
        request.transport.close()

    async def scenario() -> None:
        def routes(app: web.Application, identify: object) -> None:
            app.on_response_prepare.append(gone)

        options: dict[str, Any] = {"secure": True, "folder": tmp_path}
        async with await rpc.aserve(
            Workshop(), port=0, routes=routes, say=lambda text: None, **options
        ) as server:
            with pytest.raises(TransportError, match="nobody answers"):
                await rpc.aconnect(server.join_string(), name="hasty")

    asyncio.run(scenario())
    assert [r.getMessage() for r in caplog.records if r.levelname == "ERROR"] == []
