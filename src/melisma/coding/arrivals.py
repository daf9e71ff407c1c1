"""The earliest moment at which the answers that have come are enough."""

from collections.abc import Sequence

import numpy as np

from melisma.coding.code import Code
from melisma.maths.arrays import Floats
from melisma.maths.search import last_true


class Arrivals:
    """Answers to one code, as they come in.

    >>> from melisma.coding.blocks import fractional
    >>> arrivals = Arrivals(fractional(workers=4, stragglers=1))
    >>> arrivals.add(0), arrivals.add(3)  # the two halves
    (False, True)
    >>> arrivals.weights.tolist()
    [1.0, 0.0, 0.0, 1.0]
    """

    def __init__(self, code: Code) -> None:
        self.code = code
        self.alive = np.zeros(code.workers, dtype=np.bool_)
        self.decodable = False

    def add(self, worker: int) -> bool:
        """Take in an answer; return whether those that have come are enough."""
        self.alive |= self.code.mask([worker])
        self.decodable = self.decodable or self.code.decodable(self.alive)
        return self.decodable

    @property
    def weights(self) -> Floats:
        """Weights of the answers that have come. Raises NotDecodable."""
        return self.code.decode(self.alive)


def enough(code: Code, order: Sequence[int]) -> int:
    """How many of the answers, in the order in which they come, are enough.

    One more than there are where not even all of them are. More answers never hurt, so
    that the number is searched by bisection.
    """
    too_few = last_true(
        lambda count: not code.decodable(list(order[:count])),
        0,
        len(order),
        guess=len(order) - code.stragglers,
    )
    return too_few + 1
