import math

import pytest

from melisma.errors import ConfigError
from melisma.learner.throttle import Throttle


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
    pace = Throttle(100.0, clock=clock, sleep=clock.sleep)
    for _ in range(3):  # what the machine itself takes is learnt
        pace.batch(10)
        clock.now += 0.02
    began = clock.now
    for _ in range(20):
        pace.batch(10)
        clock.now += 0.02
    assert clock.now - began == pytest.approx(20 * 10 / 100.0)


def test_a_pause_between_batches_does_not_count_as_work() -> None:
    clock = Clock()
    pace = Throttle(100.0, clock=clock, sleep=clock.sleep)
    for _ in range(3):
        pace.batch(10)
        clock.now += 0.02
    clock.now += 60.0
    began = clock.now
    pace.batch(10)
    assert clock.now - began == pytest.approx(0.08)


def test_a_machine_that_is_slower_than_the_device_is_not_slowed_down() -> None:
    clock = Clock()
    pace = Throttle(1000.0, clock=clock, sleep=clock.sleep)
    pace.batch(10)
    clock.now += 0.5
    began = clock.now
    pace.batch(10)
    assert clock.now == began


def test_a_transfer_takes_its_size_over_the_bandwidth() -> None:
    clock = Clock()
    pace = Throttle(bytes_per_s=1000.0, clock=clock, sleep=clock.sleep)
    pace.transferred(500, began=99.9)  # 0.1 s of it were real
    assert clock.now == pytest.approx(100.4)
    pace.transferred(500, began=0.0)
    assert clock.now == pytest.approx(100.4)


def test_no_pace_is_no_pause() -> None:
    clock = Clock()
    pace = Throttle(clock=clock, sleep=clock.sleep)
    pace.batch(10)
    pace.transferred(10**9, began=100.0)
    assert clock.now == 100.0


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan])
def test_a_pace_is_a_number_above_0(rate: float) -> None:
    with pytest.raises(ConfigError, match="samples/s: give a number above 0"):
        Throttle(rate)
    with pytest.raises(ConfigError, match="bytes/s: give a number above 0"):
        Throttle(bytes_per_s=rate)
