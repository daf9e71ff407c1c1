import math

import pytest

from melisma.errors import ConfigError
from melisma.learner.throttle import POLL_S, Throttle, sleep_unless


class Clock:
    """A clock that only sleeping and working advance."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_batches_take_as_long_as_on_the_slow_device() -> None:
    clock = Clock()
    throttle = Throttle(100.0, clock=clock, sleep=clock.sleep)
    for _ in range(3):  # what the machine itself takes is learnt
        throttle.batch(10)
        clock.now += 0.02
    began = clock.now
    for _ in range(20):
        throttle.batch(10)
        clock.now += 0.02
    assert clock.now - began == pytest.approx(20 * 10 / 100.0)


def test_a_pause_between_batches_does_not_count_as_work() -> None:
    clock = Clock()
    throttle = Throttle(100.0, clock=clock, sleep=clock.sleep)
    for _ in range(3):
        throttle.batch(10)
        clock.now += 0.02
    clock.now += 60.0
    began = clock.now
    throttle.batch(10)
    assert clock.now - began == pytest.approx(0.08)


def test_a_machine_that_is_slower_than_the_device_is_not_slowed_down() -> None:
    clock = Clock()
    throttle = Throttle(1000.0, clock=clock, sleep=clock.sleep)
    throttle.batch(10)
    clock.now += 0.5
    began = clock.now
    throttle.batch(10)
    assert clock.now == began


def test_a_transfer_takes_its_size_over_the_bandwidth() -> None:
    clock = Clock()
    throttle = Throttle(bytes_per_s=1000.0, clock=clock, sleep=clock.sleep)
    throttle.transferred(500, began=99.9)  # 0.1 s of it were real
    assert clock.now == pytest.approx(100.4)
    throttle.transferred(500, began=0.0)
    assert clock.now == pytest.approx(100.4)


def test_no_throttle_is_no_pause() -> None:
    clock = Clock()
    throttle = Throttle(clock=clock, sleep=clock.sleep)
    throttle.batch(10)
    throttle.transferred(10**9, began=100.0)
    assert clock.now == 100.0


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan])
def test_a_throttle_is_a_number_above_0(rate: float) -> None:
    with pytest.raises(ConfigError, match="samples/s: give a number above 0"):
        Throttle(rate)
    with pytest.raises(ConfigError, match="bytes/s: give a number above 0"):
        Throttle(bytes_per_s=rate)


def test_a_sleep_ends_early_when_it_is_cancelled() -> None:
    clock = Clock()
    assert sleep_unless(
        lambda: clock.now >= 105.0, 60.0, clock=clock, sleep=clock.sleep
    )
    assert clock.now == pytest.approx(105.0, abs=2 * POLL_S)


def test_a_sleep_that_nobody_cancels_is_as_long_as_it_should() -> None:
    clock = Clock()
    assert not sleep_unless(lambda: False, 3.0, clock=clock, sleep=clock.sleep)
    assert clock.now == pytest.approx(103.0)


def test_a_warm_up_learns_the_machines_speed_without_a_pause() -> None:
    slept, clock = list[float](), Clock()
    throttle = Throttle(10, clock=clock, sleep=slept.append)
    for _ in range(2):
        throttle.batch(10, warm_up=True)
        clock.sleep(0.1)
    assert slept == []
    throttle.batch(10)
    assert slept == [pytest.approx(0.9)]
