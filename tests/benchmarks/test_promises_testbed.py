"""What the testbed's learners took is what every rule is held against."""

import bench_promises_testbed
import numpy as np
import pytest
from tests.benchmarks.printed import output, row

from melisma.testbed import missing
from melisma.views.ledger import LearnerCycle

LACK = missing()


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.skipif(bool(LACK), reason=f"a testbed needs {LACK}")
def test_bench_promises_testbed_shows_what_was_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_promises_testbed, "CPU", 0.5)  # they start the sooner
    bench_promises_testbed.main(cycles=3, learners=2, quick=True)
    text = output(capsys)
    promised, cycles, late, reserve = row(text, " 10  ")
    assert (promised, cycles) == (10, 6)
    assert 0 <= late <= 100
    assert 0 < reserve < 100
    share, kept = row(text, "mean + 2 dev")[-2:]
    assert 0 <= share <= 100
    assert kept > 0


def test_factors_are_of_each_learners_own_median() -> None:
    """Link times are 0.1 s and 1 ms a sample; one of b's cycles took twice as long."""
    rows = [
        LearnerCycle(
            cycle=cycle,
            learner=name,
            samples=samples,
            steps=1,
            predicted_s=None,
            downloaded_s=0.05 + 0.001 * samples,
            trained_s=0.05 + 0.001 * samples + slow * 4 * batch_s,
            measured_s=0.1 + 0.001 * samples + slow * 4 * batch_s,
            batches=4,
            trained=samples,
        )
        for name, batch_s in (("a", 0.1), ("b", 0.3))
        for cycle, (samples, slow) in enumerate(((100, 1), (200, 1), (300, 2)))
    ]
    found = bench_promises_testbed.factors(rows)
    assert found.shape == (3, 2, 2)
    assert np.allclose(found[:, 0], [[1, 1], [1, 1], [2, 2]])
    assert np.allclose(found[:, 1], 1)
