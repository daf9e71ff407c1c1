"""A live run, watched and steered over its own port."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.algorithms.test_multitask_live import JOB as TASKS
from tests.fleets.learners import JOB, Steady, changed, joined, of
from tests.web.clients import Visitor, write_run
from tests.web.documents import Page, page_of, rows

from melisma.jobs.schema import Job
from melisma.launch.serve import orchestrate
from melisma.learner.learner import Learner
from melisma.learner.service import Service
from melisma.learning.parameters import load
from melisma.rpc import Metrics
from melisma.runs.records import (
    Allocated,
    Evaluated,
    Expelled,
    Left,
    Record,
    Steered,
)
from melisma.runs.store import MODEL
from melisma.views.document import Document, document
from melisma.views.web.live import NONE
from melisma.views.web.metrics import text

When = Callable[[Record], bool]


def live(
    job: Job,
    folder: Path,
    learners: Sequence[Learner],
    *steps: tuple[When, Callable[[Visitor], None]],
    **options: Any,
) -> list[Record]:
    """Run a job; do each step once, when a record is there that it is for.

    The run waits while a step is done: its records are written by the same thread.
    """
    folder.mkdir(exist_ok=True)
    links: list[str] = []
    left = list(steps)

    def watch(record: Record) -> None:
        while left and left[0][0](record):
            left.pop(0)[1](Visitor(links[0]))

    with ExitStack() as stack:
        happened = orchestrate(
            job,
            folder,
            learners=len(learners),
            watch=watch,
            ready=lambda server: stack.enter_context(joined(server, learners)),
            show=links.append,
            say=len,
            **{"port": 0, **options},
        )
    assert not left
    return happened


def pair() -> list[Learner]:
    return [Steady(name="a"), Steady(name="b")]


def is_a(kind: type[Record], cycle: int) -> When:
    return lambda record: isinstance(record, kind) and record.cycle == cycle


def asks(action: str, **facts: Any) -> Callable[[Visitor], None]:
    def ask(visitor: Visitor) -> None:
        assert visitor.steer(action, **facts) == (200, {"ok": True})

    return ask


def until(true: Callable[[], bool]) -> None:
    """Poll until a condition holds; fail after a minute."""
    ends = time.monotonic() + 60
    while not true():
        assert time.monotonic() < ends


@pytest.mark.slow
def test_the_final_figures_are_those_of_the_records(tmp_path: Path) -> None:
    answers: list[Any] = []
    happened = live(
        JOB,
        tmp_path / "run",
        pair(),
        (is_a(Evaluated, 2), lambda v: answers.append(v.get("/api/runs/run"))),
    )
    accuracies = [record.metrics["accuracy"] for record in of(Evaluated, happened)]
    assert answers[0]["cycles"]["metrics"]["accuracy"] == pytest.approx(accuracies)
    assert answers[0]["run"]["state"] == "running"  # it is not over until it is
    assert document(tmp_path / "run")["run"]["state"] == "finished"


@pytest.mark.slow
def test_status_tells_who_is_there_and_what_is_under_way(tmp_path: Path) -> None:
    answers: list[Any] = []
    look = lambda v: answers.append(v.get("/api/status"))  # noqa: E731
    live(
        JOB,
        tmp_path / "run",
        pair(),
        (is_a(Allocated, 1), lambda v: None),
        (is_a(Evaluated, 1), look),
        (is_a(Evaluated, 2), lambda v: None),
    )
    (status,) = answers
    assert (status["live"], status["state"]) == ("run", "running")
    assert (status["cycle"], status["deadline_s"]) == (1, 30.0)
    assert 0 <= status["cycle_began_s"] <= status["now_s"]
    assert status["may_control"] is True
    assert status["received_bytes"] > 1000  # a model at least
    assert {name: state["connected"] for name, state in status["learners"].items()} == {
        "a": True,
        "b": True,
    }
    assert all(
        0 <= state["seen_s"] <= status["now_s"] for state in status["learners"].values()
    )


def scraped(text: str) -> dict[tuple[str, ...], float]:
    """Samples as Prometheus's own parser reads them, by name, type and labels."""
    return {
        (sample.name, family.type, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_are_what_prometheus_reads(tmp_path: Path) -> None:
    answers: list[bytes] = []
    happened = live(
        JOB,
        tmp_path / "run",
        pair(),
        (is_a(Evaluated, 2), lambda v: answers.append(v.get("/metrics"))),
    )
    samples = scraped(answers[0].decode())
    last = of(Evaluated, happened)[-1]
    assert (
        samples["melisma_metric", "gauge", "test", "accuracy"]
        == last.metrics["accuracy"]
    )
    assert samples["melisma_cycle", "gauge", "test"] == 2
    assert samples["melisma_updates_total", "counter", "test", "counted"] == 4
    assert samples["melisma_learners_connected", "gauge"] == 2
    assert samples["melisma_sent_bytes_total", "counter"] > 0
    assert samples["melisma_calls_total", "counter", "out", "train"] == 4


def test_prometheus_reads_names_as_they_are(tmp_path: Path) -> None:
    odd = 'a "b" \\n c\nd'
    metrics = Metrics()
    metrics.fail(odd)
    run = Document(write_run(tmp_path / "run"))
    samples = scraped(text(run, NONE, metrics))
    assert samples["melisma_failed_calls_total", "counter", odd] == 1
    assert samples["melisma_learners_connected", "gauge"] == 0


@contextmanager
def watching(link: str, run: str) -> Iterator[tuple[Page, list[Any]]]:
    """A page that follows a run until the server ends the stream."""
    page, statuses = Page(), list[Any]()

    def follow() -> None:
        for event, data in Visitor(link).events(f"/api/runs/{run}/events?after=0"):
            if event == "rows":
                page.take(data)
            else:
                statuses.append(data)

    thread = threading.Thread(target=follow)
    thread.start()
    yield page, statuses
    thread.join(60)
    assert not thread.is_alive()


def test_who_watches_to_the_end_has_seen_everything(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with ExitStack() as stack:
        pages: list[Any] = []

        def watch(visitor: Visitor) -> None:
            link = f"http://{visitor._host}/#token={visitor.token}"
            pages.append(stack.enter_context(watching(link, "run")))

        live(JOB, folder, pair(), (is_a(Allocated, 1), watch))
    ((page, statuses),) = pages
    whole = document(folder)
    del page.rest["epoch"], whole["epoch"]
    assert page.rest["run"]["state"] == "finished"
    assert page == page_of(whole)
    assert statuses[-1]["state"] == "finished"


def test_a_paused_run_waits_until_it_is_resumed(tmp_path: Path) -> None:
    """Resume the run once it is seen to wait between cycles."""
    seen: list[Any] = []

    def pause(visitor: Visitor) -> None:
        asks("pause")(visitor)

        def resume() -> None:
            until(lambda: visitor.get("/api/status")["cycle_began_s"] is None)
            seen.extend(visitor.get("/api/status") for _ in range(2))
            asks("resume")(visitor)

        threading.Thread(target=resume).start()

    happened = live(JOB, tmp_path / "run", pair(), (is_a(Evaluated, 1), pause))
    assert [status["state"] for status in seen] == ["paused", "paused"]
    assert [status["cycle"] for status in seen] == [1, 1]
    assert [record.cycle for record in of(Evaluated, happened)] == [1, 2]


@pytest.mark.slow
def test_a_stopped_run_is_whole_and_can_be_resumed(tmp_path: Path) -> None:
    job, folder = changed(cycles=3), tmp_path / "run"
    states: list[str] = []
    first = live(
        job,
        folder,
        pair(),
        (is_a(Allocated, 2), asks("stop")),
        (is_a(Evaluated, 2), lambda v: states.append(v.get("/api/status")["state"])),
    )
    assert states == ["stopping"]
    assert [record.cycle for record in of(Evaluated, first)] == [1, 2]
    assert (folder / MODEL).exists()
    assert (folder / "report.html").exists()
    assert document(folder)["run"]["state"] == "cut short"
    before = load(folder / MODEL)
    second = live(job, folder, pair())
    assert [record.cycle for record in of(Evaluated, second)] == [1, 2, 3]
    assert second[: len(first)] == first
    assert document(folder)["run"]["state"] == "finished"
    assert any((load(folder / MODEL)[name] != before[name]).any() for name in before)


def test_who_is_expelled_is_gone_at_once_and_for_good(tmp_path: Path) -> None:
    job, folder = changed(cycles=3), tmp_path / "run"
    there: list[Any] = []

    def expel(visitor: Visitor) -> None:
        asks("expel", learner="b")(visitor)
        while (
            "b" in (left := visitor.get("/api/status")["learners"])
            and (left["b"]["connected"])
        ):
            pass
        there.append(left)

    happened = live(job, folder, pair(), (is_a(Evaluated, 1), expel))
    assert there[-1]["a"]["connected"]
    (gone,) = of(Expelled, happened)
    assert (gone.learner, gone.cycle) == ("b", 1)
    assert "dashboard" in gone.reason
    assert [record.learner for record in of(Left, happened)] == ["b"]
    later = {record.learner for record in of(Allocated, happened) if record.cycle > 1}
    assert later == {"a"}
    shown = document(folder)
    assert "expelled" in shown["incidents"]["what"]


@pytest.mark.slow
def test_another_deadline_holds_and_a_resumed_run_goes_on_with_it(
    tmp_path: Path,
) -> None:
    job, folder = changed(cycles=4), tmp_path / "run"
    deadlines: list[float] = []
    happened = live(
        job,
        folder,
        pair(),
        (is_a(Evaluated, 1), asks("deadline", deadline_s=20.0)),
        (is_a(Allocated, 2), asks("stop")),
        (
            is_a(Evaluated, 2),
            lambda v: deadlines.append(v.get("/api/status")["deadline_s"]),
        ),
    )
    assert [(r.cycle, r.deadline_s) for r in of(Steered, happened)] == [(2, 20.0)]
    assert deadlines == [20.0]
    live(job, folder, pair())
    shown = document(folder)
    assert shown["cycles"]["deadline_s"] == [30.0, 20.0, 20.0, 20.0]
    assert shown["tasks"][0]["deadline_s"] == shown["run"]["deadline_s"] == 20.0
    incidents = {row["what"]: row["why"] for row in rows(shown["incidents"])}
    assert incidents["steered"] == "deadline 20 s"


def test_what_cannot_be_done_is_refused_with_a_reason(tmp_path: Path) -> None:
    answers: dict[str, tuple[int, str]] = {}

    def ask(visitor: Visitor) -> None:
        for name, action, facts in (
            ("no such action", "explode", {}),
            ("no seconds", "deadline", {"deadline_s": 0}),
            ("no deadline", "deadline", {}),
            ("nobody", "expel", {"learner": "nobody"}),
            ("no name", "expel", {}),
            ("unknown key", "pause", {"why": 1}),
        ):
            status, answer = visitor.steer(action, **facts)
            answers[name] = status, answer["error"]["message"]
        asks("stop")(visitor)
        status, answer = visitor.steer("pause")
        answers["stopping"] = status, answer["error"]["message"]

    live(JOB, tmp_path / "run", pair(), (is_a(Evaluated, 1), ask))
    assert {name: status for name, (status, _) in answers.items()} == {
        "no such action": 400,
        "no seconds": 400,
        "no deadline": 400,
        "nobody": 404,
        "no name": 400,
        "unknown key": 400,
        "stopping": 409,
    }
    assert "seconds above 0" in answers["no seconds"][1]


@pytest.mark.slow
def test_several_tasks_keep_their_deadlines_and_stop_together(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    answers: list[Any] = []

    def ask(visitor: Visitor) -> None:
        answers.append(visitor.steer("deadline", deadline_s=5.0))
        answers.append(visitor.get("/api/runs/run"))
        asks("stop")(visitor)

    happened = live(TASKS, folder, pair(), (is_a(Allocated, 1), ask))
    (status, answer), whole = answers
    assert (status, "begin another run" in answer["error"]["message"]) == (409, True)
    assert (whole["run"]["kind"], len(whole["tasks"])) == ("tasks", len(TASKS.tasks))
    begun = {(r.task, r.cycle) for r in of(Allocated, happened)}
    assert begun == {(r.task, r.cycle) for r in of(Evaluated, happened)}
    again = live(TASKS, folder, pair())
    done = {r.task: r.cycle for r in of(Evaluated, again)}
    assert document(folder)["run"]["state"] == "finished"
    assert len(done) == len(TASKS.tasks)


def test_steering_over_tls_takes_the_printed_secret(tmp_path: Path) -> None:
    answers: list[Any] = []

    def ask(visitor: Visitor) -> None:
        link = f"https://{visitor._host}/"
        answers.append(Visitor(link).ask("/api/status")[0])
        answers.append(Visitor(link, "wrong").steer("stop")[0])
        answers.append(visitor.get("/api/status")["may_control"])
        asks("stop")(visitor)

    folder = tmp_path / "run"
    folder.mkdir()
    links: list[str] = []
    with ExitStack() as stack:

        def dial(server: Any) -> None:
            from melisma import rpc

            for learner in pair():
                invitation, service = server.invite(), Service(learner)
                line = rpc.connect(invitation, service, name=learner.name)
                stack.enter_context(line)

        def watch(record: Record) -> None:
            if is_a(Evaluated, 1)(record):
                ask(Visitor(links[0]))

        happened = orchestrate(
            JOB,
            folder,
            learners=2,
            watch=watch,
            ready=dial,
            show=links.append,
            say=len,
            port=0,
            secure=True,
            folder=tmp_path / "home",
        )
    assert answers == [401, 401, True]
    assert [record.cycle for record in of(Evaluated, happened)] == [1]
