"""Oort: learners of most use, by what their loss tells and how long they take.

    U(k) = nₖ·lossₖ · (T/tₖ)^α if tₖ > T      much to learn from, in time
           + √(0.1·ln R/Lₖ)                    what is known grows old

nₖ samples, tₖ seconds and the loss are of the learner's last cycle Lₖ, R is this one.
A share ε of those asked has never taken part, and is drawn by speed. The others are
drawn, in proportion to U, of all that are nearly as useful as the last that would do.

Paper: F. Lai et al., "Oort: Efficient Federated Learning via Guided Participant
Selection", arXiv:2010.06081.

Differences from the paper:
1. The mean loss in place of the root of its mean square, which learners do not report.
2. T is the deadline, in place of a pacer that moves it.
3. Utilities are clipped at their 95th percentile and divided by the greatest, so that
   the bonus for age is of one scale for all losses.
"""

import math

import numpy as np

from melisma.maths.arrays import Bools, Floats
from melisma.schemes.participation.candidates import Candidates

#: Exponent of lateness.
ALPHA = 2.0
#: Share of those asked who are new: at first, its factor from cycle to cycle, at least.
EXPLORE, FADES, LEAST = 0.9, 0.98, 0.2
#: What is nearly as useful as the last that would do.
CUT_OFF = 0.95
#: Percentile at which utilities are clipped.
CLIPPED = 95.0


def oort(candidates: Candidates) -> Bools:
    """Choose by use; new ones by speed."""
    number = min(candidates.wanted, len(candidates.names))
    known = [k for k, n in enumerate(candidates.names) if n in candidates.seen]
    new = [k for k, n in enumerate(candidates.names) if n not in candidates.seen]
    share = max(LEAST, EXPLORE * FADES ** (candidates.cycle - 1))
    explore = min(len(new), max(round(share * number), number - len(known)))
    useful = _useful(candidates, known, number - explore)
    if not explore:
        return candidates.some(useful)
    speed = 1.0 / candidates.seconds[new]
    drawn = candidates.rng.choice(
        new, explore, replace=False, p=speed / speed.sum()
    ).tolist()
    return candidates.some(useful + drawn)


def _useful(candidates: Candidates, known: list[int], number: int) -> list[int]:
    """Draw so many of the most useful."""
    if not number:
        return []
    use = utilities(candidates, known)
    bar = CUT_OFF * np.sort(use)[::-1][number - 1]
    good = np.flatnonzero(use >= bar)
    # Who has no use at all may still be needed.
    chance = np.maximum(use[good], 1e-12)
    places = candidates.rng.choice(good, number, replace=False, p=chance / chance.sum())
    return [known[i] for i in places]


def utilities(candidates: Candidates, known: list[int]) -> Floats:
    """Return the use of learners that took part before."""
    seen = [candidates.seen[candidates.names[k]] for k in known]
    use = np.array([one.samples * one.loss for one in seen], dtype=np.float64)
    late = np.array([one.seconds / candidates.deadline_s for one in seen])
    use = np.where(late > 1, use / np.maximum(late, 1.0) ** ALPHA, use)
    use = np.minimum(use, np.percentile(use, CLIPPED))
    use /= max(float(use.max()), 1e-12)
    age = np.array([math.log(max(candidates.cycle, 1)) / one.last for one in seen])
    utility: Floats = use + np.sqrt(0.1 * age)
    return utility
