"""MED is tried on emulated devices with owners, where there may be some."""

from pathlib import Path
from typing import Any

import bench_med_testbed
import pytest
from tests.benchmarks.printed import output, row
from tests.views.test_tasks import learner_cycle

from melisma import testbed
from melisma.jobs.benchmark_table import Known
from melisma.learner.background import Activity
from melisma.runs.records import ACCURACY, Dropped, Evaluated, Metrics, Record

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
    trial, total_s, *_ = row(text, "trial")
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


def records_of(times_s: dict[str, list[float]]) -> list[Record]:
    """Two learners to a cycle; the slower one takes so long."""
    found = list[Record]()
    for task, seconds in times_s.items():
        found.append(
            Metrics(cycle=0, time_s=0.0, task=task, metrics=(ACCURACY,), batch=10)
        )
        for cycle, slowest_s in enumerate(seconds, 1):
            for name, back_s in (("x", 1.0), ("y", slowest_s)):
                found += learner_cycle(
                    task, cycle, name, back_s=back_s, batches=8, halted=False
                )
            end: Any = {"cycle": cycle, "time_s": slowest_s, "task": task}
            found.append(Evaluated(metrics={"accuracy": 0.5}, loss=1.0, **end))
    return found


def test_a_trial_takes_the_sum_of_its_cycles_by_their_slowest_learners() -> None:
    job = bench_med_testbed.job_of("mmtt", ["x", "y"], 2, 0)
    times_s = {"digits": [2.0, 3.0], "deep": [4.0, 5.0], "conv": [6.0, 7.0]}
    found = bench_med_testbed.total_s(job, records_of(times_s))
    assert found == pytest.approx(27.0)


def test_a_run_that_lost_a_learner_or_stood_still_is_made_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bench, still = bench_med_testbed, testbed.Still()
    job, whole = bench.job_of("mmtt", ["x", "y"], 2, 0), records_of({"digits": [2.0]})
    lost = Dropped(cycle=1, time_s=1.0, task="digits", learner="x", reason="gone")
    runs = [[*whole, lost], whole]
    monkeypatch.setattr(bench, "run_on_testbed", lambda *_: runs.pop(0))
    assert bench.undisturbed(job, tmp_path / "run", [], still) == whole
    monkeypatch.setattr(bench, "STILL_S", 0.0)
    runs = [whole] * bench.ATTEMPTS
    with pytest.raises(RuntimeError, match="the machine stood still in 10 runs"):
        bench.undisturbed(job, tmp_path / "still", [], still)


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
