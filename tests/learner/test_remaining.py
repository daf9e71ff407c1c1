"""How long a benchmark takes yet, as learners tell it."""

import math
from queue import Queue

from melisma.learner.remaining import Remaining


def benchmark(
    clock: list[float], times: int = 1, within_s: float = math.inf
) -> Remaining:
    """A benchmark of 3 rounds of 100 samples, after 5 s and half a round."""
    remaining = Remaining(lambda: clock[0], lambda left_s: None)
    remaining.times = times
    assert remaining.left_s() is None
    remaining.train(100, 3, within_s)
    remaining.batch(50)
    clock[0] += 5.0
    return remaining


def test_it_is_told_by_what_was_done() -> None:
    assert benchmark([0.0]).left_s() == 25.0


def test_rounds_that_would_end_too_late_do_not_count() -> None:
    assert benchmark([0.0], within_s=21.0).left_s() == 15.0
    assert benchmark([0.0], within_s=1.0).left_s() == 5.0


def test_every_state_counts() -> None:
    remaining = benchmark([0.0], times=2)
    assert remaining.left_s() == 25.0 + 30.0
    remaining.done()
    assert remaining.left_s() == 25.0


def test_it_is_told_while_it_goes_on() -> None:
    told: Queue[float] = Queue()
    with Remaining(lambda: 1.0, told.put) as remaining:
        remaining.train(10, 1, math.inf)
        remaining.batch(5)
        assert told.get(timeout=60.0) == 0.0
