"""A real Chromium, driven by its DevTools protocol: no more than the tests need."""

import asyncio
import base64
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import pytest

PATIENCE_S = 60.0
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def found() -> str:
    """Return the browser's path; skip the test where there is none, unless in CI."""
    wanted = os.environ.get("MELISMA_BROWSER")
    path = next(filter(None, map(shutil.which, [wanted] if wanted else NAMES)), None)
    if path is not None:
        return path
    why = f"no {wanted or 'Chromium'} here: install the package `chromium`"
    if wanted or os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)


class Page:
    """One page of a browser; every method waits for its answer."""

    def __init__(self, runner: asyncio.Runner, line: Any) -> None:
        self._runner, self._line, self._calls = runner, line, 0
        self.errors: list[str] = []  #: what the console complained of
        self.weight = 0  #: bytes of what was loaded, data of runs apart
        self._urls: dict[str, str] = {}
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the protocol."""
        return self._runner.run(self._call(method, parameters))

    async def _call(self, method: str, parameters: dict[str, Any]) -> Any:
        self._calls += 1
        await self._line.send_json(
            {"id": self._calls, "method": method, "params": parameters}
        )
        async with asyncio.timeout(PATIENCE_S):
            while True:
                answer = await self._line.receive_json()
                if answer.get("id") == self._calls:
                    assert "error" not in answer, answer
                    return answer["result"]
                self._hear(answer.get("method"), answer.get("params", {}))

    def _hear(self, event: str | None, params: dict[str, Any]) -> None:
        match event:
            case "Runtime.exceptionThrown":
                self.errors.append(str(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning"):
                self.errors.append(str(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.errors.append(str(params["entry"]))
            case "Network.responseReceived":
                self._urls[params["requestId"]] = params["response"]["url"]
            case "Network.dataReceived":
                if "/api/" not in self._urls.get(params["requestId"], ""):
                    self.weight += params["dataLength"]

    def go(self, url: str) -> None:
        """Open an address."""
        self.call("Page.navigate", url=url)

    def look(self, script: str) -> Any:
        """Return what a script comes to; a promise is awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, script: str, patience_s: float = PATIENCE_S) -> Any:
        """Look until a script comes to something, and return that."""
        end_s = time.monotonic() + patience_s
        while time.monotonic() < end_s:
            seen = self.look(f"(() => {{ try {{ return {script} }} catch {{}} }})()")
            if seen:
                return seen
            time.sleep(0.05)
        raise AssertionError(f"never seen: {script}\n{self.text()}\n{self.errors}")

    def text(self) -> str:
        """Return what is to be read on the page."""
        return str(self.look("document.body?.innerText ?? ''"))

    def key(self, key: str, times: int = 1) -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp") * times:
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def screen(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the window's size, and what the system prefers."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1}
        self.call("Emulation.setDeviceMetricsOverride", mobile=width < 600, **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def downloads(self, folder: Path) -> None:
        """Keep what is saved in ``folder``."""
        where = {"behavior": "allow", "downloadPath": str(folder)}
        self.call("Browser.setDownloadBehavior", **where)

    def picture(self, path: Path) -> None:
        """Write what is seen as a PNG."""
        answer = self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(answer["data"]))


@contextmanager
def browsing(*graphics: str) -> Iterator[Page]:
    """Start a browser, give its page, end it; without graphics unless flags say how."""
    with (
        TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        asyncio.Runner() as runner,
    ):
        process = subprocess.Popen(
            [
                found(),
                "--headless=new",
                "--no-sandbox",
                *(graphics or ["--disable-gpu"]),
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--remote-debugging-port=0",
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            session, line = runner.run(_dial(Path(profile), process))
            try:
                yield Page(runner, line)
            finally:
                runner.run(session.close())
        finally:
            process.kill()
            process.wait()


async def _dial(
    profile: Path, process: "subprocess.Popen[bytes]"
) -> tuple[aiohttp.ClientSession, aiohttp.ClientWebSocketResponse]:
    """Connect to the first page, when it is there."""
    port = profile / "DevToolsActivePort"
    async with asyncio.timeout(PATIENCE_S):
        while not (port.exists() and "\n" in port.read_text()):
            assert process.poll() is None, "the browser ended"
            await asyncio.sleep(0.05)
        number = port.read_text().split()[0]
        session = aiohttp.ClientSession()
        async with session.get(f"http://127.0.0.1:{number}/json/list") as answer:
            pages = await answer.json()
        url = next(
            tab["webSocketDebuggerUrl"] for tab in pages if tab["type"] == "page"
        )
        return session, await session.ws_connect(url, max_msg_size=0)
