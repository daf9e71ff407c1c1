"""A model's parameters as named tensors: copied out and in, saved, loaded."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from melisma.errors import DataError

#: Anything that turns a batch of samples into logits.
Model = nn.Module
#: Tensors by name. A *stack* is the same with one row per learner in front.
Parameters = dict[str, Tensor]


def parameters_of(model: nn.Module) -> Parameters:
    """Return copies of the parameters and the real-valued buffers."""
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


def all_finite(parameters: Parameters) -> bool:
    """Return whether there is no NaN and no infinity in any of them."""
    return all(bool(tensor.isfinite().all()) for tensor in parameters.values())


def largest(parameters: Parameters) -> float:
    """Return the largest absolute value; NaN if there is one."""
    return max(
        (float(t.abs().max()) for t in parameters.values() if t.numel()), default=0.0
    )


def stacked(updates: Sequence[Parameters]) -> Parameters:
    """Return several learners' parameters as one stack."""
    return {
        name: torch.stack([update[name] for update in updates]) for name in updates[0]
    }


def save(
    parameters: Parameters, path: Path, notes: Mapping[str, str] | None = None
) -> None:
    """Write a safetensors file atomically, and flush it to disk."""
    unfinished = path.with_suffix(".part")
    save_file(parameters, unfinished, dict(notes) if notes else None)
    with unfinished.open("rb") as file:
        os.fsync(file.fileno())
    unfinished.replace(path)


def load(path: Path) -> Parameters:
    """Read a safetensors file; DataError if it is not there or damaged."""
    return load_noted(path)[0]


def load_noted(path: Path) -> tuple[Parameters, dict[str, str]]:
    """Read a safetensors file and the notes in it; DataError if it is damaged."""
    try:
        with safe_open(path, "pt") as file:
            notes = file.metadata() or {}
            names = list(file.keys())
            return {name: file.get_tensor(name) for name in names}, notes
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path} is not a readable model: {error}") from error
