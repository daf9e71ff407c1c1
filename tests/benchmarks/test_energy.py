"""Least energy by a deadline: the benchmark has every peer, and checks itself."""

import bench_energy
import numpy as np
import pytest
from tests.benchmarks.printed import row, run


@pytest.mark.slow
def test_a_corner_of_the_grid_has_both_programs() -> None:
    text = run("bench_energy.py", "--quick", "--devices", 10)
    assert "8 instances: all optima are the same." in text
    for program in ("with numpy", "plain Python"):
        assert row(text, program)[0] == 10
        assert row(text, program)[-1] > 0
    assert row(text, "100", "least energy")[-1] > 0  # HiGHS


@pytest.mark.slow
def test_three_limits_at_once_are_solved_to_a_gap() -> None:
    text = run("bench_energy.py", "--limits", "--quick")
    assert row(text, "10 ", "most value")[-1] < 1e-9
    assert row(text, "100 ", "least of one")[-1] < 0.01


def test_one_by_one_is_optimal_by_hand() -> None:
    # The second needs least and has room for two, then the third.
    energy, most = np.array([3.0, 1.0, 2.0]), np.array([9, 2, 9])
    assert bench_energy.one_by_one(energy, most, 4).tolist() == [0, 2, 2]


def test_another_optimum_breaks_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_energy, "one_by_one", lambda _, most, n: most)
    with pytest.raises(RuntimeError, match="10 × 1000, one by one: ours is"):
        bench_energy.instances(10, 1000, full=False)
