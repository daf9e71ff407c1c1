from pathlib import Path

import pytest

from melisma.errors import DataError
from melisma.runs.records import (
    ACCURACY,
    Evaluated,
    Metric,
    Metrics,
    Record,
    Uploaded,
    evaluations,
    line_of,
    metrics_by_task,
    read,
    write,
)

MAE = Metric("mae", more_is_better=False)
ROWS: list[Record] = [
    Metrics(time_s=0.0, task="t", cycle=1, metrics=(MAE,)),
    Uploaded(time_s=1.5, task="t", cycle=1, learner="pi"),
    Evaluated(time_s=2.0, task="t", cycle=1, metrics={"mae": 0.5}, loss=1.0),
]


def written(folder: Path) -> Path:
    path = folder / "records.jsonl"
    with path.open("wb") as file:
        for row in ROWS:
            write(row, file)
    return path


def test_rows_come_back_with_their_types(tmp_path: Path) -> None:
    assert read(written(tmp_path)) == ROWS
    assert evaluations(ROWS) == ROWS[2:]


def test_a_row_is_a_line_that_names_its_event(tmp_path: Path) -> None:
    first = written(tmp_path).read_text().splitlines()[1]
    assert first == (
        '{"event":"uploaded","time_s":1.5,"task":"t","cycle":1,"learner":"pi"}'
    )


@pytest.mark.parametrize("cut", [1, 2, 30])
def test_a_last_line_cut_short_loses_nothing_else(tmp_path: Path, cut: int) -> None:
    path = written(tmp_path)
    path.write_bytes(path.read_bytes()[:-cut])
    whole = read(path)
    assert whole[:2] == ROWS[:2]
    assert len(whole) == (3 if cut == 1 else 2)  # only the newline is missing


def test_damage_elsewhere_is_named_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_bytes(b"{broken\n" + path.read_bytes())
    with pytest.raises(DataError, match=r"records\.jsonl, line 1"):
        read(path)


def test_missing_records_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no records at .*nowhere"):
        read(tmp_path / "nowhere")


OLD = (
    b'{"event":"evaluated","time_s":2.0,"task":"t","cycle":1,"accuracy":1,"loss":0.5}\n'
)


def test_a_row_of_version_0_2_is_read_and_written_as_today(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(OLD)
    (row,) = evaluations(read(tmp_path / "old"))
    today = Evaluated(
        time_s=2.0, task="t", cycle=1, metrics={"accuracy": 1.0}, loss=0.5
    )
    assert row == today
    assert line_of(row) == line_of(today)
    assert b'"metrics":{"accuracy":1.0}' in line_of(row)
    assert b'"accuracy":1.0,' not in line_of(row)


def test_a_task_that_does_not_say_its_metrics_has_accuracy() -> None:
    other = Evaluated(time_s=2.0, task="old", cycle=1, metrics={}, loss=None)
    assert metrics_by_task([*ROWS, other]) == {"t": (MAE,), "old": (ACCURACY,)}
