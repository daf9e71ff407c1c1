"""The benchmark of benchmarks on a busy machine, run as printed."""

import pytest
from tests.benchmarks.printed import row, run


@pytest.mark.slow
def test_bench_busy_promises_what_is_then_done() -> None:
    shown = run("bench_busy.py", "--seconds", "0.5")
    for name in ("one size, alone", "two sizes, alone"):
        least, middle, most = row(shown, name)[-3:]
        assert least <= middle <= most
        assert 0.2 < middle < 5.0
    assert min(row(shown, "two sizes, busy")) > 0
