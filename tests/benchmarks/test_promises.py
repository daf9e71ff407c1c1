"""Every rule is held against every law, and ours against its promise."""

import bench_promises
import numpy as np
import pytest
from tests.benchmarks.printed import output, row

from melisma.system.promise import Promises


def test_bench_promises_has_a_row_for_each_rule(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bench_promises.main(learners=3, cycles=4, quick=True)
    text = output(capsys)
    for rule in bench_promises.RULES:
        cells = row(text, f" {rule} ")[-2 * len(bench_promises.LAWS) :]
        assert all(0 <= late <= 100 for late in cells[::2])
        assert all(0 < kept <= 1.5 for kept in cells[1::2])


def test_without_any_delay_nobody_is_late_and_nearly_all_is_kept() -> None:
    late, kept = bench_promises.simulate(Promises(0.05), np.ones((60, 2, 5)))
    assert late == 0
    assert kept > 0.9


def test_who_takes_far_longer_than_known_is_late_at_first() -> None:
    late, kept = bench_promises.simulate(Promises(0.05), np.full((10, 2, 5), 3.0))
    assert 0 < late < 0.5
    assert kept < 0.5
