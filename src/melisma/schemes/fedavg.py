"""Fixed work: every learner trains on all that it has, for a given number of epochs.

    dₖ = nₖ,  or D / K where samples are sent;   τₖ = ``steps``

or, where the job gives ``batches``, so many of what it has, however much that is.

Nothing is decided by how fast a learner is or when the deadline is: what happens to who
is late is the job's ``late``. With "wait" this is federated averaging as its paper has
it; with "drop", averaging that drops stragglers; with "halt", FedProx's partial work.

Paper: B. McMahan et al., "Communication-Efficient Learning of Deep Networks from
Decentralized Data", arXiv:1602.05629.
"""

import numpy as np

from melisma.maths.apportion import level
from melisma.maths.arrays import Ints


def fedavg(most: Ints, samples: int) -> Ints:
    """As much for everyone as there is, or the same of what is sent.

    ``most`` is what each learner has or may take, ``samples`` of all together are to be
    trained on.
    """
    return level(np.zeros_like(most), most, min(samples, int(most.sum())))
