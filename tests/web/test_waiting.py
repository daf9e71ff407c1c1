"""Before a run begins: who is there, who is missing, how others join."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.fleets.learners import Steady, changed, joined
from tests.web.browser import Page
from tests.web.clients import Visitor
from tests.web.sights import STATE, tab
from tests.web.test_live import until

from melisma import rpc
from melisma.browser.phones import Phones
from melisma.jobs.schema import Job, LearnersTable
from melisma.launch.serve import orchestrate
from melisma.rpc.address import Address
from melisma.units import BytesPerSecond, SamplesPerSecond

pytestmark = pytest.mark.slow

PANEL = "document.querySelector('.gathering:not([hidden])')"


def table(name: str) -> LearnersTable:
    return LearnersTable(
        name=name, rate=SamplesPerSecond(1.0), bandwidth=BytesPerSecond(1.0)
    )


PAIR = changed(learners=(table("a"), table("b")))


@dataclass(kw_only=True)
class Waits:
    """A run that waits for its learners."""

    link: str
    server: rpc.Server
    stack: ExitStack

    def join(self, *names: str) -> None:
        learners = [Steady(name=name) for name in names]
        self.stack.enter_context(joined(self.server, learners))


@contextmanager
def waiting(
    where: Path, learners: int, job: Job = PAIR, **options: Any
) -> Iterator[Waits]:
    """Orchestrate in another thread; the run is over when everybody came."""
    where.mkdir()
    found: list[Any] = []
    is_ready = threading.Event()

    def begun(server: rpc.Server) -> None:
        found.append(server)
        is_ready.set()

    def orchestrated() -> None:
        orchestrate(
            job,
            where,
            learners=learners,
            show=found.append,
            ready=begun,
            say=len,
            **{"port": 0, "phones": Phones(), **options},
        )

    with ExitStack() as stack:
        thread = threading.Thread(target=orchestrated)
        thread.start()
        try:
            assert is_ready.wait(60)
            link, server = found
            yield Waits(link=link, server=server, stack=stack)
        finally:
            with suppress(ConnectionError):  # it may be over
                Visitor(found[0]).steer("stop")
            thread.join(60)
            assert not thread.is_alive()


def stages(visitor: Visitor) -> dict[str, str]:
    waits = visitor.get("/api/status")["waiting"]
    return {name: one["stage"] for name, one in waits["learners"].items()}


def test_status_tells_who_is_ready_and_who_is_missing(tmp_path: Path) -> None:
    with waiting(tmp_path / "run", 2) as run:
        visitor = Visitor(run.link)
        status = visitor.get("/api/status")["waiting"]
        rest = {"missing": ["a", "b"], "learners": {}}
        assert status == {"needed": 2, "invites": True} | rest
        run.join("a")
        until(lambda: stages(visitor) == {"a": "ready"})
        assert visitor.get("/api/status")["waiting"]["missing"] == ["b"]
        run.join("b")
        until(lambda: visitor.get("/api/status")["waiting"] is None)


def test_of_learners_with_other_names_nobody_is_said_to_be_missing(
    tmp_path: Path,
) -> None:
    with waiting(tmp_path / "run", 2) as run:
        run.join("elsewhere")
        visitor = Visitor(run.link)
        until(lambda: stages(visitor) == {"elsewhere": "ready"})
        assert visitor.get("/api/status")["waiting"]["missing"] == []


def test_only_who_may_control_is_told_how_to_join(tmp_path: Path) -> None:
    secure: dict[str, Any] = {"secure": True, "folder": tmp_path / "keys"}
    with waiting(tmp_path / "run", 2, **secure) as run:
        join = run.server.join_string()
        device = Visitor(run.server.url, str(Address.of(join).token))
        assert device.ask("/api/invitation")[0] == 403
        assert Visitor(run.server.url).ask("/api/invitation")[0] == 401
        watch = run.server.shared_token("watch", ("watch",), 3600.0)
        assert Visitor(run.server.url, watch).ask("/api/invitation")[0] == 403
        status, told, headers = Visitor(run.link).ask("/api/invitation")
        assert status == 200
        assert told["command"] == f"MELISMA_JOIN='{join}' melisma join"
        assert told["link"].startswith(f"{run.server.url}/join#token=")
        assert headers["Cache-Control"] == "no-store"
        assert {len(row) for row in told["code"]} == {len(told["code"])}


def test_no_token_is_left_in_the_run(tmp_path: Path) -> None:
    secure: dict[str, Any] = {"secure": True, "folder": tmp_path / "keys"}
    with waiting(tmp_path / "run", 1, **secure) as run:
        told = Visitor(run.link).get("/api/invitation")
        token = str(Address.of(run.server.join_string()).token)
        phone = told["link"].partition("#token=")[2]
        secret = run.link.partition("#token=")[2]
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert files
    for path in files:
        content = path.read_bytes()
        assert not [word for word in (token, phone, secret) if word.encode() in content]


@pytest.mark.browser
def test_the_page_shows_who_is_there_and_how_to_join(
    tmp_path: Path, page: Page
) -> None:
    with waiting(tmp_path / "run", 2) as run:
        page.go(run.link)
        page.until(f"{PANEL}.innerText.includes('waiting for 2 more to join')")
        assert page.until(f"{PANEL}.querySelector('code').textContent") == (
            f"melisma join '{run.server.address}'"
        )
        run.join("a")
        page.until(f"{PANEL}.innerText.includes('1 of 2 learners ready')")
        listed = page.look("document.querySelector('.stages').innerText")
        assert listed.split("\n") == ["a ready", "b not there yet"]
        assert page.look(STATE) == "waiting"
        run.join("b")
        page.until(f"{PANEL} === null")
        page.until(f"{STATE} === 'finished'")
        assert "melisma join" not in page.look("document.body.textContent")
        assert page.errors == []


@pytest.mark.browser
def test_who_may_only_look_sees_no_way_in(tmp_path: Path, page: Page) -> None:
    with waiting(tmp_path / "run", 2) as run:
        page.go(run.server.url)
        page.until(f"{PANEL}.innerText.includes('waiting for 2 more to join')")
        tab(page, "learners")
        assert "melisma join" not in page.look("document.body.textContent")
        assert page.look("document.querySelector('.qr')") is None
