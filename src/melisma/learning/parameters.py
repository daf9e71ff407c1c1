"""A model's parameters, apart from the model: taken, put back, saved, loaded."""

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from melisma.errors import DataError

#: Anything that turns a batch of samples into logits.
Model = nn.Module
#: Tensors by name. A *stack* is the same with one row per learner in front.
Parameters = dict[str, Tensor]


def parameters_of(model: nn.Module) -> Parameters:
    """Copy what training changes: the parameters and real-valued buffers."""
    state = model.state_dict()
    return {
        name: value.detach().clone()
        for name, value in state.items()
        if value.is_floating_point()
    }


def put(parameters: Parameters, model: nn.Module) -> None:
    """Copy ``parameters`` into ``model``."""
    state = model.state_dict()
    with torch.no_grad():
        for name, value in parameters.items():
            state[name].copy_(value)


def save(parameters: Parameters, path: Path) -> None:
    """Write a safetensors file, whole or not at all."""
    unfinished = path.with_suffix(".part")
    save_file(parameters, unfinished)
    unfinished.replace(path)


def load(path: Path) -> Parameters:
    """Read a safetensors file; DataError if it is not there or damaged."""
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path} is not a readable model: {error}") from error
