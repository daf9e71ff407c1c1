"""Calls over HTTP with JSON, for curl and other languages."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import copy_context
from functools import partial
from typing import Any

import msgspec
import numpy as np
from aiohttp import web

from melisma.errors import unknown
from melisma.rpc.dispatch import run_function
from melisma.rpc.hub import Hub
from melisma.rpc.metrics import Latencies
from melisma.rpc.request import Request, current_request
from melisma.rpc.service import Exposed
from melisma.rpc.tokens import Identity

JSON_BYTES = 16 << 20
#: Numbers of all arrays in an answer: as Python's own they take forty bytes each.
JSON_NUMBERS = 1 << 20
_END = object()


class Arguments(msgspec.Struct, forbid_unknown_fields=True):
    """The JSON body of a call; both fields are optional."""

    args: list[Any] = []
    kwargs: dict[str, Any] = {}


async def answer(
    request: web.Request, hub: Hub, identity: Identity
) -> web.StreamResponse:
    """Answer a POST to /call/FUNCTION."""
    exposed = _find(request.match_info["function"], hub, identity)
    arguments = await _arguments(request)
    call = Request(exposed.name, identity.name or "HTTP", None)
    current_request.set(call)  # in this request's own task
    began = time.perf_counter()
    try:
        work = partial(exposed.function, *arguments.args, **arguments.kwargs)
        response: web.StreamResponse
        if exposed.kind == "async generator":
            response = await _lines(request, work())
        elif exposed.kind == "generator":
            response = await _lines(request, _from_thread(hub, work()))
        elif exposed.kind == "coroutine":
            response = _json({"result": await work()})
        else:
            response = _json({"result": await _in_thread(hub, work, exposed)})
    except asyncio.CancelledError:
        call.cancel()
        raise
    except web.HTTPException:
        raise
    except BaseException as error:  # the edge: every exception goes to the caller
        hub.metrics.fail(exposed.name)
        return _json(_fault(error), status=500)
    latencies = hub.metrics.answered.setdefault(exposed.name, Latencies())
    latencies.add(time.perf_counter() - began)
    return response


def problem(kind: type[web.HTTPException], message: str) -> web.HTTPException:
    """Return an HTTP error whose body has the JSON form of all errors."""
    body = msgspec.json.encode({"error": {"type": kind.__name__, "message": message}})
    return kind(text=body.decode(), content_type="application/json")


def _find(name: str, hub: Hub, identity: Identity) -> Exposed:
    if not identity.may_call(name):
        raise problem(web.HTTPForbidden, f"this token may not call {name}")
    exposed = hub.service.functions.get(name)
    if exposed is None:
        offered = filter(identity.may_call, hub.service.functions)
        raise problem(web.HTTPNotFound, str(unknown("function", name, offered)))
    return exposed


async def _arguments(request: web.Request) -> Arguments:
    """Return the arguments of a call; JSON alone, which no HTML form can send."""
    if request.content_type != "application/json":
        raise problem(
            web.HTTPUnsupportedMediaType, "send Content-Type: application/json"
        )
    try:
        body = await request.read()
        return msgspec.json.decode(body or b"{}", type=Arguments)
    except web.HTTPRequestEntityTooLarge:
        raise problem(
            web.HTTPBadRequest, f"the body is larger than {JSON_BYTES} bytes"
        ) from None
    except (ValueError, RecursionError, web.RequestPayloadError) as error:
        raise problem(web.HTTPBadRequest, f"the body is not valid: {error}") from None


async def _in_thread(hub: Hub, work: Callable[[], Any], exposed: Exposed) -> Any:
    loop = asyncio.get_running_loop()
    if exposed.executor is not None:
        return await loop.run_in_executor(exposed.executor, run_function, work)
    return await loop.run_in_executor(
        hub.executor, copy_context().run, run_function, work
    )


async def _from_thread(hub: Hub, items: Iterator[Any]) -> AsyncIterator[Any]:
    loop, context = asyncio.get_running_loop(), copy_context()
    next_item = partial(next, items, _END)
    while True:
        item = await loop.run_in_executor(hub.executor, context.run, next_item)
        if item is _END:
            return
        yield item


async def _lines(request: web.Request, items: AsyncIterator[Any]) -> web.StreamResponse:
    """Send one JSON object per line, as items are produced."""
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    await response.prepare(request)
    try:
        async for item in items:
            await response.write(_encode({"item": item}) + b"\n")
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # the status has been sent
        await response.write(_encode(_fault(error)) + b"\n")
    await response.write_eof()
    return response


def _fault(error: BaseException) -> dict[str, Any]:
    return {"error": {"type": type(error).__name__, "message": str(error)}}


def _json(content: Any, status: int = 200) -> web.Response:
    return web.Response(
        body=_encode(content), status=status, content_type="application/json"
    )


def _encode(value: Any) -> bytes:
    """Return a value as JSON; TypeError if its arrays have too many numbers for it."""
    left = JSON_NUMBERS

    def plain(value: Any) -> Any:
        nonlocal left
        is_tensor = type(value).__module__.partition(".")[0] == "torch"
        if not isinstance(value, np.ndarray | np.generic) and not (
            is_tensor and hasattr(value, "tolist")
        ):
            raise TypeError(f"{type(value).__name__} cannot be sent as JSON")
        left -= math.prod(value.shape)
        if left < 0:
            raise TypeError(
                f"arrays of more than {JSON_NUMBERS} numbers are not sent as JSON: "
                "use melisma.rpc.connect"
            )
        return value.tolist()

    return msgspec.json.encode(value, enc_hook=plain)
