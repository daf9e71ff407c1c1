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
    learners, *rates, cycle_s, off = row(output(capsys), "TwoNN")
    assert learners == 2
    assert min(rates) > 0
    assert cycle_s > 0
    assert off < 1e-3
    assert ended.value.exit_code == 0
