"""Everybody, or so many drawn evenly.

Papers: B. McMahan et al., arXiv:1602.05629 (a random share C); K. Bonawitz et al.,
"Towards Federated Learning at Scale", arXiv:1902.01046 (1.3 times as many as needed,
of which the first count).
"""

import numpy as np

from melisma.maths.arrays import Bools
from melisma.schemes.participation.candidates import Candidates


def everybody(candidates: Candidates) -> Bools:
    """Choose all."""
    return np.ones(len(candidates.names), dtype=bool)


def drawn(candidates: Candidates) -> Bools:
    """Choose so many, each with the same chance."""
    number = min(candidates.wanted, len(candidates.names))
    return candidates.some(
        candidates.rng.choice(len(candidates.names), number, replace=False).tolist()
    )
