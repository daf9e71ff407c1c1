from pathlib import Path

import pytest

from melisma.errors import DataError
from melisma.runs.records import (
    Evaluated,
    Record,
    Uploaded,
    evaluations,
    read,
    write,
)

ROWS: list[Record] = [
    Uploaded(time_s=1.5, task="t", cycle=1, learner="pi"),
    Evaluated(time_s=2.0, task="t", cycle=1, accuracy=0.5, loss=1.0),
]


def written(folder: Path) -> Path:
    path = folder / "records.jsonl"
    with path.open("wb") as file:
        for row in ROWS:
            write(row, file)
    return path


def test_rows_come_back_with_their_types(tmp_path: Path) -> None:
    assert read(written(tmp_path)) == ROWS
    assert evaluations(ROWS) == ROWS[1:]


def test_a_row_is_a_line_that_names_its_event(tmp_path: Path) -> None:
    first = written(tmp_path).read_text().splitlines()[0]
    assert first == (
        '{"event":"uploaded","time_s":1.5,"task":"t","cycle":1,"learner":"pi"}'
    )


@pytest.mark.parametrize("cut", [1, 2, 30])
def test_a_last_line_cut_short_loses_nothing_else(tmp_path: Path, cut: int) -> None:
    path = written(tmp_path)
    path.write_bytes(path.read_bytes()[:-cut])
    whole = read(path)
    assert whole[0] == ROWS[0]
    assert len(whole) == (2 if cut == 1 else 1)  # only the newline is missing


def test_damage_elsewhere_is_named_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_bytes(b"{broken\n" + path.read_bytes())
    with pytest.raises(DataError, match=r"records\.jsonl, line 1"):
        read(path)


def test_missing_records_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no records at .*nowhere"):
        read(tmp_path / "nowhere")
