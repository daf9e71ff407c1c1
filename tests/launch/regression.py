"""A task that is no image: a straight line through three numbers, by squared error."""

import numpy as np
from torch import nn

import melisma as mel

RNG = np.random.default_rng(5)
X = RNG.normal(size=(240, 3)).astype("f4")
Y = (X @ [1.0, -2.0, 0.5] + 0.05 * RNG.normal(size=240)).astype("f4")


def line() -> mel.Task:
    """Three features and a number to predict, with a layer that stays as it is."""
    return mel.Task(
        model=lambda: nn.Sequential(
            nn.Linear(3, 3).requires_grad_(False), nn.Linear(3, 1)
        ),
        train={"x": X[:200], "y": Y[:200]},
        test={"x": X[200:], "y": Y[200:]},
        loss="mse",
        metrics=["r2", "mae"],
        rate=0.1,
        batch=8,
    )
