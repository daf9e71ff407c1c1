"""TiFL: learners of one tier of speed, so that nobody waits for a slower tier.

Learners are sorted by how long the same work takes them, and cut into five tiers of
equal size. Each cycle one tier is drawn, and so many learners of it. A tier that has
not been seen comes first; then tiers whose loss is higher are likelier, in proportion
to their rank, so that no tier's data is neglected.

Paper: Z. Chai et al., "TiFL: A Tier-based Federated Learning System",
arXiv:2001.09249.

Differences from the paper:
1. Tiers are ranked by their learners' training loss, since no learner tests the model;
   the paper has the test accuracy of each tier.
2. No credits, which limit how often a tier is drawn.
3. Tiers follow from what is known of speeds in each cycle, not once.
"""

import numpy as np

from melisma.maths.arrays import Bools
from melisma.schemes.participation.candidates import Candidates

TIERS = 5


def tiers(candidates: Candidates) -> Bools:
    """Choose so many of one tier; all of it if it has fewer."""
    order = np.argsort(candidates.seconds, kind="stable")
    parts = [part for part in np.array_split(order, TIERS) if part.size]
    losses = np.array([_loss(candidates, part.tolist()) for part in parts])
    unseen = np.flatnonzero(np.isnan(losses))
    if unseen.size:
        tier = int(candidates.rng.choice(unseen))
    else:
        ranks = losses.argsort(kind="stable").argsort(kind="stable") + 1.0
        tier = int(candidates.rng.choice(len(parts), p=ranks / ranks.sum()))
    number = min(candidates.wanted, len(parts[tier]))
    return candidates.some(
        candidates.rng.choice(parts[tier], number, replace=False).tolist()
    )


def _loss(candidates: Candidates, places: list[int]) -> float:
    """Return the mean loss of a tier; NaN if nobody of it took part yet."""
    names = [candidates.names[k] for k in places]
    seen = [candidates.seen[n].loss for n in names if n in candidates.seen]
    return float(np.mean(seen)) if seen else float("nan")
