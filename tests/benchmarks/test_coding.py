"""Codes are decoded exactly, and every scheme has its mean time."""

import bench_coding
import pytest
from tests.benchmarks.printed import numbers, output, row

CODES = ("fractional", "cyclic", "hetero", "tandon")


def test_bench_coding_decodes_exactly(capsys: pytest.CaptureFixture[str]) -> None:
    bench_coding.main(only="decode", workers=10, patterns=4)
    text = output(capsys)
    for code in CODES:
        for stragglers in (1, 3):
            line = f"10    {stragglers}  {code}"
            *_, weights_ms, _, worst_error, _, _ = row(text, line)
            assert weights_ms > 0
            assert worst_error < 1e-10


def test_bench_coding_times_combining(capsys: pytest.CaptureFixture[str]) -> None:
    bench_coding.main(only="combine", parameters=10_000)
    lines = [line for line in output(capsys).splitlines() if "of our time" in line]
    assert len(lines) == 8
    for line in lines:
        time_ms, error, _ = numbers(line)[-3:]
        assert time_ms > 0
        assert error < 1e-6


def test_bench_coding_compares_many_workers(capsys: pytest.CaptureFixture[str]) -> None:
    bench_coding.main(only="many", workers=10, epochs=2)
    text = output(capsys)
    bound, *_ = row(text, "genie's bound")
    for name in ("uncoded", "fractional", "heterogeneity-aware", "two-stage"):
        assert row(text, name)[0] > bound > 1


@pytest.mark.slow
@pytest.mark.parametrize("part", ["testbed", "persistent"])
def test_bench_coding_compares_schemes(
    part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bench_coding.main(only=part, stragglers="1", epochs=2, scenarios=2)
    lines = [line for line in output(capsys).splitlines() if "±" in line]
    bound, *schemes = (numbers(line.split("±")[0])[-1] for line in lines)
    assert len(schemes) >= 7
    assert min(schemes) > bound > 1
