"""Bytes on emulated links are those that were predicted."""

from contextlib import suppress

import bench_wire_testbed
import pytest
import typer
from bench_wire_testbed import Meter, job_of, predicted
from tests.benchmarks.printed import output, row

from melisma.testbed import missing

LACK = missing()


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.skipif(bool(LACK), reason=f"a testbed needs {LACK}")
def test_bench_wire_testbed_moves_what_was_predicted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_wire_testbed, "CPU", 0.5)  # they start the sooner
    with suppress(typer.Exit):  # late, on busy cores
        bench_wire_testbed.main(learners=2, quick=True)
    down, up, *off, late, passes, accuracy = row(output(capsys), "│ fp16, int8")[-7:]
    assert down / up == pytest.approx(2, rel=0.02)
    assert max(map(abs, off)) < 2
    assert 0 <= late <= 100
    assert passes > 0
    assert 0 < accuracy < 1


def test_bytes_are_counted_between_the_first_evaluation_and_the_last() -> None:
    assert Meter(read=[(10, 1), (30, 2), (60, 5)]).moved() == (50, 4)


def test_a_quarter_of_the_bytes_is_predicted_for_a_byte_a_value() -> None:
    plain = predicted(job_of("fp32", "fp32", 3), trips=8)
    small = predicted(job_of("fp16", "int8", 3), trips=8)
    assert plain == (8 * 4 * 573_910, 8 * 4 * 573_910)
    assert small[0] == plain[0] // 2
    assert small[1] == pytest.approx(plain[1] / 4, rel=0.01)
