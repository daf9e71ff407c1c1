"""No labels: digits of 784 pixels go through 16 numbers and come out again.

cd examples/own
melisma simulate autoencoder.toml
"""

from typing import Any

from torch import nn

import melisma as mel


def digits(part: str) -> dict[str, Any]:
    """Return images alone; without ``y``, outputs are compared with ``x`` itself."""
    from melisma.learning import data

    return {"x": getattr(data.load("mnist-5k"), part)[:]["x"]}


def squeezed() -> mel.Task:
    """Give back what went in."""
    return mel.Task(
        model=lambda: nn.Sequential(
            *(nn.Flatten(), nn.Linear(784, 64), nn.GELU(), nn.Linear(64, 16)),
            *(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 784), nn.Sigmoid()),
        ),
        train=lambda: digits("train"),
        test=lambda: digits("test"),
        loss="mse",
        metrics=["rmse"],
        optimiser="Adam",
        rate=0.004,
    )
