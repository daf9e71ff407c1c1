"""A cycle is timed on Flower's SuperNodes and on our own runtime."""

import bench_flower
import pytest
from tests.benchmarks.printed import output, row


@pytest.mark.slow
@pytest.mark.long
def test_bench_flower_times_both_runtimes(capsys: pytest.CaptureFixture[str]) -> None:
    bench_flower.main(cycles=2)
    text = output(capsys)
    for name in ("Flower", "ours"):
        _, cycle_s, *_, updates, expected = row(text, f"{name} (load")
        assert cycle_s > 0
        assert (updates, expected) == (4, 4)


@pytest.mark.slow
def test_bench_flower_times_ours_where_flower_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_flower, "lack_of", lambda packages: "flwr is missing")
    bench_flower.main(cycles=2)
    left_out, ours = output(capsys).splitlines()
    assert left_out == "Flower is left out: flwr is missing"
    _, cycle_s, *_, updates, expected = row(ours, "ours (load")
    assert cycle_s > 0
    assert (updates, expected) == (4, 4)
