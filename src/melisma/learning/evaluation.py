"""Accuracy and loss of a model on a test set."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from melisma.learning.kernels import fast_kernels


def evaluate(
    model: nn.Module, x: Tensor, y: Tensor, batch: int = 1000
) -> tuple[float, float]:
    """Return accuracy (share of right answers) and mean cross-entropy in nats."""
    model.eval()
    right = loss = 0.0
    with torch.no_grad(), fast_kernels(model):
        for start in range(0, len(y), batch):
            logits, target = model(x[start : start + batch]), y[start : start + batch]
            right += float((logits.argmax(dim=1) == target).sum())
            loss += float(cross_entropy(logits, target, reduction="sum"))
    return right / len(y), loss / len(y)
