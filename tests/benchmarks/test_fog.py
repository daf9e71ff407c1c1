"""Our solver moves data, and proves how near the optimum it is."""

from pathlib import Path

import bench_fog
import pytest
from tests.benchmarks.printed import output, row

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", ["linear", "convex"])
def test_bench_fog_solves_both_errors(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bench_fog.main(largest=10, kinds=kind, peers="")
    devices, arcs, time_s, cost, gap = row(output(capsys), kind, "ours")
    assert devices == 10
    assert arcs > 0
    assert time_s > 0
    assert cost > 0
    assert gap < 1e-5


def test_bench_fog_shows_a_trace_beside_the_models(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bench_fog.main(trace=ROOT / "examples" / "fog-trace.csv")
    text = output(capsys)
    for model, mean, spread in (("WiFi", 0.45, 0.5), ("LTE", 0.04, 0.3)):
        found = row(text, f"model: {model}, send")
        assert found[:2] == pytest.approx([mean, spread], rel=0.1)
    assert row(text, "measured, train")[0] < 1.0
    assert row(text, "measured, send")[0] > 0.0


@pytest.mark.slow
def test_bench_fog_runs_highs_in_a_process(capsys: pytest.CaptureFixture[str]) -> None:
    bench_fog.main(largest=10, kinds="linear", peers="highs")
    text = output(capsys)
    ours, highs = (row(text, "linear", f" {name} ")[3] for name in ("ours", "highs"))
    assert ours == pytest.approx(highs, rel=1e-6)
