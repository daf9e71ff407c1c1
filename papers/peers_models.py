"""Networks of the peers' printed settings.

A module of its own: learners import it.
"""

from torch import nn

from melisma.learning import models


def strided_lenet() -> nn.Module:
    """LeNet of NVFlare's edge example: strides in place of pools."""
    return nn.Sequential(
        nn.Conv2d(3, 6, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(6, 16, 5, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        *list(models.perceptron(400, 120, 84, 10))[1:],
    )


def compass_cnn() -> nn.Module:
    """FedCompass's network for MNIST."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1024, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    )


def one_hidden() -> nn.Module:
    """Ringleader's perceptron."""
    return models.perceptron(784, 128, 10)


def logistic() -> nn.Module:
    """Logistic regression, as in FedProx's experiments."""
    return models.perceptron(784, 10)
