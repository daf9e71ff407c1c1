import pytest

from melisma.system.drift import CAUTION, Drift


def test_before_anything_was_seen_the_benchmark_is_believed_but_not_quite() -> None:
    drift = Drift()
    assert drift.mean == 1.0
    assert drift.careful == pytest.approx(1.0 + CAUTION * 0.1)


def test_a_device_that_heats_up_is_known_for_it_after_a_few_cycles() -> None:
    drift = Drift()
    for _ in range(5):
        drift.see(predicted_s=1.0, took_s=2.0)
    # Half of what is missing each time: 1.5, 1.75, …, 2 − 1/32.
    assert drift.mean == pytest.approx(2 - 1 / 32)


def test_steady_work_makes_for_little_caution() -> None:
    drift = Drift()
    for _ in range(10):
        drift.see(predicted_s=2.0, took_s=2.0)
    assert drift.careful == pytest.approx(1.0, abs=1e-3)


def test_unsteady_work_makes_for_caution() -> None:
    drift = Drift()
    for took_s in (0.5, 1.5) * 10:
        drift.see(predicted_s=1.0, took_s=took_s)
    assert drift.careful > 1.5  # later than it ever was


def test_work_that_took_no_time_says_nothing() -> None:
    drift = Drift()
    drift.see(predicted_s=0.0, took_s=1.0)
    drift.see(predicted_s=1.0, took_s=0.0)
    assert drift == Drift()


@pytest.mark.parametrize("ratio", [126.0, 1 / 126])
def test_a_prediction_that_was_far_off_is_right_from_the_next_cycle_on(
    ratio: float,
) -> None:
    drift = Drift()
    drift.see(predicted_s=1.0, took_s=ratio)
    assert drift.mean == ratio
    assert ratio < drift.careful < 1.3 * ratio


def test_one_cycle_in_which_a_device_hung_is_forgotten_by_the_next() -> None:
    drift = Drift()
    for took_s in (1.0, 1.0, 50.0, 1.0):
        drift.see(predicted_s=1.0, took_s=took_s)
    assert drift.mean == 1.0
