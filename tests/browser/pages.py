"""An orchestrator whose port also serves the modules that a browser loads."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from tests.rpc.proxies import Proxy
from tests.web.browser import PATIENCE_S, Page

import melisma
from melisma import rpc

MODULES = Path(melisma.__file__).parent / "browser" / "static"
HERE = Path(__file__).parent
VECTORS = HERE.parent / "rpc" / "vectors.json"
EMPTY = "<!doctype html><title>a test</title><link rel=icon href=data:>"


def routes(app: web.Application, identify: Any) -> None:
    """Serve the modules, and what the tests add to them."""

    async def page(request: web.Request) -> web.Response:
        return web.Response(text=EMPTY, content_type="text/html")

    async def vectors(request: web.Request) -> web.Response:
        return web.Response(text=VECTORS.read_text("utf-8"))

    app.router.add_get("/test", page)
    app.router.add_get("/vectors.json", vectors)
    app.router.add_static("/static", MODULES)
    app.router.add_static("/tests", HERE / "static")


@contextmanager
def serving(*services: Any, **options: Any) -> Iterator[rpc.Server]:
    """Serve some functions, without a token, and the modules beside them."""
    silent = {"say": lambda text: None, "port": 0}
    with rpc.serve(*services, routes=routes, **{**silent, **options}) as server:
        yield server


def opened(page: Page, server: rpc.Server | Proxy) -> str:
    """Open the empty page of a server, or through a proxy; return its address."""
    url = f"http://{server.address}"
    page.go(f"{url}/test")
    page.until("document.title === 'a test'")
    return url


@contextmanager
def through(server: rpc.Server) -> Iterator[Proxy]:
    """Forward a port of its own to a server, on a thread; `Proxy` can cut it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def run(work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(PATIENCE_S)

    proxy = Proxy(int(server.address.rpartition(":")[2]))
    try:
        run(proxy.__aenter__())
        yield proxy
    finally:
        run(proxy.__aexit__())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
