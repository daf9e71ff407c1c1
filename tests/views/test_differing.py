"""What of a job is not the default."""

import tomllib
from pathlib import Path

import pytest

from melisma.jobs.files import dump, job_of, load
from melisma.jobs.schema import Job
from melisma.views.differing import differing, differing_of
from melisma.views.document import document

FOLDER = Path(__file__).parents[2] / "examples"
JOBS = sorted({*FOLDER.glob("*.toml")} - {FOLDER / "states.toml"})


def test_a_default_job_has_no_more_than_what_was_run() -> None:
    told = tomllib.loads(differing(Job()))
    assert list(told) == ["name", "scheme", "cycles", "learners", "model", "deadline"]


def test_what_was_changed_is_shown_and_what_was_not_is_left_out() -> None:
    told = differing_of(
        'scheme = "eta"\nsteps = 7\nseed = 0\nnoise = 0.0\n[training]\nrate = 0.7'
    )
    assert tomllib.loads(told)["steps"] == 7
    assert not {"seed", "noise"} & tomllib.loads(told).keys()
    assert tomllib.loads(told)["training"] == {"rate": 0.7}


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_the_job_is_the_same_from_what_differs(path: Path) -> None:
    job = load(path)
    assert job_of(tomllib.loads(differing(job)), "there") == job
    assert len(differing(job)) < 0.7 * len(dump(job))


def test_a_document_has_both(tmp_path: Path) -> None:
    job = Job(name="a", cycles=3)
    (tmp_path / "config.toml").write_text(dump(job))
    (tmp_path / "records.jsonl").touch()
    told = document(tmp_path)["run"]
    assert told["changed"] == differing(job)
    assert told["config"] == dump(job)
