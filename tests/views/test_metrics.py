"""Runs with metrics of their own, as commands, reports and exports show them.

The first metric is made up: less of it is better, and it is no percentage.
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tests.views.test_page import document as document_in
from tests.web.clients import ERROR, MAE, happened, write_run
from typer.testing import CliRunner

from melisma import views
from melisma.cli import app
from melisma.jobs.files import dump
from melisma.jobs.schema import Job, TaskTable
from melisma.runs import records
from melisma.runs.records import ACCURACY, Metric
from melisma.runs.store import CONFIG, RECORDS
from melisma.views import export, overview, scores
from melisma.views.document import document
from melisma.views.history import history
from melisma.views.run import open as open_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "runs" / "one", metrics=(MAE, ERROR))


def melisma(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_history_has_every_metric(run: Path) -> None:
    told = open_run(run).history
    assert told.kinds == (MAE, ERROR)
    assert told.metric == told.metrics["mae"] == [6.0, 3.0, 2.0]
    assert told.metrics["error"] == [0.1, 0.2, 0.3]


def test_a_metric_that_is_not_finite_is_nan_in_a_history() -> None:
    about: dict[str, Any] = {"time_s": 1.0, "task": "t", "cycle": 1}
    told = history([records.Evaluated(metrics={"accuracy": None}, loss=None, **about)])
    assert math.isnan(told.metric[0])


def test_a_run_of_version_0_2_shows_its_accuracy(tmp_path: Path) -> None:
    run = write_run(tmp_path / "old")
    assert open_run(run).history.kinds == (ACCURACY,)
    (task,) = document(run)["tasks"]
    assert task["metrics"] == [
        {"name": "accuracy", "more_is_better": True, "percent": True}
    ]


@pytest.mark.parametrize(
    ("metric", "value", "cell", "text"),
    [
        (ACCURACY, 0.875, "87.50", "accuracy 87.5 %"),
        (MAE, 1234.5, "1,234.500", "mae 1,234.500"),
        (MAE, 0.00123456, "0.00123", "mae 0.00123"),
        (MAE, 0.0, "0.000", "mae 0.000"),
        (MAE, -2.0, "-2.000", "mae -2.000"),
        (MAE, None, "–", "mae –"),
        (ACCURACY, math.nan, "–", "accuracy –"),
    ],
)
def test_values_are_percentages_or_plain_numbers(
    metric: Metric, value: float | None, cell: str, text: str
) -> None:
    assert scores.cell(metric, value) == cell
    assert scores.text(metric, value) == text


def test_the_report_is_titled_by_the_metrics(run: Path) -> None:
    shown = document_in(views.write(run))
    assert [metric["name"] for metric in shown["tasks"][0]["metrics"]] == [
        *("mae", "error")
    ]
    assert shown["cycles"]["metrics"] == {"mae": [6, 3, 2], "error": [0.1, 0.2, 0.3]}
    assert shown["cycles"]["error"] == [None] * 3  # of a decoded gradient


def test_the_report_prints_a_column_for_each_metric(run: Path) -> None:
    text = melisma("report", run)
    assert "mae  error (%)" in text
    assert "accuracy" not in text
    told = json.loads(melisma("report", run, "--json"))
    assert told["cycles"][1]["metrics"] == {"mae": 3.0, "error": 0.2}


def test_every_metric_is_exported_by_its_name(run: Path) -> None:
    found = list(export.scalars(document(run)))
    names = {scalar.name for scalar in found}
    assert {"mae", "metric_error", "loss"} <= names
    assert not names & {"accuracy", "error"}
    assert [s.value for s in found if s.name == "mae"] == [6.0, 3.0, 2.0]


def test_runs_of_one_metric_are_listed_under_its_name(run: Path) -> None:
    head, below, row = melisma("runs", run.parent).splitlines()
    assert "mae" in head + below
    assert row.split()[4:6] == ["2.000", "0.333"]
    (told,) = json.loads(melisma("runs", run.parent, "--json"))
    assert told["metric"] == {"name": "mae", "more_is_better": False, "percent": False}
    assert told["value"] == 2.0


def test_runs_of_unlike_metrics_name_their_own(run: Path) -> None:
    write_run(run.parent / "two")
    text = melisma("runs", run.parent)
    assert "mae 2.000" in text
    assert "accuracy 30.0 %" in text
    rows = {
        line[:32].strip(): line[32:].split()
        for line in melisma("runs", run, run.parent / "two").splitlines()
    }
    assert rows["mae in the end"] == ["2.000", "–"]
    assert rows["accuracy in the end (%)"] == ["–", "30.00"]


def leave_tasks(folder: Path, *metrics: tuple[Metric, ...]) -> Path:
    """Write a run of several tasks with metrics of their own."""
    folder.mkdir()
    names = [f"t{n}" for n in range(len(metrics))]
    job = Job(
        name="job",
        scheme="med",
        cycles=3,
        tasks=tuple(TaskTable(name=name, cycles=3) for name in names),
    )
    (folder / CONFIG).write_text(dump(job))
    for name, own in zip(names, metrics, strict=True):
        (folder / name).mkdir()
        (folder / name / CONFIG).write_text(dump(Job(name=name, cycles=3)))
        with (folder / name / RECORDS).open("wb") as file:
            for record in happened(3, metrics=own):
                line = records.line_of(record).replace(b'"job"', f'"{name}"'.encode())
                file.write(line)
    return folder


def test_tasks_of_one_metric_have_its_mean(tmp_path: Path) -> None:
    run = leave_tasks(tmp_path / "run", (MAE, ERROR), (MAE,))
    (told,) = json.loads(melisma("runs", tmp_path, "--json"))
    assert (told["metric"]["name"], told["value"]) == ("mae", 2.0)
    shown = overview.service(*views.read(run))
    assert shown["titles"][:2] == ["mae in the end", "error in the end (%)"]  # type: ignore[index]
    one, two, both = (row[1:3] for row in shown["rows"])  # type: ignore[attr-defined]
    assert (one, two, both) == (["2.000", "30.00"], ["2.000", "–"], ["2.000", "–"])


def test_tasks_of_unlike_metrics_have_no_mean(tmp_path: Path) -> None:
    run = leave_tasks(tmp_path / "run", (MAE,), (ERROR,))
    (told,) = json.loads(melisma("runs", tmp_path, "--json"))
    assert (told["metric"], told["value"]) == (None, None)
    shown = overview.service(*views.read(run))
    one, two, both = (row[1:3] for row in shown["rows"])  # type: ignore[attr-defined]
    assert (one, two, both) == (["2.000", "–"], ["–", "200.00"], ["–", "–"])
    text = melisma("report", run)
    assert "mae in the end  " in text
    assert "error in the end (%)" in text


def test_the_metrics_of_tasks_stand_apart_in_a_document(tmp_path: Path) -> None:
    shown = document(leave_tasks(tmp_path / "run", (MAE,), (ERROR,)))
    assert shown["cycles"]["task"] == [0, 0, 0, 1, 1, 1]
    assert shown["cycles"]["metrics"] == {
        "mae": [6.0, 3.0, 2.0, None, None, None],
        "error": [None, None, None, 6.0, 3.0, 2.0],
    }
