"""Search in whole numbers."""

from collections.abc import Callable


def last_true(claim: Callable[[int], bool], low: int, high: int, *, guess: int) -> int:
    """Last n from ``low`` to ``high`` with claim(n); low − 1 where it never holds.

    The claim must hold up to some n and not after it. Probes are few near ``guess``:
    the search strides away from it, doubling, until it has passed the answer, then
    bisects.

    >>> last_true(lambda n: n * n <= 50, 0, 1000, guess=6)
    7
    """
    good, bad, stride = low - 1, high + 1, 1
    probe = min(max(guess, low), high)
    while bad - good > 1:
        if claim(probe):
            good, probe = probe, probe + stride
        else:
            bad, probe = probe, probe - stride
        stride *= 2
        if not good < probe < bad:
            probe = (good + bad) // 2
    return good
