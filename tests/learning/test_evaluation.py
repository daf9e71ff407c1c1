import pytest
import torch
from torch import nn

from melisma.learning.evaluation import evaluate
from melisma.learning.losses import LOSSES
from melisma.learning.metrics import METRICS
from melisma.learning.samples import pairs

CROSS_ENTROPY, ACCURACY = LOSSES["cross-entropy"], METRICS["accuracy"]


def test_a_known_model_gets_its_known_marks() -> None:
    # Logits (x, 0): right for 1 of 3; loss log(1 + e^-2), log(1 + e^2), log 2.
    model = nn.Linear(1, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0], [0.0]]))
        model.bias.zero_()
    x, y = torch.tensor([[2.0], [2.0], [0.0]]), torch.tensor([0, 1, 1])
    scores = evaluate(model, pairs(x, y), CROSS_ENTROPY, [ACCURACY], batch=2)
    assert scores.metrics == {"accuracy": pytest.approx(1 / 3)}
    assert scores.loss == pytest.approx((0.126928 + 2.126928 + 0.693147) / 3, rel=1e-5)
