"""Orders that learners go on with after the deadline (``late = "carry"``)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from melisma.fleets.protocols import Order
from melisma.learning.parameters import Parameters
from melisma.maths.arrays import Floats
from melisma.system.law import DelayLaw

#: Share of what its order was expected to take that a learner at work needs at least.
LEAST = 0.1
#: Why a learner has not begun with an order.
NOT_BEGUN = "at work on an earlier order until the deadline"
#: Why an update that was carried does not count.
TOO_OLD = "not there in time, though it was waited for"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnderWay:
    """An order that its learner has not finished."""

    cycle: int  #: of the order
    began_s: float  #: on the crew's clock
    expected_s: float  #: that it takes, as far as known

    def rest_s(self, now_s: float) -> float:
        """Return how long it will still take: who is overdue, as long again."""
        over_s = now_s - self.began_s - self.expected_s
        return abs(over_s) + LEAST * self.expected_s


def rests_s(
    names: Sequence[str], under_way: Mapping[str, UnderWay], now_s: float
) -> Floats:
    """Return how long each learner will be at work; 0 for who is not."""
    rests = [under_way[n].rest_s(now_s) if n in under_way else 0.0 for n in names]
    return np.array(rests)


def expected_s(law: DelayLaw, orders: Sequence[Order], rest_s: Floats) -> Floats:
    """Return when learners are expected to be done with orders, from now on."""
    samples, steps = (np.zeros(len(rest_s), dtype=np.int64) for _ in range(2))
    for order in orders:
        samples[order.learner], steps[order.learner] = order.samples, order.steps
    return rest_s + law.seconds(samples, steps)


def rebased(stack: Parameters, start: Parameters, onto: Parameters) -> Parameters:
    """Return updates as if they had been trained from another model: Δ onto it."""
    return {n: onto[n] + (rows - start[n]) for n, rows in stack.items()}
