"""Losses by name, and what makes samples fit for a model.

A loss takes a model and a batch, and returns one value a sample. Those here compare
``model(x)`` with ``y``, or with ``x`` itself where there is no ``y`` (autoencoders):

    cross-entropy   logits along the second axis, and whole numbers of classes
    mse, mae, huber numbers of the same shape
    bce             logits and targets from 0 to 1 of the same shape
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from melisma.errors import ConfigError, unknown
from melisma.learning.samples import INPUTS, TARGETS, Batch, Transform, length
from melisma.learning.settings import Precision, Training

#: Returns the loss of each sample of a batch.
Loss = Callable[[nn.Module, Batch], Tensor]


@dataclass(frozen=True, slots=True)
class Supervised:
    """A loss that compares a model's outputs with targets, value by value."""

    name: str
    compare: Callable[..., Tensor]  #: torch's function, with ``reduction``
    by_class: bool = False  #: the target is the place of a logit

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the loss of each sample: the mean over its values."""
        return self.of_outputs(model(batch[INPUTS]), batch)

    def of_outputs(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Return the loss of each sample from the model's outputs for them."""
        target = target_of(batch)
        if self.by_class:
            each = self.compare(outputs, target, reduction="none")
        else:
            each = self.compare(outputs, like(target, outputs), reduction="none")
        return each if each.ndim == 1 else each.flatten(1).mean(dim=1)

    def mean(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the mean over a batch."""
        if self.by_class:
            return self(model, batch).mean()
        # All samples have as many values: the mean of their means is that of all.
        outputs = model(batch[INPUTS])
        return self.compare(outputs, like(target_of(batch), outputs))


def target_name(batch: Batch) -> str:
    """Return the name of what the outputs of a model are compared with."""
    return TARGETS if TARGETS in batch else INPUTS


def target_of(batch: Batch) -> Tensor:
    """Return what the outputs of a model are compared with."""
    return batch[target_name(batch)]


def like(target: Tensor, outputs: Tensor) -> Tensor:
    """Return numbers in the shape of outputs that have as many for each sample.

    ConfigError if they have not: torch would compare every sample with every other.
    """
    if target.shape[1:].numel() != outputs.shape[1:].numel():
        raise ConfigError(
            f"the model gives {tuple(outputs.shape[1:])} values for a sample, and the "
            f"targets have {tuple(target.shape[1:])}: make them alike"
        )
    return target.reshape(outputs.shape).to(outputs.dtype)


LOSSES: dict[str, Supervised] = {
    loss.name: loss
    for loss in (
        Supervised("cross-entropy", F.cross_entropy, by_class=True),
        Supervised("mse", F.mse_loss),
        Supervised("mae", F.l1_loss),
        Supervised("huber", F.huber_loss),
        Supervised("bce", F.binary_cross_entropy_with_logits),
    )
}


@dataclass(frozen=True, kw_only=True)
class OwnTraining(Training):
    """Training with what never leaves this process: the user's own functions."""

    own_loss: Loss | None = None
    own_transform: Transform | None = None
    own_optimiser: Callable[..., torch.optim.Optimizer] | None = None  #: if it is OWN
    precision: Precision = Precision.FP32  #: of products, on the device that trains


def loss_of(training: Training) -> Loss:
    """Return the loss by which is trained; ConfigError if there is none of its name."""
    if isinstance(training, OwnTraining) and training.own_loss:
        return training.own_loss
    if training.loss not in LOSSES:
        raise unknown("loss", training.loss, LOSSES)
    return LOSSES[training.loss]


def in_precision(training: Training, precision: Precision) -> Training:
    """Return a training in this precision."""
    if precision == precision_of(training):
        return training
    own = (
        training if isinstance(training, OwnTraining) else OwnTraining(**vars(training))
    )
    return replace(own, precision=precision)


def precision_of(training: Training) -> Precision:
    """Return the number format of products; float32 unless said otherwise."""
    return training.precision if isinstance(training, OwnTraining) else Precision.FP32


def to_train(training: Training) -> Loss:
    """Return the loss of `loss_of`, its model computed in the training's precision.

    Parameters and updates stay float32, by torch's autocast. A loss by name compares
    outputs in float32; a function of the user's own is computed as a whole.
    """
    loss = loss_of(training)
    if precision_of(training) == Precision.FP32:
        return loss

    def each(model: nn.Module, batch: Batch) -> Tensor:
        device = next(iter(batch.values())).device
        with torch.autocast(device.type, torch.bfloat16):
            if not isinstance(loss, Supervised):
                return checked(loss(model, batch), length(batch)).float()
            outputs: Tensor = model(batch[INPUTS])
        return loss.of_outputs(outputs.float(), batch)

    return each


def transform_of(training: Training) -> Transform:
    """Return what makes samples fit for the model."""
    if isinstance(training, OwnTraining) and training.own_transform:
        return training.own_transform
    return numbers


def numbers(batch: Batch) -> Batch:
    """Bytes of inputs become numbers from 0 to 1, other real numbers float32.

    Whole numbers of other types stay whole: classes, tokens.
    """
    return {name: _number(name, value) for name, value in batch.items()}


def _number(name: str, value: Tensor) -> Tensor:
    if value.dtype == torch.uint8 and name == INPUTS:
        return value.float().div_(255.0)
    if value.is_floating_point():
        return value.float()
    return value.bool() if value.dtype == torch.bool else value.long()


def mean_loss(loss: Loss, model: nn.Module, batch: Batch) -> Tensor:
    """Return the mean over a batch; ConfigError unless there is a loss a sample."""
    if isinstance(loss, Supervised):
        return loss.mean(model, batch)
    return checked(loss(model, batch), length(batch)).mean()


def checked(each: object, samples: int) -> Tensor:
    """Return what a loss returned; ConfigError unless it is one value a sample."""
    if not isinstance(each, Tensor) or each.shape != (samples,):
        shape = tuple(each.shape) if isinstance(each, Tensor) else type(each).__name__
        raise ConfigError(
            f"the loss of {samples} samples returned {shape} in place of ({samples},): "
            'return one value a sample, as torch does with reduction="none"'
        )
    return each
