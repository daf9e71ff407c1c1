"""The benchmark of how many epochs help, at a tiny size."""

import bench_epochs
import pytest
from tests.benchmarks.printed import numbers, output


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
