"""A live run that is resumed waits for as many learners as it was started with."""

from pathlib import Path

import pytest

from melisma.errors import DataError
from melisma.launch import api
from melisma.launch.local import DEMO
from melisma.launch.serve import learners_of
from melisma.runs.files import CONFIG
from melisma.runs.start import started


def stopped(runs: Path, learners: int) -> Path:
    """Return the folder of a run that was stopped while it waited for learners."""
    with api.serve(DEMO, learners=learners, runs=runs) as server:
        assert server.folder is not None
        return server.folder


def test_the_number_of_the_first_start_is_kept(tmp_path: Path) -> None:
    folder = stopped(tmp_path, 3)
    assert learners_of(started(folder)) == 3
    with api.serve(folder=folder, learners=1):
        pass
    assert learners_of(started(folder)) == 3
    with api.serve(folder=folder) as again:
        assert again._options["learners"] == 3


def test_a_run_of_an_earlier_version_waits_for_one() -> None:
    assert learners_of({"engine": "serve"}) == 1
    for wrong in (0, -1, "3", True, 2.0):
        with pytest.raises(DataError, match="give --learners N"):
            learners_of({"learners": wrong})


def test_an_edited_job_is_not_served(tmp_path: Path) -> None:
    folder = stopped(tmp_path, 1)
    config = (folder / CONFIG).read_text()
    (folder / CONFIG).write_text(
        config.replace(f"cycles = {DEMO.cycles}", "cycles = 7")
    )
    with pytest.raises(DataError, match="--edited"):
        api.serve(folder=folder)


def test_a_run_under_way_is_not_served_beside_itself(tmp_path: Path) -> None:
    with api.serve(DEMO, runs=tmp_path) as first:
        assert first.folder is not None
        for again in (api.serve(folder=first.folder), api.serve(folder=first.folder)):
            with pytest.raises(DataError, match="under way in another process"):
                again.__enter__()
