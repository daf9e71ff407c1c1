"""Tables updated record by record equal those made from all records at once."""

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.jobs.small import SMALL
from tests.web.documents import page_of, rows

from melisma.jobs.files import load
from melisma.jobs.schema import Job, tasks_of
from melisma.launch.simulate import build
from melisma.runs import records
from melisma.runs.records import ACCURACY, Metric, Moved, Record
from melisma.runs.store import RECORDS
from melisma.views import fog, ledger
from melisma.views.document import Document, document
from melisma.views.incidents import incidents
from melisma.views.live_tables import LiveTables

EXAMPLES = Path(__file__).parents[2] / "examples"

#: A metric with the name of another column.
ERROR = Metric("error", more_is_better=False)

seconds = st.floats(0.0, 3.0)
counts = st.integers(0, 500)
maybe_seconds = st.none() | seconds


@st.composite
def learner_records(draw: st.DrawFn, cycle: int, began_s: float) -> list[Record]:
    """Records of one learner in one cycle, in any order, with or without an order."""
    name = draw(st.sampled_from(["a", "b", "<i>c</i>"]))
    about: dict[str, Any] = {"task": "t", "cycle": cycle, "learner": name}

    def at(kind: Any, **facts: Any) -> Any:
        return kind(time_s=began_s + draw(seconds), **about, **facts)

    work = {"samples": draw(counts), "batches": draw(counts), "loss": None}
    events = [
        at(records.Joined),
        at(records.Left),
        at(records.Downloaded),
        at(draw(st.sampled_from([records.Trained, records.Halted])), **work),
        at(records.Uploaded),
        at(records.Checked, distance=draw(maybe_seconds)),
        at(records.Dropped, reason=draw(st.sampled_from(["late", "wrong"]))),
        at(records.Expelled, reason="why"),
    ]
    picked = draw(st.lists(st.sampled_from(events), max_size=6))
    order = at(
        records.Allocated,
        samples=draw(counts),
        steps=draw(counts),
        predicted_s=draw(maybe_seconds),
        cost=draw(maybe_seconds),
    )
    if draw(st.booleans()):
        picked.insert(draw(st.integers(0, len(picked))), order)
    return picked


@st.composite
def runs(draw: st.DrawFn) -> list[Record]:
    """Cycles as an orchestrator writes them; the last may be cut short."""
    happened: list[Record] = []
    cycles = draw(st.integers(0, 4))
    # Records of version 0.2 do not say what the metrics are.
    metrics = draw(st.sampled_from([(), (ERROR,), (ERROR, ACCURACY)]))
    if metrics and cycles:
        began: dict[str, Any] = {"time_s": 4.0, "task": "t", "cycle": 1}
        happened.append(records.Metrics(metrics=metrics, **began))
    for cycle in range(1, cycles + 1):
        about: dict[str, Any] = {"time_s": 4.0 * cycle, "task": "t", "cycle": cycle}
        if draw(st.booleans()):
            happened.append(records.Steered(deadline_s=draw(seconds), **about))
        happened += draw(
            st.lists(learner_records(cycle, 4.0 * cycle), max_size=4).map(flat)
        )
        if cycle == cycles and draw(st.booleans()):
            break
        happened.append(
            records.Aggregated(
                learners=1,
                samples=draw(counts),
                cycle_s=draw(seconds),
                max_staleness=draw(counts),
                mean_staleness=0.5,
                truancy=0.25,
                utilisation=0.75,
                error=draw(maybe_seconds),
                **about,
            )
        )
        happened.append(
            records.Evaluated(
                metrics={m.name: draw(maybe_seconds) for m in metrics or (ACCURACY,)},
                loss=draw(maybe_seconds),
                **about,
            )
        )
    return happened


def flat(lists: list[list[Record]]) -> list[Record]:
    return [record for group in lists for record in group]


def seen(happened: list[Record]) -> LiveTables:
    tables = LiveTables([2.0])
    tables.see(0, happened)
    return tables


def same(shown: Any, true: Any) -> bool:
    """Return whether a value is shown correctly, up to rounding."""
    if shown is None or true is None or isinstance(true, str):
        return bool(shown == true)
    return math.isclose(shown, true, rel_tol=1e-5, abs_tol=6e-4)


def check_learner_cycles(
    shown: dict[str, Any], task: int, happened: list[Record]
) -> None:
    mine = {
        (row["cycle"], shown["learners"][row["learner"]]): row
        for row in rows(shown["turns"])
        if row["task"] == task
    }
    expected = {
        (row.cycle, row.learner): row for row in ledger.learner_cycles(happened)
    }
    assert mine.keys() == expected.keys()
    for key, true in expected.items():
        row = mine[key] | {"outcome": shown["outcomes"][mine[key]["outcome"]]}
        row["option"] = shown["options"][row["option"]]
        for name in row.keys() - {"task", "cycle", "learner"}:
            assert same(row[name], getattr(true, name)), (key, name)


def check_cycles(shown: dict[str, Any], task: int, happened: list[Record]) -> None:
    mine = {row["cycle"]: row for row in rows(shown["cycles"]) if row["task"] == task}
    expected = ledger.cycles(happened, ledger.learner_cycles(happened))
    for cycle in expected:
        if cycle.cycle_s is not None:
            row = mine.pop(cycle.cycle)
            values = row.pop("metrics")
            chosen = {"deadline_s", "expected_loss"}
            for name in row.keys() - {"task", "cycle", "cost"} - chosen:
                assert same(row[name], getattr(cycle, name)), (cycle.cycle, name)
            for name in cycle.metrics:
                assert same(values.get(name), cycle.metrics[name]), (cycle.cycle, name)
    # A cycle in which nobody had orders is a row of the page, and none of the ledger.
    assert not {row["counted"] for row in mine.values()} - {0}


def check_incidents(shown: dict[str, Any], task: int, happened: list[Record]) -> None:
    mine = [row for row in rows(shown["incidents"]) if row["task"] == task]
    expected = incidents(happened)
    assert [
        (
            row["cycle"],
            shown["learners"][row["learner"]] if row["learner"] is not None else "",
            row["what"],
            row["why"],
        )
        for row in mine
    ] == [(i.cycle, i.learner, i.what, i.detail) for i in expected]


@given(runs())
def test_rows_are_those_of_the_ledger(happened: list[Record]) -> None:
    shown = msgspec.json.decode(msgspec.json.encode(seen(happened).since(0)))
    check_learner_cycles(shown, 0, happened)
    check_cycles(shown, 0, happened)
    check_incidents(shown, 0, happened)


@pytest.mark.slow
@given(runs(), st.sets(st.integers(0, 60)))
def test_changes_come_to_the_whole_wherever_one_looks(
    happened: list[Record], looks: set[int]
) -> None:
    tables, changes, after = LiveTables([2.0]), [], 0
    for number, record in enumerate(happened, start=1):
        tables.see(0, [record])
        if number in looks or number == len(happened):
            change = tables.since(after) | {"after": after}
            changes.append(msgspec.json.decode(msgspec.json.encode(change)))
            after = number
    whole = msgspec.json.decode(msgspec.json.encode(tables.since(0)))
    check_learner_cycles(whole, 0, happened)  # also when it was looked at meanwhile
    if changes:
        assert page_of(*changes) == page_of(whole | {"after": 0})


@given(runs(), st.integers(0, 60))
def test_no_change_is_told_that_was_known(happened: list[Record], after: int) -> None:
    tables = seen(happened)
    tables.settle()
    if after >= len(happened) > 0:
        assert tables.since(len(happened)) == {}


@pytest.fixture(scope="module", params=["demo", "tasks", "coded", "fog"])
def run(request: pytest.FixtureRequest, tmp_path_factory: Any) -> tuple[Job, Path]:
    """A real run of each kind."""
    job = load(EXAMPLES / f"{request.param}.toml")
    if request.param == "demo":
        job = msgspec.structs.replace(job, **SMALL)
    tasks = tuple(msgspec.structs.replace(task, cycles=2) for task in job.tasks)
    job = msgspec.structs.replace(job, cycles=2, tasks=tasks)
    folder: Path = tmp_path_factory.mktemp(request.param)
    build(job).run(folder)
    return job, folder


def files(job: Job, folder: Path) -> list[Path]:
    tasks = [folder / task.name for task in tasks_of(job)] if job.tasks else [folder]
    return [task / RECORDS for task in tasks]


def test_a_real_run_has_the_rows_of_the_ledger(run: tuple[Job, Path]) -> None:
    shown = document(run[1])
    for task, path in enumerate(files(*run)):
        happened = records.read(path)
        assert len(happened) > 10
        check_learner_cycles(shown, task, happened)
        check_cycles(shown, task, happened)
        check_incidents(shown, task, happened)


def test_a_real_run_is_finished_and_has_its_job_in_it(run: tuple[Job, Path]) -> None:
    job, folder = run
    shown = document(folder)
    header = shown["run"]
    assert (header["state"], header["id"]) == ("finished", folder.name)
    kind = {"csa": "single", "med": "tasks"}.get(job.scheme, job.scheme)
    assert header["kind"] == kind
    assert header["config"] == (folder / "config.toml").read_text()
    assert [task["name"] for task in shown["tasks"]] == [t.name for t in tasks_of(job)]
    assert (shown["fog"] is not None) == (kind == "fog")


def test_what_was_cut_short_is_told_as_far_as_it_goes(
    run: tuple[Job, Path], tmp_path: Path
) -> None:
    job, folder = run
    for path in folder.rglob("*"):
        if path.name in ("config.toml", RECORDS):
            copy = tmp_path / path.relative_to(folder)
            copy.parent.mkdir(exist_ok=True)
            content = path.read_bytes()
            copy.write_bytes(
                content[: len(content) // 3] if path.name == RECORDS else content
            )
    shown = document(tmp_path)
    assert shown["run"]["state"] == "cut short"
    for task, path in enumerate(files(job, tmp_path)):
        check_learner_cycles(shown, task, records.read(path))


def test_a_fog_is_told_by_slot_link_and_device(tmp_path: Path) -> None:
    job = msgspec.structs.replace(load(EXAMPLES / "fog.toml"), cycles=2)
    moved = [r for r in build(job).run(tmp_path) if isinstance(r, Moved)]
    shown = document(tmp_path)
    names = shown["learners"]
    slots = {row["slot"]: row for row in rows(shown["fog"]["slots"])}
    for slot, total in fog.by_slot(moved).items():
        assert slots[slot]["kept"] == total.kept
        assert same(slots[slot]["transfer"], total.transfer_cost)
    flows = {
        (names[row["source"]], names[row["target"]]): row["samples"]
        for row in rows(shown["fog"]["flows"])
    }
    assert flows == dict(fog.flows(moved))
    devices = {names[row["learner"]]: row for row in rows(shown["fog"]["devices"])}
    for name, total in fog.by_device(moved).items():
        assert devices[name]["trained"] == total.trained
        assert same(devices[name]["cost"], total.cost)
    costs = {row["cycle"]: row["cost"] for row in rows(shown["cycles"])}
    for cycle, total in fog.by_cycle(moved).items():
        assert same(costs[cycle], total.cost)


def test_a_growing_run_is_read_on_where_it_was(
    run: tuple[Job, Path], tmp_path: Path
) -> None:
    """The file is cut anywhere, as a reader may find it while it is written."""
    job, folder = run
    (tmp_path / "config.toml").write_bytes((folder / "config.toml").read_bytes())
    paths = files(job, tmp_path)
    for path in paths:
        path.parent.mkdir(exist_ok=True)
    page = page_of(Document(tmp_path).since(0) | {"fog": None})
    tables, after, epoch = Document(tmp_path), 0, None
    for step in range(1, 8):
        for path, source in zip(paths, files(job, folder), strict=True):
            content = source.read_bytes()
            path.write_bytes(content[: len(content) * step // 7])
        tables.refresh()
        shown = msgspec.json.decode(msgspec.json.encode(tables.since(after, epoch)))
        after, epoch = shown["position"], shown["epoch"]
        page.take(shown)
    whole = document(folder)
    assert page.rest["position"] == whole["position"]
    if not job.tasks:  # of several, positions and places go by who wrote first
        del page.rest["run"], page.rest["epoch"], whole["run"], whole["epoch"]
        assert page == page_of(whole)


def test_a_run_begun_anew_is_told_anew(run: tuple[Job, Path], tmp_path: Path) -> None:
    job, folder = run
    for path in folder.rglob("*"):
        if path.name in ("config.toml", RECORDS):
            (tmp_path / path.relative_to(folder)).parent.mkdir(exist_ok=True)
            (tmp_path / path.relative_to(folder)).write_bytes(path.read_bytes())
    grown = Document(tmp_path)
    grown.refresh()
    shown = grown.since(0)
    paths = files(job, tmp_path)
    paths[0].write_bytes(b"".join(paths[0].read_bytes().splitlines(keepends=True)[:5]))
    grown.refresh()
    again = grown.since(shown["position"], shown["epoch"])
    assert (again["after"], again["epoch"] != shown["epoch"]) == (0, True)
    assert again["position"] < shown["position"]


def test_deadlines_that_the_run_chose_are_shown_with_reasons_and_are_no_incidents() -> (
    None
):
    tables = LiveTables([math.inf])
    assert tables.progress[0].deadline_s is None  # JSON has no infinity
    for cycle, (deadline_s, expected) in enumerate([(1.5, None), (2.5, 0.75)], 1):
        about: Any = {"task": "a", "cycle": cycle, "time_s": float(cycle)}
        chosen = records.Steered(
            deadline_s=deadline_s, why="3 passes", expected=expected, **about
        )
        merged = records.Aggregated(
            learners=1,
            samples=10,
            cycle_s=1.0,
            max_staleness=0,
            mean_staleness=0.0,
            truancy=0.0,
            utilisation=1.0,
            **about,
        )
        tested = records.Evaluated(metrics={"accuracy": 0.5}, loss=0.8, **about)
        tables.see(0, [chosen, merged, tested])
    shown = msgspec.json.decode(msgspec.json.encode(tables.since(0)))
    assert shown["cycles"]["deadline_s"] == [1.5, 2.5]
    assert shown["cycles"]["expected_loss"] == [None, 0.75]
    assert tables.progress[0].why == "3 passes"
    assert shown["incidents"]["what"] == []
    hand = records.Steered(deadline_s=4.0, task="a", cycle=3, time_s=3.0)
    tables.see(0, [hand])
    assert tables.since(0)["incidents"]["why"] == ["deadline 4 s"]
    assert tables.progress[0].why == ""
