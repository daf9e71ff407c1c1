"""Benchmarks of a busy machine, and of how many epochs help, run as printed."""

import bench_epochs
import pytest
from tests.benchmarks.printed import numbers, output, row, run


@pytest.mark.slow
def test_bench_busy_promises_what_is_then_done() -> None:
    shown = run("bench_busy.py", "--seconds", "0.5")
    for name in ("one size, alone", "two sizes, alone"):
        least, middle, most = row(shown, name)[-3:]
        assert least <= middle <= most
        assert 0.2 < middle < 5.0
    assert min(row(shown, "two sizes, busy")) > 0


@pytest.mark.slow
def test_bench_epochs_has_a_row_for_each_number_of_samples(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_epochs, "CAPS", (1, 20))
    monkeypatch.setattr(bench_epochs, "SAMPLES", (45,))
    monkeypatch.setattr("logging.disable", lambda level: None)
    monkeypatch.setattr("sys.argv", ["bench_epochs.py", "--cycles", "2"])
    bench_epochs.main()
    sent, own = output(capsys).splitlines()[-2:]
    for line in (sent, own):
        few, many = numbers(line)[-2:]
        assert 0 < few < many < 100
