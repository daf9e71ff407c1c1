"""Comparisons by metrics that are no percentages, and of which less is better."""

import math
from pathlib import Path

import numpy as np
from tests.views.test_metrics import leave_tasks
from tests.views.test_page import document
from tests.web.clients import ERROR, MAE, happened

from melisma.comparison import report, trials
from melisma.comparison.outcomes import (
    AnyOutcome,
    Comparison,
    Outcome,
    TaskOutcome,
    cells,
)
from melisma.comparison.trials import TaskFigure
from melisma.runs.records import ACCURACY, Evaluated, Metric
from melisma.views.accounts import read
from melisma.views.history import history


def outcome(scheme: str, *metrics: Metric, seeds: int = 2) -> Outcome:
    histories = [history(happened(3, metrics=metrics))] * seeds
    return Outcome(scheme=scheme, histories=histories)


def compared(*outcomes: AnyOutcome) -> Comparison:
    titles = outcomes[0].titles()
    return Comparison(job="made", seeds=[0, 1], titles=titles, outcomes=outcomes)


def test_metrics_in_the_end_head_the_table() -> None:
    found = compared(outcome("csa", MAE, ERROR))
    assert found.titles[:3] == ["mae", "error (%)", "loss"]
    assert cells(found.outcomes[0])[:3] == [
        *("2.000 ± 0.000", "30.00 ± 0.00", "0.333 ± 0.000")
    ]


def test_small_values_keep_digits_that_tell() -> None:
    rows = happened(3, metrics=(MAE,))
    rows[-1] = ended({"mae": 0.00123}, loss=3.21e-5)
    found = cells(Outcome(scheme="csa", histories=[history(rows)]))
    assert found[:2] == ["0.00123", "0.0000321"]


def ended(metrics: dict[str, float | None], loss: float | None) -> Evaluated:
    return Evaluated(time_s=7.0, task="job", cycle=3, metrics=metrics, loss=loss)


def test_the_page_has_the_metric_and_its_curves(tmp_path: Path) -> None:
    report.write(compared(outcome("csa", MAE), outcome("eta", MAE)), "", tmp_path)
    shown = document(tmp_path / "report.html")["comparison"]
    assert shown["metric"] == {"name": "mae", "more_is_better": False, "percent": False}
    assert [curve["mean"] for curve in shown["curves"]] == [[6.0, 3.0, 2.0]] * 2
    assert "of mae less is better" in shown["notes"]
    assert (tmp_path / "comparison.png").read_bytes().startswith(b"\x89PNG")


def test_a_metric_that_is_not_finite_is_a_gap(tmp_path: Path) -> None:
    rows = happened(3, metrics=(MAE,))
    rows[-1] = ended({"mae": None}, loss=None)
    found = compared(Outcome(scheme="csa", histories=[history(rows)]))
    assert cells(found.outcomes[0])[:2] == ["–", "–"]
    report.write(found, "", tmp_path)
    (curve,) = document(tmp_path / "report.html")["comparison"]["curves"]
    assert curve["mean"] == [6.0, 3.0, None]


def figures(run: Path) -> list[TaskFigure]:
    found = trials._figures(*read(run))
    assert isinstance(found, list)
    return found


def test_tasks_of_one_metric_are_compared_by_its_mean(tmp_path: Path) -> None:
    first, second, *_ = figures(leave_tasks(tmp_path / "run", (MAE,), (MAE,)))
    assert first == TaskFigure("mae in the end", 2.0, 3)
    assert second.title == "cycle (s)"


def test_tasks_of_unlike_metrics_are_compared_by_each(tmp_path: Path) -> None:
    own = figures(leave_tasks(tmp_path / "run", (MAE,), (ACCURACY,)))
    assert [figure.title for figure in own[:2]] == [
        "t0: mae in the end",
        "t1: accuracy in the end (%)",
    ]
    found = compared(TaskOutcome(scheme="med", runs=[own, own]))
    assert found.table().splitlines()[1].split() == [
        *("t0:", "mae", "in", "the", "end", "2.000", "±", "0.000")
    ]
    report.write(found, "", tmp_path)
    shown = document(tmp_path / "report.html")["comparison"]
    assert shown["rows"][0][1] == "2.000 ± 0.000"
    assert "metric" not in shown


def test_a_figure_that_no_task_has_is_a_dash() -> None:
    nan = TaskFigure("mae in the end", math.nan, 3)
    assert cells(TaskOutcome(scheme="med", runs=[[nan]])) == ["–"]
    assert np.isnan(TaskOutcome(scheme="med", runs=[[nan]]).figures()[0].mean)
