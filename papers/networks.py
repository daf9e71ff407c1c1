"""TwoNN as the thesis's author trained it: softmax first, cross-entropy on top.

PyTorch's cross-entropy takes the softmax again, so that the loss of ten classes lies
between 1.46 and 2.46. Ours in ``melisma.learning.models`` ends in logits; this one is
for losses that are to be held against the printed ones. A module of its own: learners
import it.
"""

from torch import nn

from melisma.learning import models


def two_nn() -> nn.Module:
    """TwoNN, ending in softmax."""
    return nn.Sequential(*models.perceptron(784, 50, 20, 10), nn.Softmax(dim=1))
