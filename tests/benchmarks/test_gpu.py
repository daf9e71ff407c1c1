"""Without a GPU, the benchmark of it runs on a core of the CPU."""

import bench_gpu
import pytest
import typer
from tests.benchmarks.printed import output, row


def test_bench_gpu_trains_learners_side_by_side(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(typer.Exit) as ended:
        bench_gpu.main(device="cpu", repeats=1, networks="TwoNN", precisions="fp32")
    sides, steps = output(capsys).split("A step of all learners", 1)
    learners, *rates, cycle_s, off = row(sides, "TwoNN")
    assert learners == 2
    assert min(rates) > 0
    assert cycle_s > 0
    assert off < 1e-3
    assert ended.value.exit_code == 0
    learners, replayed_ms, single_ms, times = row(steps, "TwoNN")
    assert learners == 2
    # Both are rounded to 0.01 ms, and their ratio to 0.1.
    assert times == pytest.approx(single_ms / replayed_ms, abs=0.05, rel=0.1)
