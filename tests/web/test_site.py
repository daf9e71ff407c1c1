"""The routes over real sockets: what is sent, to whom, and what is not."""

import http.client
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from tests.web.clients import Visitor, happened, serving, token_of, write_run
from tests.web.documents import Page, page_of, rows

from melisma import rpc
from melisma.algorithms.control import Control
from melisma.runs import records
from melisma.runs.lock import lock
from melisma.runs.store import RECORDS
from melisma.views.document import Document, document
from melisma.views.web import Dashboard, events
from melisma.views.web import site as site_module

MARKUP = "<img src=x onerror=alert(1)>"
DATA = ("/api/runs", "/api/runs/one", "/api/runs/one/records", "/api/status")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    root = tmp_path / "runs"
    write_run(root / "one", name=MARKUP)
    write_run(root / "two", cycles=5, done=2)
    (root / "no run").mkdir()
    return root


@pytest.fixture
def visitor(runs: Path) -> Iterator[Visitor]:
    with serving(runs) as (server, _):
        yield Visitor(server.url)


def test_runs_are_listed_with_what_they_came_to(visitor: Visitor) -> None:
    answer = visitor.get("/api/runs")
    assert answer["live"] is None
    one, two = sorted(answer["runs"], key=lambda run: run["id"])
    assert (one["id"], one["state"], one["cycles_done"]) == ("one", "finished", 3)
    assert (one["value"], one["loss"]) == (0.3, 1 / 3)
    assert (one["time_s"], one["learners"]) == (7.0, 1)
    assert (two["state"], two["cycles_done"], two["cycles"]) == ("cut short", 2, 5)


def test_a_run_is_its_document(visitor: Visitor, runs: Path) -> None:
    answer, saved = visitor.get("/api/runs/one"), document(runs / "one")
    del answer["epoch"], saved["epoch"]
    assert answer == saved
    assert [row["measured_s"] for row in rows(answer["turns"])] == [1.0] * 3
    assert answer["cycles"]["metrics"]["accuracy"] == [0.1, 0.2, 0.3]
    assert answer["position"] == len(happened(3))


def test_names_with_markup_are_json_as_they_are(visitor: Visitor) -> None:
    _, answer, headers = visitor.ask("/api/runs/one")
    assert answer["learners"] == [MARKUP]
    assert headers["Content-Type"].startswith("application/json")
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_a_document_is_compressed_for_who_takes_it(visitor: Visitor) -> None:
    line, response = visitor.open("GET", "/api/runs/one", Accept_Encoding="gzip")
    assert response.headers["Content-Encoding"] == "gzip"
    assert response.read()[:2] == b"\x1f\x8b"
    line.close()


@pytest.mark.parametrize(("after", "limit"), [(0, 4), (5, 100), (14, 2), (16, 9)])
def test_records_come_as_they_were_written(
    visitor: Visitor, runs: Path, after: int, limit: int
) -> None:
    answer = visitor.get(f"/api/runs/one/records?after={after}&limit={limit}")
    typed = records.read(runs / "one" / RECORDS)[after : after + limit]
    lines = records.decode(b"".join(records._ENCODER.encode(r) + b"\n" for r in typed))
    assert [row["event"] for row in answer["records"]] == [
        type(r).__struct_config__.tag for r in lines
    ]
    assert [row["time_s"] for row in answer["records"]] == [r.time_s for r in typed]
    assert answer["next"] == after + len(typed)


@pytest.mark.parametrize("query", ["after=-1", "after=x", "limit=1e9", "after=²"])
def test_a_query_that_is_no_number_is_refused(visitor: Visitor, query: str) -> None:
    path = f"/api/runs/one/records?{query}".replace("²", "%C2%B2")
    status, answer, _ = visitor.ask(path)
    assert (status, "whole number" in answer["error"]["message"]) == (400, True)


def test_without_a_live_run_there_is_nothing_to_steer(visitor: Visitor) -> None:
    answer = visitor.get("/api/status")
    assert (answer["live"], answer["state"], answer["may_control"]) == (
        None,
        None,
        False,
    )
    assert visitor.ask("/metrics")[0] == 404
    assert visitor.steer("stop")[0] == 401


def test_who_has_the_link_is_told_that_there_is_nothing_to_steer(runs: Path) -> None:
    with serving(runs) as (server, site):
        status, answer = Visitor(site.attend(server)).steer("stop")
    assert (status, answer["error"]["message"]) == (409, "no run is under way here")


def test_the_page_has_no_data_and_a_strict_policy(visitor: Visitor) -> None:
    status, page, headers = visitor.ask("/")
    assert (status, headers["Content-Type"]) == (200, "text/html")
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert re.search(r"script-src 'self'(;|$)", policy)
    for reference in re.findall(rb'(?:src|href)="(static/[^"]+)"', page):
        path = f"/{reference.decode()}"
        status, _, headers = visitor.ask(path)
        assert (status, headers["Cache-Control"]) == (200, "no-cache"), path
    assert MARKUP.encode() not in page


@pytest.mark.parametrize("path", [*DATA, "/metrics"])
def test_data_is_kept_by_no_cache(visitor: Visitor, path: str) -> None:
    assert visitor.ask(path)[2]["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    "path",
    [
        "/api/runs/..",
        "/api/runs/%2e%2e",
        "/api/runs/..%2fruns%2fone",
        "/api/runs/one%2f..%2ftwo",
        "/api/runs/%2fetc",
        "/api/runs/no%20run",
        "/api/runs/one%00",
        "/api/runs/" + "x" * 5000,
        "/api/runs/../../etc/records",
        "/static/../site.py",
        "/static/%2e%2e/site.py",
        "/static/..%2fsite.py",
        "/static//etc/passwd",
        "/static/",
        "/static",
    ],
)
def test_paths_lead_nowhere_else(visitor: Visitor, path: str) -> None:
    status, answer, _ = visitor.ask(path)
    assert status in (403, 404)
    assert b"import" not in str(answer).encode()


# Who may look


def test_other_origins_and_other_names_get_nothing(visitor: Visitor) -> None:
    for path in (*DATA, "/api/runs/one/events", "/metrics"):
        assert visitor.ask(path, Origin="http://evil.example")[0] == 403
        assert visitor.ask(path, Host="evil.example")[0] == 403
    assert visitor.ask("/api/control", {"action": "stop"}, Origin="null")[0] == 403


@pytest.fixture
def secured(runs: Path, tmp_path: Path) -> Iterator[tuple[rpc.Server, str]]:
    """A server with TLS and tokens, and the link that it prints."""
    home = tmp_path / "home"
    with serving(runs, secure=True, folder=home) as (server, site):
        yield server, site.attend(server)


def asked(server: rpc.Server, token: str | None, path: str) -> int:
    return Visitor(server.url, token).ask(path)[0]


@pytest.mark.parametrize("path", [*DATA, "/api/runs/one/events", "/metrics"])
def test_a_token_is_needed_and_a_wrong_one_sees_nothing(
    secured: tuple[rpc.Server, str], path: str
) -> None:
    server, _ = secured
    for token in (None, "wrong", "00000000.wrong"):
        status, answer, _ = Visitor(server.url, token).ask(path)
        assert (status, answer.keys()) == (401, {"error"})


@pytest.mark.parametrize("path", [*DATA, "/api/runs/one/events", "/metrics"])
def test_a_device_that_may_join_may_not_look(
    secured: tuple[rpc.Server, str], path: str
) -> None:
    server, _ = secured
    for may_call in (("*",), ("w*",), ("parameters",)):
        token = token_of(server.invite("pi", may_call=may_call))
        assert asked(server, token, path) == 403
    assert Visitor(server.url, token).steer("stop")[0] == 403


def test_who_may_watch_may_look_and_not_steer(secured: tuple[rpc.Server, str]) -> None:
    server, _ = secured
    token = token_of(server.invite(may_call=("watch",)))
    visitor = Visitor(server.url, token)
    assert [asked(server, token, path) for path in DATA] == [200] * len(DATA)
    assert visitor.get("/api/status")["may_control"] is False
    status, answer = visitor.steer("stop")
    assert (status, "not control" in answer["error"]["message"]) == (403, True)


def test_who_may_control_may_look_and_is_let_through(
    secured: tuple[rpc.Server, str],
) -> None:
    server, link = secured
    token = token_of(server.invite(may_call=("control",)))
    for visitor in (Visitor(server.url, token), Visitor(link)):
        assert len(visitor.get("/api/runs")["runs"]) == 2
        assert visitor.steer("stop")[0] == 409  # no run is live


def test_the_secret_of_one_start_is_none_of_another(
    secured: tuple[rpc.Server, str], runs: Path, tmp_path: Path
) -> None:
    with serving(runs, secure=True, folder=tmp_path / "home") as (other, _):
        assert asked(other, Visitor(secured[1]).token, "/api/runs") == 401


def test_the_page_itself_needs_no_token(secured: tuple[rpc.Server, str]) -> None:
    assert asked(secured[0], None, "/") == 200


# Events


def test_a_finished_run_is_told_at_once_and_no_more(visitor: Visitor) -> None:
    answer = list(visitor.events("/api/runs/one/events"))
    assert [event for event, _ in answer] == ["rows"]
    assert page_of(answer[0][1]) == page_of(visitor.get("/api/runs/one"))


def test_who_comes_back_is_told_the_rest_and_nothing_twice(
    visitor: Visitor, runs: Path
) -> None:
    """Cut off after every record of a run that goes on."""
    path = runs / "two" / RECORDS
    lines = happened(5)
    page, after, epoch = Page(), 0, ""
    with path.open("wb") as file:
        lock(file)
        for number, record in enumerate(lines, start=1):
            records.write(record, file)
            file.flush()
            query = f"after={after}&epoch={epoch}" if epoch else "after=0"
            for event, answer in visitor.events(f"/api/runs/two/events?{query}"):
                assert event == "rows"
                page.take(answer)
                after, epoch = answer["position"], answer["epoch"]
                if after == number:
                    break
        assert page.rest["run"]["state"] in ("running", "finished")
    whole = visitor.get("/api/runs/two")
    page.rest["run"]["state"] = whole["run"]["state"]
    assert page == page_of(whole)


def test_a_page_of_another_time_is_told_all_anew(visitor: Visitor) -> None:
    whole = visitor.get("/api/runs/one")
    for query in ("after=3&epoch=other", "after=9999"):
        ((_, answer),) = visitor.events(f"/api/runs/one/events?{query}")
        assert (answer["after"], answer["turns"]) == (0, whole["turns"])
    query = f"after=3&epoch={whole['epoch']}"
    ((_, answer),) = visitor.events(f"/api/runs/one/events?{query}")
    assert answer["after"] == 3


def test_the_end_is_the_last_status_however_soon_it_follows(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends before another status is due, by records that nobody has read."""
    monkeypatch.setattr(events, "STATUS_S", 1000.0)
    site = Dashboard.of(runs / "two", Control())
    with rpc.serve(routes=site.routes, port=0, say=len) as server:
        visitor = Visitor(site.attend(server))
        stream = visitor.events("/api/runs/two/events")
        states = [data["state"] for event, data in islice(stream, 2) if event != "rows"]
        with (runs / "two" / RECORDS).open("ab") as file:
            for record in happened(5)[len(happened(2)) :]:
                records.write(record, file)
        site.close()
        states += [data["state"] for event, data in stream if event == "status"]
    assert states == ["running", "finished"]


def test_watchers_have_a_limit(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_module, "STREAMS", 1)
    with (runs / "two" / RECORDS).open("ab") as file, serving(runs) as (server, _):
        lock(file)
        visitor = Visitor(server.url)
        watching = visitor.events("/api/runs/two/events")
        assert next(watching)[0] == "rows"
        status, answer, _ = visitor.ask("/api/runs/two/events")
        assert (status, "close a page" in answer["error"]["message"]) == (503, True)


def test_a_watcher_who_stops_reading_loses_its_place(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_module, "STREAMS", 1)
    monkeypatch.setattr(events, "STALLED_S", 0.5)
    header = Document.header
    more = {"long": "x" * 20_000_000}  # more than sockets hold
    monkeypatch.setattr(
        Document, "header", lambda *arguments: header(*arguments) | more
    )
    with serving(runs) as (server, _):
        visitor = Visitor(server.url)
        line, stalled = visitor.open("GET", "/api/runs/one/events")
        statuses = (visitor.ask("/api/runs/one/events")[0] for _ in range(5000))
        assert 200 in statuses
        with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
            stalled.read()
        line.close()


def test_a_damaged_run_is_named_and_harms_no_other(
    visitor: Visitor, runs: Path
) -> None:
    (runs / "two" / RECORDS).write_bytes(b"nonsense\nmore\n")
    status, answer, _ = visitor.ask("/api/runs/two")
    assert (status, "not records" in answer["error"]["message"]) == (404, True)
    assert visitor.ask("/api/runs/one")[0] == 200


def test_a_large_run_is_told_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read in chunks that cut lines anywhere: nothing is lost and nothing doubled."""
    from melisma.runs import tail

    monkeypatch.setattr(tail, "CHUNK_BYTES", 1000)
    write_run(tmp_path / "runs" / "long", cycles=40, done=40)
    with serving(tmp_path / "runs") as (server, _):
        visitor = Visitor(server.url)
        assert visitor.get("/api/runs/long")["position"] == len(happened(40))
        found: list[Any] = []
        after = 0
        while True:
            answer = visitor.get(f"/api/runs/long/records?after={after}&limit=7")
            if not answer["records"]:
                break
            found += answer["records"]
            after = answer["next"]
    assert [row["time_s"] for row in found] == [r.time_s for r in happened(40)]
