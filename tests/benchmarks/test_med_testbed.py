"""MED is tried on emulated devices with owners, where there may be some."""

import bench_med_testbed
import pytest
from tests.benchmarks.printed import output, row

from melisma import testbed
from melisma.jobs.benchmark_table import Known
from melisma.learner.background import Activity

LACK = testbed.missing()


@pytest.mark.slow
@pytest.mark.skipif(bool(LACK), reason=f"a testbed needs {LACK}")
def test_bench_med_testbed_shows_times_and_accuracies(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_med_testbed, "CPU", 0.5)  # they start the sooner
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


def test_every_owner_may_do_everything_and_is_measured_in_each_state() -> None:
    job = bench_med_testbed.job_of("mmtt", ["a", "b"], 20, 0)
    assert (job.scheme, job.cycles, len(job.tasks)) == ("mmtt", 20, 3)
    assert (job.benchmark.known, job.benchmark.shards) == (Known.MEASURED, 20)
    for learner in job.learners:
        assert [state.owner for state in learner.states] == list(Activity)
        gamma = [state.probability or 0.0 for state in learner.states]
        assert sum(gamma) == pytest.approx(1)
        assert max(gamma) > 0.75


def test_time_is_saved_against_the_first_scheme_trial_by_trial(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # 20 and 10 % saved: 15 % ± 12.706 · 7.07 % / √2.
    bench_med_testbed.show(
        {"mmtt": [100.0, 200.0], "med": [80.0, 180.0]},
        {"mmtt": [[10.0, 20.0, 30.0]] * 2, "med": [[40.0, 50.0, 60.0]] * 2},
    )
    text = capsys.readouterr().out
    assert row(text, "med ") == [130.0, 15.0, 63.5, 40.0, 50.0, 60.0]
