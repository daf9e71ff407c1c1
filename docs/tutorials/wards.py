"""How ill 442 patients are a year later, from ten numbers of each: a task."""

from typing import Any

from sklearn.datasets import load_diabetes
from torch import nn

import melisma as mel


def patients(rows: slice) -> dict[str, Any]:
    """Return rows of scikit-learn's diabetes data as named arrays."""
    x, y = load_diabetes(return_X_y=True)
    x, y = x / x.std(), (y - y.mean()) / y.std()
    return {"x": x[rows].astype("f4"), "y": y[rows].astype("f4")}


def illness() -> mel.Task:
    """Predict the progression of diabetes."""
    return mel.Task(
        model=lambda: nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 1)),
        train=lambda: patients(slice(0, 342)),
        test=lambda: patients(slice(342, None)),
        loss="mse",
        metrics=["r2", "mae"],
        optimiser="AdamW",
        arguments={"weight_decay": 0.1},
        rate=0.002,
    )
