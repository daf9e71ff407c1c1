"""Problems that the tests of schemes share."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from melisma.system import CSA_WORKLOAD, Channel, DelayLaw, Problem


def twins(deadline_s: float = 1.0) -> Problem:
    """Two learners alike, 100 samples: 1 ms to receive one, 1 ms to train on it."""
    same = np.full(2, 1e-3)
    return Problem(
        step_s=same,
        sample_s=same,
        fixed_s=np.zeros(2),
        samples=100,
        deadline_s=deadline_s,
    )


def heterogeneous(seed: int, learners: int = 20, *, most: int | None = None) -> Problem:
    """Clocks of 0.7 to 2.4 GHz, 5 to 50 m away, 3,000 samples a head in 15 s."""
    rng = np.random.default_rng(seed)
    law = DelayLaw.from_channel(
        CSA_WORKLOAD,
        clock_hz=rng.uniform(0.7e9, 2.4e9, learners),
        rate_bps=Channel().rate_bps(rng.uniform(5.0, 50.0, learners)),
    )
    return Problem.of(law, samples=3000 * learners, deadline_s=15.0, most=most)


def small(seed: int, count: int) -> Iterator[Problem]:
    """Up to 4 learners and 14 samples; times in 128ths of a second, exact in binary.

    A third are free, a third have an upper bound each, a third a lower one too.
    """
    rng = np.random.default_rng(seed)
    for kind in rng.integers(3, size=count):
        K = int(rng.integers(1, 5))
        D = int(rng.integers(K, 15))
        most = np.maximum(rng.integers(1, D + 1, K), D // K)
        least = np.minimum(rng.integers(1, 4, K), most)
        yield Problem(
            step_s=rng.integers(1, 2 ** rng.integers(1, 8), K) / 64,
            sample_s=rng.integers(0, 2 ** rng.integers(1, 5), K) / 64,
            fixed_s=(2 * rng.integers(0, 64, K) + 1) / 128,  # so never T itself
            samples=D,
            deadline_s=float(rng.integers(64, 2 ** rng.integers(7, 11)) / 64),
            least=least if kind == 2 else 1,
            most=most if kind else None,
        )


def capped(seed: int, count: int) -> Iterator[Problem]:
    """The same with 1 to 6 steps at most, which binds for many of them."""
    rng = np.random.default_rng([seed, 1])
    for problem in small(seed, count):
        yield replace(problem, steps_at_most=int(rng.integers(1, 7)))
