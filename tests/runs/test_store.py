from pathlib import Path

import pytest
import torch

from melisma.errors import DataError
from melisma.learning.parameters import save
from melisma.runs.records import Evaluated
from melisma.runs.store import (
    CHECKPOINT,
    MODEL,
    RECORDS,
    START,
    RunWriter,
    run_folder,
    started,
)

WEIGHTS = {"w": torch.zeros(1)}
CYCLE = Evaluated(time_s=1.0, task="demo", cycle=1, accuracy=0.5, loss=1.0)


def test_runs_of_one_name_are_numbered(tmp_path: Path) -> None:
    names = []
    for _ in range(3):
        with run_folder(tmp_path / "runs", "demo") as folder:
            (folder / "something").touch()
            names.append(folder.name)
    assert names == ["demo", "demo-2", "demo-3"]


def test_an_empty_run_leaves_no_folder(tmp_path: Path) -> None:
    with run_folder(tmp_path, "demo") as folder:
        pass
    assert not folder.exists()


def test_a_run_that_ended_without_a_checkpoint_is_not_begun_again(
    tmp_path: Path,
) -> None:
    # As version 0.1 left simulated runs.
    with RunWriter.open(tmp_path, "") as run:
        run.note(CYCLE)
    save(WEIGHTS, tmp_path / MODEL)
    before = (tmp_path / RECORDS).read_bytes()
    opened = RunWriter.open(tmp_path, "")
    with pytest.raises(DataError, match="no checkpoint to go on from"):
        opened.__enter__()
    assert (tmp_path / RECORDS).read_bytes() == before


def test_records_that_are_shorter_than_their_checkpoint_are_left_as_they_are(
    tmp_path: Path,
) -> None:
    with RunWriter.open(tmp_path, "") as run:
        run.note(CYCLE)
        run.keep(1, 1.0, WEIGHTS)
    assert (tmp_path / CHECKPOINT).exists()
    cut = (tmp_path / RECORDS).read_bytes()[:-20]
    (tmp_path / RECORDS).write_bytes(cut)
    opened = RunWriter.open(tmp_path, "")
    with pytest.raises(DataError, match="it was cut short"):
        opened.__enter__()
    assert (tmp_path / RECORDS).read_bytes() == cut


def test_how_a_run_was_started_is_not_guessed(tmp_path: Path) -> None:
    assert started(tmp_path) == {}
    (tmp_path / START).write_text('engine = "simul')
    with pytest.raises(DataError, match=r"run\.toml cannot be read"):
        started(tmp_path)
