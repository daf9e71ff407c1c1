"""A model's parameters as named tensors: copied out and in, saved, loaded."""

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from melisma.errors import DataError
from melisma.learning.settings import Buffers

#: Anything that turns a batch of samples into logits.
Model = nn.Module
#: Tensors by name. A *stack* is the same with one row per learner in front.
Parameters = dict[str, Tensor]

#: The note with the SHA-256 of a file's parameters and of its other notes.
DIGEST = "sha256"
#: Attribute of a model that says what happens to its buffers; copies have it too.
_BUFFERS = "_melisma_buffers"


def with_buffers(model: Model, buffers: Buffers) -> Model:
    """Return the model, which knows from now on what happens to its buffers."""
    setattr(model, _BUFFERS, buffers)
    return model


def buffers_are_local(model: nn.Module) -> bool:
    """Return whether each learner keeps the model's buffers for itself."""
    return getattr(model, _BUFFERS, Buffers.AVERAGE) == Buffers.LOCAL


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that training changes; tied ones once, by the first name.

    Frozen ones stay as they are.
    """
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


#: Between the name of who has them and that of a parameter, in a checkpoint.
_BETWEEN = "\x1f"


def packed(prefix: str, owned: Mapping[str, Parameters]) -> Parameters:
    """Return what several have, under names that tell whose it is, for a checkpoint."""
    return {
        prefix + name + _BETWEEN + n: tensor
        for name, own in owned.items()
        for n, tensor in own.items()
    }


def unpacked(prefix: str, saved: Parameters) -> dict[str, Parameters]:
    """Return what several have, by their names, of a checkpoint that may have more."""
    owned: dict[str, Parameters] = {}
    for key, tensor in saved.items():
        if key.startswith(prefix):
            name, _, n = key.removeprefix(prefix).partition(_BETWEEN)
            owned.setdefault(name, {})[n] = tensor
    return owned


def norm_of(parameters: Parameters) -> float:
    """Return their length, of all together; in double precision."""
    squares = [float(t.double().square().sum()) for t in parameters.values()]
    return math.sqrt(sum(squares))


def zeros_like(parameters: Parameters) -> Parameters:
    """Return as many zeros, of the same names and shapes."""
    return {name: torch.zeros_like(value) for name, value in parameters.items()}


def parameters_of(model: nn.Module) -> Parameters:
    """Return copies of what travels: what is trained, and buffers to be averaged."""
    return {name: value.detach().clone() for name, value in _travelling(model).items()}


def sendable(model: nn.Module) -> Parameters:
    """Return `parameters_of` in the memory of the CPU."""
    return {n: v.detach().to("cpu", copy=True) for n, v in _travelling(model).items()}


def _travelling(model: nn.Module) -> dict[str, Tensor]:
    return {**trained(model), **_buffers(model, travel=True)}


def staying_of(model: nn.Module) -> Parameters:
    """Return copies of the buffers that do not travel: counters, or all if local."""
    return {n: v.detach().clone() for n, v in _buffers(model, travel=False).items()}


def _buffers(model: nn.Module, *, travel: bool) -> dict[str, Tensor]:
    state = model.state_dict()  # without buffers that are not to be kept
    averaged = not buffers_are_local(model)
    return {
        name: value
        for name, value in model.named_buffers()
        if name in state and (averaged and value.is_floating_point()) == travel
    }


def frozen_of(model: nn.Module) -> Parameters:
    """Return the parameters that training leaves as they are, uncopied."""
    return {
        name: value.detach()
        for name, value in model.named_parameters()
        if not value.requires_grad
    }


def state_of(model: nn.Module) -> Parameters:
    """Return copies of all of a model, as ``load_state_dict`` takes it."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def check_of(model: nn.Module, parameters: object) -> None:
    """Raise DataError unless these are tensors of the model's names and shapes."""
    expected = {name: value.shape for name, value in _travelling(model).items()}
    found = parameters if isinstance(parameters, dict) else {}
    shapes = {
        name: value.shape
        for name, value in found.items()
        if isinstance(value, Tensor) and value.is_floating_point()
    }
    if shapes != expected or len(found) != len(expected):
        raise DataError("the parameters that came are not those of this task's model")


def misfit(parameters: Parameters, model: nn.Module) -> str | None:
    """Return why parameters are of another model; None if they fit.

    Further tensors beside the model's own are no misfit.
    """
    for name, value in _travelling(model).items():
        if name not in parameters:
            return f"there is no {name!r}"
        if parameters[name].shape != value.shape:
            shape, ours = tuple(parameters[name].shape), tuple(value.shape)
            return f"{name!r} has the shape {shape} in place of {ours}"
    return None


def put(parameters: Parameters, model: nn.Module) -> None:
    """Copy ``parameters`` into ``model``."""
    state = model.state_dict()
    with torch.no_grad():
        for name, value in parameters.items():
            state[name].copy_(value)


def all_finite(parameters: Parameters) -> bool:
    """Return whether there is no NaN and no infinity in any of them."""
    return all(
        # A sum is finite only if all its terms are; it may overflow where they are.
        math.isfinite(tensor.sum()) or bool(tensor.isfinite().all())
        for tensor in parameters.values()
    )


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


def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Parameters:
    """Return arrays as tensors, for a checkpoint."""
    return {name: torch.from_numpy(values) for name, values in arrays.items()}


def to_arrays(parameters: Parameters) -> dict[str, NDArray[Any]]:
    """Return tensors as arrays."""
    return {name: tensor.cpu().numpy() for name, tensor in parameters.items()}


def save(
    parameters: Parameters, path: Path, notes: Mapping[str, str] | None = None
) -> None:
    """Write a safetensors file atomically; DataError if it cannot be written."""
    unfinished = write_unfinished(parameters, path, notes)
    try:
        unfinished.replace(path)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}") from error


def write_unfinished(
    parameters: Parameters, path: Path, notes: Mapping[str, str] | None = None
) -> Path:
    """Write what is to become ``path`` beside it, and flush it to disk.

    Returns the path of the unfinished file, which is to be renamed. DataError if it
    cannot be written; then nothing of it is left.
    """
    unfinished = path.with_suffix(".part")
    noted = dict(notes or {})
    noted[DIGEST] = digest(parameters, noted)
    try:
        save_file(parameters, unfinished, noted)
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
    except (OSError, SafetensorError) as error:
        with suppress(OSError):
            unfinished.unlink()
        raise DataError(f"{path} cannot be written: {error}") from error
    return unfinished


def digest(parameters: Parameters, notes: Mapping[str, str] | None = None) -> str:
    """Return the SHA-256 of names, types, shapes, values and notes."""
    names = sorted(parameters)
    shapes = [(n, str(parameters[n].dtype), [*parameters[n].shape]) for n in names]
    summed = hashlib.sha256(
        json.dumps([shapes, sorted((notes or {}).items())]).encode()
    )
    for name in names:
        flat = parameters[name].detach().cpu().contiguous().reshape(-1)
        summed.update(flat.view(torch.uint8).numpy().data)
    return summed.hexdigest()


def load(path: Path) -> Parameters:
    """Read a safetensors file; DataError if it is not there or damaged."""
    return load_noted(path)[0]


def load_noted(path: Path) -> tuple[Parameters, dict[str, str]]:
    """Read a safetensors file and the notes in it; DataError if it is damaged.

    Files of other programs, and of versions before 0.3, have no digest to check.
    """
    try:
        with safe_open(path, "pt") as file:
            notes: dict[str, str] = file.metadata() or {}
            parameters = {name: file.get_tensor(name) for name in list(file.keys())}
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path} is not a readable model: {error}") from error
    others = {name: note for name, note in notes.items() if name != DIGEST}
    if DIGEST in notes and digest(parameters, others) != notes[DIGEST]:
        raise DataError(f"{path} is damaged: it does not have its SHA-256")
    return parameters, notes
