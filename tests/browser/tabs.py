"""Several tabs of one Chromium, each a learner of a live run."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
from tests.fleets.learners import joined
from tests.web.browser import PATIENCE_S, Page

from melisma.algorithms.control import Control
from melisma.browser.phones import Phones
from melisma.jobs.schema import Job
from melisma.launch.serve import orchestrate
from melisma.learner.learner import Learner
from melisma.runs.records import Record


class Tabs:
    """Opens tabs beside a page, and closes them."""

    def __init__(self, page: Page, session: aiohttp.ClientSession) -> None:
        self._page, self._session = page, session
        self.open: dict[str, Page] = {}
        self._targets: dict[str, str] = {}

    def join(self, link: str, name: str, *, patience_s: float = PATIENCE_S) -> Page:
        """Open the link in a tab of its own, and join under a name."""
        target = self._page.call("Target.createTarget", url="about:blank")["targetId"]
        runner, port = (
            self._page._runner,
            self._page._line.get_extra_info("peername")[1],
        )
        url = f"ws://127.0.0.1:{port}/devtools/page/{target}"
        tab = Page(runner, runner.run(self._session.ws_connect(url, max_msg_size=0)))
        self.open[name], self._targets[name] = tab, target
        tab.go(link)
        tab.until("!document.getElementById('join').disabled", patience_s)
        enter(tab, name)
        return tab

    def close(self, name: str) -> None:
        """Close a tab as the system does: without asking."""
        self.open.pop(name)
        self._page.call("Target.closeTarget", targetId=self._targets.pop(name))


def enter(tab: Page, name: str) -> None:
    """Enter a name, and press Join."""
    tab.look(f"document.getElementById('name').value = {json.dumps(name)}")
    tab.look("document.getElementById('join').click()")


def seen(tab: Page, id: str) -> str:
    """Return what stands in a part of the page."""
    return str(tab.look(f"document.getElementById({json.dumps(id)}).textContent"))


@contextmanager
def tabs_of(page: Page) -> Iterator[Tabs]:
    async def made() -> aiohttp.ClientSession:
        return aiohttp.ClientSession()

    session = page._runner.run(made())
    tabs = Tabs(page, session)
    try:
        yield tabs
    finally:
        for name in [*tabs.open]:
            tabs.close(name)
        page._runner.run(session.close())


class Live:
    """A run in a thread, whose link browsers open."""

    def __init__(self, job: Job, into: Path, learners: int, **options: Any) -> None:
        self.records: list[Record] = []
        self.phones = options.pop("phones", None) or Phones()
        self._ready, self._failed = threading.Event(), list[BaseException]()
        self._changed = threading.Condition()
        self._python: Sequence[Learner] = options.pop("python", ())
        self._open = ExitStack()
        self._control = Control()
        options |= {"port": 0, "say": len, "control": self._control}
        options["phones"] = self.phones

        def run() -> None:
            try:
                with self._open:
                    orchestrate(
                        job,
                        into,
                        learners=learners,
                        watch=self._watch,
                        ready=self._begin,
                        **options,
                    )
            except BaseException as error:  # raised where it is waited for
                self._failed.append(error)
            self._ready.set()
            with self._changed:
                self._changed.notify_all()

        into.mkdir(exist_ok=True)
        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)
        if self._failed:
            raise self._failed[0]

    @property
    def link(self) -> str:
        return self.phones.link

    def _begin(self, server: Any) -> None:
        self.server = server
        self._open.enter_context(joined(server, self._python))
        self._ready.set()

    def _watch(self, record: Record) -> None:
        with self._changed:
            self.records.append(record)
            self._changed.notify_all()

    def until(
        self, true: Callable[[list[Record]], Any], patience_s: float = PATIENCE_S
    ) -> Any:
        """Wait until something is true of the records; fail after a while."""
        with self._changed:
            over = lambda: true(self.records) or not self._thread.is_alive()  # noqa: E731
            assert self._changed.wait_for(over, patience_s), self.records[-5:]
        return true(self.records)

    def stop(self) -> None:
        """Begin no more cycles, and wait for the end."""
        self._control.stop()
        self.end()

    def end(self, patience_s: float = 2 * PATIENCE_S) -> list[Record]:
        """Wait for the end; return all records."""
        self._thread.join(patience_s)
        assert not self._thread.is_alive(), self.records[-5:]
        if self._failed:
            raise self._failed[0]
        return self.records
