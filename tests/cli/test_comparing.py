"""`melisma compare`, run as a user runs it."""

import json
from pathlib import Path

import pytest
from tests.cli.running import FOG, TASKS, Melisma, quick_job


@pytest.mark.slow
def test_compare_shows_all_schemes_and_writes_picture_and_report(
    tmp_path: Path, melisma: Melisma
) -> None:
    words = ("compare", quick_job(tmp_path), "--schemes", "csa,dab", "--seeds", "2")
    done = melisma(*words)
    assert done.code == 0, done.err
    assert "csa" in done.out
    assert "95 % intervals" in done.out
    folder = tmp_path / "runs" / "quick-compared"
    assert (folder / "comparison.png").read_bytes().startswith(b"\x89PNG")
    page = (folder / "report.html").read_text()
    assert '"comparison":{"job":"quick"' in page
    assert "http://" not in page
    assert len(list(folder.glob("*-seed*/records.jsonl"))) == 4


@pytest.mark.slow
def test_a_scheme_that_fails_does_not_stop_the_others(
    tmp_path: Path, melisma: Melisma
) -> None:
    # 500 passes over a shard take a laptop 100·500/8000 s; one over its share fits.
    job = quick_job(tmp_path, "deadline = '0.3 s'\nsteps = 500\nshard = 100")
    words = ("compare", job, "--schemes", "eta,dab", "--seeds", "1", "--json")
    shown = json.loads(melisma(*words).out)
    eta, dab = shown["comparison"]["outcomes"]
    assert len(eta["histories"]) == 1
    assert dab["histories"] == []
    assert "before 0.3 s" in dab["failed"]


def test_a_missing_job_file_gets_one_line_and_exit_code_2(melisma: Melisma) -> None:
    done = melisma("compare", "nowhere.toml")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "nowhere.toml: No such file or directory" in done.err


def test_a_scheme_for_one_task_is_named_where_there_are_several(
    tmp_path: Path, melisma: Melisma
) -> None:
    job = quick_job(tmp_path, TASKS)
    done = melisma("compare", job, "--schemes", "csa,med")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "unknown scheme for several tasks 'csa'" in done.err
    done = melisma("run", job, "--scheme", "mmtt-ideal")
    assert done.code == 2
    assert "simulate it, or use 'med-probe'" in done.err
    assert not list((tmp_path / "runs").glob("*"))


def test_a_fog_is_not_compared_with_other_schemes(
    tmp_path: Path, melisma: Melisma
) -> None:
    job = quick_job(tmp_path, FOG)
    done = melisma("compare", job, "--schemes", "fog:alone,csa")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "the figures of csa are not those of fog:alone" in done.err
    assert not list((tmp_path / "runs").glob("*"))


@pytest.mark.slow
def test_schemes_of_a_fog_are_compared_by_their_costs(
    tmp_path: Path, melisma: Melisma
) -> None:
    job = quick_job(tmp_path, FOG)
    done = melisma("compare", job, "--schemes", "fog:alone,fog:known", "--seeds", "1")
    assert done.code == 0, done.err
    assert "unit cost" in done.out
    assert "staleness" not in done.out
    names = {path.name for path in (tmp_path / "runs/quick-compared").glob("*.png")}
    assert names == {"comparison.png", "costs.png"}
