"""Lengths of uneven parts, drawn at random.

    normal      |N(10, 3)|, as FedCompass cuts the rows of a class
    power       log-normal with σ = 2, as FedProx divides MNIST: most have little
    dirichlet   Γ(α), so that shares of the whole are drawn from Dir(α)

Lengths are given as logarithms: those of a Dirichlet with a small α are so far apart
that all but one would be nought in floats, and sometimes that one as well.

Papers: Z. Li et al., "FedCompass", arXiv:2309.14675; T. Li et al., "Federated
Optimization in Heterogeneous Networks" (FedProx), arXiv:1812.06127.
"""

from collections.abc import Callable
from enum import StrEnum

import numpy as np

from melisma.errors import ConfigError
from melisma.maths.arrays import Floats, Ints

#: Draws the logarithms of so many lengths.
Lengths = Callable[[int, np.random.Generator], Floats]


class Sizes(StrEnum):
    """How many rows learners have in federated mode."""

    ANY = "any"  #: as the split gives
    EQUAL = "equal"
    NORMAL = "normal"
    POWER = "power"
    DIRICHLET = "dirichlet"


def lengths_of(sizes: Sizes, alpha: float = 1.0) -> Lengths | None:
    """Return how lengths are drawn; None if they are not, or ConfigError by ``alpha``.

    ``alpha`` is of ``Sizes.DIRICHLET``.
    """
    match sizes:
        case Sizes.NORMAL:
            return lambda n, rng: np.log(np.abs(rng.normal(10.0, 3.0, n)))
        case Sizes.POWER:
            return lambda n, rng: rng.normal(0.0, 2.0, n)
        case Sizes.DIRICHLET:
            check_alpha("sizes_alpha", alpha)
            return lambda n, rng: log_gamma(np.full(n, alpha), rng)
        case _:
            return None


def log_gamma(alpha: Floats, rng: np.random.Generator) -> Floats:
    """Draw log Γ(α), exact however small α is: Γ(α) = Γ(α + 1)·U^(1/α)."""
    return np.asarray(
        np.log(rng.standard_gamma(alpha + 1))
        - rng.standard_exponential(alpha.shape) / alpha
    )


def cut(lengths: Floats, totals: Ints) -> Ints:
    """Cut totals in whole parts of these (log) lengths, along the first axis.

    >>> cut(np.log([1.0, 1.0, 2.0]), np.array(8)).tolist()
    [2, 2, 4]
    """
    from scipy.special import softmax

    ends = np.rint(softmax(lengths, axis=0).cumsum(axis=0) * totals).astype(np.int64)
    ends[-1] = totals
    return np.diff(ends, axis=0, prepend=0)


def check_alpha(key: str, alpha: float) -> None:
    """Raise ConfigError unless a Dirichlet distribution can have this parameter."""
    # Beyond these bounds logarithms of draws, or sums of draws, may not be finite.
    if not 1e-100 <= alpha <= 1e100:
        raise ConfigError(f"{key} is {alpha}: give a number from 1e-100 to 1e100")
