"""The live benchmark measures, and ends at once when a learner dies."""

from pathlib import Path

import bench_live
import msgspec
import pytest
from tests.benchmarks.printed import python, row

WAITS = ("time.sleep(200)", "asyncio.run(asyncio.sleep(200))")


@pytest.mark.parametrize("wait", WAITS)
def test_a_process_that_dies_interrupts_who_waits(wait: str) -> None:
    done = python(
        "-c",
        "import asyncio, time\n"
        "from peers.processes import running\n"
        f"with running([('-c', 'raise TypeError(123)')]): {wait}",
    )
    assert done.returncode == 1
    assert "TypeError: 123" in done.stderr
    assert "a learner ended with exit code 1 during the run" in done.stderr


def test_processes_end_with_the_block() -> None:
    done = python(
        "-c",
        "from peers.processes import running\n"
        "with running([('-c', 'import sys; sys.stdin.read(); print(456)')]): pass",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "456\n", "")


@pytest.mark.slow
def test_a_learner_that_dies_ends_the_benchmark_with_its_own_error(
    tmp_path: Path,
) -> None:
    learners = tmp_path / "learners.py"
    learners.write_text("raise TypeError('unexpected argument: pace')")
    done = python(
        "-c",
        "import bench_live\n"
        f"bench_live.LEARNERS = {str(learners)!r}\n"
        "bench_live.main()",
    )
    assert done.returncode == 1
    assert "TypeError: unexpected argument: pace" in done.stderr
    assert "a learner ended with exit code 1 during the run" in done.stderr
    assert "cycle over" not in done.stdout


@pytest.mark.slow
def test_bench_live_measures_overhead_bytes_and_crowd(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    two = msgspec.structs.replace(
        bench_live.FOUR, learners=bench_live.FOUR.learners[:2]
    )
    monkeypatch.setattr(bench_live, "FOUR", two)
    monkeypatch.setattr(bench_live, "PROCESSES", 1)
    with pytest.raises(SystemExit):  # by which bars are met: not here
        bench_live.main(cycles=2, learners=2)
    text = capsys.readouterr().out
    overhead, *_ = row(text, "cycle over the slowest learner's own time")
    sent, received = row(text, "bytes over those needed")
    assert overhead > 1
    assert sent > 1
    assert received > 1
    assert row(text, "crowd:")[:2] == [2, 2]
