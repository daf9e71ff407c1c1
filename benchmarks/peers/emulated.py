"""One setting for every framework: data, model and devices in a folder, and an order.

Clients of Flower and of NVFlare import this module in environments of their own, so it
needs torch and numpy alone. The benchmark writes ``setting.json`` and ``arrays.npz``;
clients append a line to ``progress.jsonl`` as they begin an order, servers when they
have evaluated a model. Clients sleep, after each batch and at each transfer, as much as
the device that they emulate would take longer.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

#: In the environment of every process of a peer: where the setting is.
FOLDER = "MELISMA_BENCHMARK_SETTING"
SETTING, ARRAYS, PROGRESS = "setting.json", "arrays.npz", "progress.jsonl"
BEGAN, EVALUATED = "began", "evaluated"
TEST, MODEL = "test", "model"


def folder() -> Path:
    """Return the folder of the setting that this process belongs to."""
    return Path(os.environ[FOLDER])


@cache
def setting() -> dict[str, Any]:
    """Return all numbers of the setting."""
    read: dict[str, Any] = json.loads((folder() / SETTING).read_text())
    return read


@cache
def samples(owner: str) -> tuple[Tensor, Tensor]:
    """Return the samples and labels of a learner, by its number, or those to test."""
    with np.load(folder() / ARRAYS) as arrays:
        x, y = arrays[f"{owner}.x"], arrays[f"{owner}.y"]
    return torch.from_numpy(x), torch.from_numpy(y)


class Perceptron(nn.Sequential):
    """TwoNN, 784-50-20-10, with the parameters that all begin with.

    A class without arguments, since NVFlare makes its model anew from the class's name.
    """

    def __init__(self) -> None:
        super().__init__(
            nn.Flatten(),
            *(nn.Linear(784, 50), nn.ReLU()),
            *(nn.Linear(50, 20), nn.ReLU()),
            nn.Linear(20, 10),
        )
        with np.load(folder() / ARRAYS) as arrays:
            state = {key: arrays[f"{MODEL}.{key}"] for key in self.state_dict()}
        self.load_state_dict({k: torch.from_numpy(v) for k, v in state.items()})


def train(model: nn.Module, learner: int) -> int:
    """Train ``model`` as one order says, as slowly as the learner; return its samples.

    Half of the transfers' time is slept before the training, half after it.
    """
    torch.set_num_threads(1)
    _append({"event": BEGAN, "learner": learner})
    numbers = setting()
    sample_s = float(numbers["sample_s"][learner])
    x, y = samples(str(learner))
    step = torch.optim.SGD(model.parameters(), lr=numbers["rate"])
    time.sleep(numbers["transfer_s"] / 2)
    for rows in _batches(len(y), numbers["batch"], numbers["epochs"]):
        began = time.monotonic()
        step.zero_grad()
        cross_entropy(model(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
        step.step()
        took_s = time.monotonic() - began
        time.sleep(max(0.0, len(rows) * sample_s - took_s))
    time.sleep(numbers["transfer_s"] / 2)
    return len(y)


def _batches(samples: int, batch: int, epochs: int) -> Iterator[Tensor]:
    for _ in range(epochs):
        yield from torch.split(torch.randperm(samples), batch)


def evaluate(model: nn.Module) -> bool:
    """Note how accurate a model is, and return whether it is accurate enough."""
    x, y = samples(TEST)
    model.eval()
    with torch.no_grad():
        accuracy = float((model(x).argmax(1) == y).float().mean())
    _append({"event": EVALUATED, "accuracy": accuracy})
    return accuracy >= float(setting()["target"])


def _append(event: dict[str, Any]) -> None:
    line = json.dumps({"time": time.time(), **event})
    with (folder() / PROGRESS).open("a") as file:
        file.write(line + "\n")


def loaded(state: Any, tensor: Callable[[Any], Tensor] = torch.as_tensor) -> nn.Module:
    """Return a model with the parameters of ``state``, arrays or lists by name."""
    model = Perceptron()
    model.load_state_dict(
        {
            key: tensor(state[key]).to(torch.float32).reshape(value.shape)
            for key, value in model.state_dict().items()
        }
    )
    return model
