"""Our solver assigns tasks; peers run in processes, or are left out by name."""

from pathlib import Path

import bench_med
import pytest
from peers import environments
from tests.benchmarks.printed import output, row

BUDGETS = ("none", "95%", "85%")


def test_bench_med_solves_with_and_without_a_budget(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bench_med.main(largest=10, peers="", repeats=1)
    text = output(capsys)
    for size in ("10 × 3", "10 × 4"):
        for budget in BUDGETS:
            *_, time_s, objective_s, gap_percent = row(text, size, budget, "ours")
            assert time_s > 0
            assert objective_s > 0
            assert gap_percent < 1


def test_an_environment_that_is_missing_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    find = environments.python_of
    monkeypatch.setattr(bench_med, "python_of", lambda name: find(name, tmp_path))
    bench_med.main(largest=0)
    assert output(capsys).splitlines()[0] == (
        "cpsat is left out: .venv-ortools is not set up (`make .venv-ortools/ready`)"
    )


@pytest.mark.slow
def test_bench_med_runs_highs_in_a_process(capsys: pytest.CaptureFixture[str]) -> None:
    bench_med.main(largest=10, peers="highs", limit=0.5, repeats=1, bound_to=0)
    text = output(capsys)
    for size in ("10 × 3", "10 × 4"):
        *_, time_s, objective_s, _ = row(text, size, "highs")
        assert time_s > 0
        assert objective_s >= row(text, size, "none", "ours")[-2]
