"""Lies are told from honest work, and both have their row."""

import bench_checks
import pytest
from tests.benchmarks.printed import output, row


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # of CPUs without bfloat16
def test_bench_checks_judges_honest_work_and_lies(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bench_checks.main(seeds=1, learners=2, cycles="1,2", steps="1")
    text = output(capsys)
    honest = row(text, "honest: same machine")
    assert honest[:2] == [4, 0]  # trials, share redone (%)
    for lie in ("old parameters", "a tenth of its shards", "the last cycle's answer"):
        assert row(text, lie)[-5] > 0.2  # least distance
    redo, suspect = row(text, "1 steps: redo")[1:]
    assert redo > 0
    assert suspect > 0
