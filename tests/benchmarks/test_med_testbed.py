"""MED is tried on emulated devices with owners, where there may be some."""

import bench_med_testbed
import pytest
from tests.benchmarks.printed import output, row

from melisma import testbed

LACK = testbed.missing()


@pytest.mark.slow
@pytest.mark.skipif(bool(LACK), reason=f"a testbed needs {LACK}")
def test_bench_med_testbed_shows_times_and_accuracies(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bench_med_testbed.main(
        trials=1, cycles=1, learners=3, schemes="mmtt-ideal", quick=True
    )
    text = output(capsys)
    trial, total_s = row(text, "trial")
    assert trial == 0
    shown_s, saved, *accuracies = row(text, "mmtt-ideal  ")
    assert shown_s == total_s > 0
    assert saved == 0
    assert len(accuracies) == 3
    assert max(accuracies) > 15  # chance is 10


def test_owners_are_drawn_by_the_trial_and_not_by_the_scheme() -> None:
    names = [device.name for device in bench_med_testbed.devices(10)]
    one, two, other = (
        bench_med_testbed.job_of(scheme, names, 1, trial).learners
        for scheme, trial in (("med", 3), ("mmtt", 3), ("med", 4))
    )
    assert one == two != other
    quotas = [device.cpu or 0.0 for device in bench_med_testbed.devices(10)]
    assert sum(quotas) <= 1.6  # of two cores: or they would not be real
