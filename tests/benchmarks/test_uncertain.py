"""Every scheme serves the same clusters."""

import bench_uncertain
import pytest
from tests.benchmarks.printed import output, row


def test_bench_uncertain_has_a_row_for_each_scheme(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bench_uncertain.main(trials=2, cycles=1, largest=4)
    text = output(capsys)
    for scheme in bench_uncertain.ESTIMATES:
        learners, tasks, trials, time_s, *_, cost = row(text, f" {scheme} ")
        assert (learners, tasks) == (4, 3)
        assert trials > 0
        assert time_s > 0
        assert cost > 0
