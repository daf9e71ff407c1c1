import numpy as np
import pytest
from tests.fleets.fleets import law, task_of

from melisma.algorithms.observed import REMEMBERED, ObservedStates
from melisma.learning.settings import Training
from melisma.runs.records import Allocated, Downloaded, Record, Trained, Uploaded


def learned() -> ObservedStates:
    # By the benchmark: 0.1 s to train on a sample, 0.02 s for it to come, 1 s for the
    # model.
    delays = law([0.1, 0.1], [0.02, 0.02], [1.0, 1.0])
    task = task_of("med", 60.0, name="t", shard=2, steps=3, training=Training(batch=5))
    return ObservedStates([task], lambda: ([delays], ["a", "b"]))


def cycle(
    name: str, *, downloaded_s: float, trained_s: float, back_s: float
) -> list[Record]:
    """Ten samples, three passes: six batches."""
    return [
        Allocated(
            time_s=5.0,
            task="t",
            cycle=1,
            learner=name,
            samples=10,
            steps=3,
            predicted_s=0,
        ),
        Downloaded(time_s=5.0 + downloaded_s, task="t", cycle=1, learner=name),
        Trained(
            time_s=5.0 + trained_s,
            task="t",
            cycle=1,
            learner=name,
            samples=10,
            batches=6,
            loss=0.0,
        ),
        Uploaded(time_s=5.0 + back_s, task="t", cycle=1, learner=name),
    ]


def test_before_any_cycle_the_benchmark_is_all_there_is() -> None:
    shard_s, fixed_s = learned().expected()
    # 2·(0.02 + 3·0.1)
    assert shard_s.tolist() == [pytest.approx([0.64, 0.64])]
    assert fixed_s.tolist() == [[1.0, 1.0]]


def test_a_slow_cycle_counts_as_much_as_the_benchmark() -> None:
    known = learned()
    # 3 s of training took 9, 1.2 s of transfers 2.4: thrice and twice as long.
    for record in cycle("a", downloaded_s=1.4, trained_s=10.4, back_s=11.4):
        known.see(record)
    shard_s, fixed_s = known.expected()
    assert shard_s[0] == pytest.approx([2 * (1.5 * 0.02 + 3 * 2.0 * 0.1), 0.64])
    assert fixed_s[0] == pytest.approx([1.5, 1.0])


def test_in_the_long_run_it_is_the_mean_over_the_states() -> None:
    known, rng = learned(), np.random.default_rng(0)
    for slow in rng.random(REMEMBERED) < 0.25:
        factor = 5.0 if slow else 1.0
        trained_s = 0.7 + 3.0 * factor
        for record in cycle(
            "a", downloaded_s=0.7, trained_s=trained_s, back_s=trained_s + 0.5
        ):
            known.see(record)
    shard_s, _ = known.expected()
    # 0.75·1 + 0.25·5 = 2; of 200 draws the mean has a standard deviation of 0.12, of
    # which the time of a shard has 2·3·0.1.
    assert shard_s[0, 0] == pytest.approx(2 * (0.02 + 3 * 2.0 * 0.1), abs=0.15)


@pytest.mark.parametrize("missing", range(3))
def test_what_is_not_a_whole_cycle_does_not_count(missing: int) -> None:
    known = learned()
    happened = cycle("a", downloaded_s=1.4, trained_s=10.4, back_s=11.4)
    del happened[missing]
    for record in happened:
        known.see(record)
    assert known.expected()[1].tolist() == [[1.0, 1.0]]


def test_times_out_of_order_leave_a_run_that_can_be_resumed() -> None:
    known = learned()
    happened = cycle("a", downloaded_s=9.0, trained_s=2.0, back_s=10.0)
    for record in sorted(happened, key=lambda record: record.time_s):
        known.see(record)
    shard_s, fixed_s = known.expected()
    assert (shard_s > 0).all()
    assert (fixed_s > 0).all()


def test_a_benchmark_without_transfers_is_no_division_by_zero() -> None:
    delays = law([0.1], [0.0], [0.0])
    task = task_of("med", 60.0, name="t", shard=2, steps=3)
    known = ObservedStates([task], lambda: ([delays], ["a"]))
    for record in cycle("a", downloaded_s=1.4, trained_s=10.4, back_s=11.4):
        known.see(record)
    assert np.isfinite(known.expected()[0]).all()


def test_who_is_not_there_any_more_is_passed_over() -> None:
    known = learned()
    for record in cycle("gone", downloaded_s=1.4, trained_s=10.4, back_s=11.4):
        known.see(record)
    assert known.expected()[0].tolist() == [pytest.approx([0.64, 0.64])]


def test_states_are_what_was_seen_and_the_benchmark() -> None:
    known = learned()
    # 3 s of training took 9, 1.2 s of transfers 2.4: thrice and twice as long.
    for record in cycle("a", downloaded_s=1.4, trained_s=10.4, back_s=11.4):
        known.see(record)
    states = known.states()
    assert states.probability.tolist() == [[0.5, 0.5], [1.0, 0.0]]
    assert states.fixed_s[0].tolist() == [pytest.approx([1.0, 2.0]), [1.0, 1.0]]
    shard_s = [2 * (0.02 + 3 * 0.1), 2 * (2 * 0.02 + 3 * 3 * 0.1)]
    assert states.shard_s[0, 0] == pytest.approx(shard_s)
