"""The report of a fog run."""

import csv
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from melisma import views as runs
from melisma.jobs.files import dump
from melisma.jobs.schema import Job
from melisma.runs import records
from melisma.runs.records import Moved
from melisma.system.law import Mode
from melisma.units import Deadline
from melisma.views import fog
from melisma.views.history import history

EVIL = "<b>m</b> $x^$ \N{SNOWMAN}"
TASK: dict[str, Any] = {"task": "made"}


def moved(slot: int, name: str, sent: dict[str, int], **facts: Any) -> Moved:
    """Two slots are a cycle; 20 collected, 5 discarded, the rest kept or sent."""
    given = {"collected": 20, "discarded": 5, "arrived": 0} | facts
    kept = given["collected"] - given["discarded"] - sum(sent.values())
    return Moved(
        **TASK,
        time_s=float(slot),
        cycle=(slot + 1) // 2,
        learner=name,
        slot=slot,
        sent=sent,
        trained=kept + given["arrived"],
        process_cost=0.5 * (kept + given["arrived"]),
        transfer_cost=0.25 * sum(sent.values()),
        error_cost=2.0 * given["discarded"],
        **given,
    )


def happened() -> list[records.Record]:
    """Two devices: in each of two slots the first sends 12 samples to the second."""
    first: list[records.Record] = [
        moved(1, "a", {EVIL: 12}),
        moved(1, EVIL, {}),
        moved(2, "a", {EVIL: 12}),
        moved(2, EVIL, {}, arrived=12),
    ]
    order: dict[str, Any] = {"samples": 10, "steps": 1, "predicted_s": None}
    for name in ("a", EVIL):
        first.append(
            records.Allocated(**TASK, time_s=2.0, cycle=1, learner=name, **order)
        )
    first.append(
        records.Evaluated(
            **TASK, time_s=2.0, cycle=1, metrics={"accuracy": 0.5}, loss=1.0
        )
    )
    return first


def leave(folder: Path, rows: list[records.Record], **job: Any) -> Path:
    """Write a run's files into ``folder``."""
    folder.mkdir(exist_ok=True)
    given: dict[str, Any] = {"scheme": "fog", "mode": Mode.FEDERATED, "cycles": 2}
    whole = Job(name="made", deadline=Deadline(2.0), **given | job)
    (folder / "config.toml").write_text(dump(whole))
    with (folder / "records.jsonl").open("wb") as file:
        for row in rows:
            records.write(row, file)
    return folder


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = leave(tmp_path_factory.mktemp("runs") / "made", happened())
    runs.write(run)
    return run


def shown_in(run: Path) -> Any:
    """Return the fog's tables in a run's page."""
    text = (run / "report.html").read_text("utf-8")
    (shown,) = json.loads(re.findall(r'id="documents">(.*?)</script>', text, re.S)[0])
    return shown["fog"]


def test_totals_are_sums_over_the_rows_of_the_file(written: Path) -> None:
    lines = (written / "records.jsonl").read_text("utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["event"] == "moved"]
    _, kept = runs.read(written)
    moves = [row for row in kept if isinstance(row, Moved)]
    for key, grouped in (
        ("slot", fog.by_slot(moves)),
        ("learner", fog.by_device(moves)),
    ):
        for figure in ("collected", "trained", "arrived", "discarded", "error_cost"):
            sums: Counter[Any] = Counter()
            for row in rows:
                sums[row[key]] += row[figure]
            assert {
                k: getattr(totals, figure) for k, totals in grouped.items()
            } == dict(sums)
    assert fog.total(moves).sent == sum(fog.flows(moves).values()) == 24


def test_the_page_holds_what_became_of_data_and_what_that_cost(written: Path) -> None:
    # Collected 4 · 20. Sent 24; discarded 4 · 5; kept 80 − 24 − 20 = 36, trained with
    # the 12 that had arrived: 48. Costs: 48 / 2, 24 / 4, 20 · 2.
    shown = shown_in(written)
    sums = {name: sum(values) for name, values in shown["slots"].items()}
    assert (sums["collected"], sums["kept"], sums["trained"]) == (80, 36, 48)
    assert (sums["sent"], sums["discarded"]) == (24, 20)
    assert (sums["process"], sums["transfer"], sums["error"]) == (24.0, 6.0, 40.0)
    assert shown["flows"] == {"source": [0], "target": [1], "samples": [24]}
    # Device a: 40 collected, 6 trained, 24 sent, 10 discarded; costs 3, 6 and 20.
    first = {name: values[0] for name, values in shown["devices"].items()}
    assert first == first | {"collected": 40, "trained": 6, "sent": 24, "arrived": 0}
    assert (first["discarded"], first["cost"]) == (10, 29.0)


def test_a_devices_name_is_no_markup(written: Path) -> None:
    assert "<b>" not in (written / "report.html").read_text("utf-8")


def test_moves_are_a_line_for_each_device_and_slot(written: Path) -> None:
    with (written / "moves.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["slot"], row["learner"]) for row in rows] == [
        (slot, name) for slot in "12" for name in ("a", EVIL)
    ]
    assert (rows[0]["sent"], rows[0]["to"]) == ("12", f"{EVIL}:12")
    assert rows[3]["arrived"] == "12"


@pytest.mark.parametrize("kept", [0, 1, 3, 6])
def test_an_unfinished_run_shows_what_there_is(tmp_path: Path, kept: int) -> None:
    run = leave(tmp_path / "made", happened()[:kept])
    runs.write(run)
    slots = (shown_in(run) or {"slots": {}})["slots"]
    assert sum(slots.get("collected", [])) == 20 * min(kept, 4)
    assert (run / "moves.csv").read_text("utf-8").count("\n") == 1 + min(kept, 4)


def test_a_course_has_the_moves_of_ended_cycles_alone() -> None:
    figures = history([*happened(), moved(3, "a", {})])
    assert (figures.collected, figures.trained, figures.sent) == ([80], [48], [24])
    assert figures.cost == pytest.approx([24.0 + 6.0 + 40.0])
