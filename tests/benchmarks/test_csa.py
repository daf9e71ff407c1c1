"""The table of CSA has a row for each scheme, ours exact."""

import bench_csa
import pytest
from tests.benchmarks.printed import output, row


def test_bench_csa_times_every_scheme(capsys: pytest.CaptureFixture[str]) -> None:
    bench_csa.main(learners=[5], at_least=0.0)
    text = output(capsys)
    for case in ("free", "bounds"):
        for scheme in ("csa ", "csa-strict", "csa-relaxed"):
            learners, time_ms, *_, steps = row(text, f"5  {case}", scheme)
            assert learners == 5
            assert time_ms > 0
            assert steps > 0
    assert row(text, "(8) as printed")[2] > 0
    assert "met     csa-strict never staler than csa-relaxed" in text
