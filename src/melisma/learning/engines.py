"""Engines that train many learners: each with the result of training them one by one.

`learning.batched` chooses among them.
"""

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from melisma.learning.layers import forward
from melisma.learning.losses import Loss, Supervised, checked, in_precision, loss_of
from melisma.learning.optimisers import StackOptimiser
from melisma.learning.parameters import Parameters, frozen_of, trained
from melisma.learning.repeats import repeated
from melisma.learning.samples import INPUTS, TARGETS, Batch, Samples
from melisma.learning.settings import Precision, Training
from melisma.learning.training import train
from melisma.maths.arrays import Floats, Ints

#: δ where a > 0, else 0, in one pass.
relu_backward = torch.ops.aten.threshold_backward

# vmap takes learners one by one where it has no rule, as for attention, and warns of
# that: all else still goes at once.
_functorch: Any = torch._C._functorch
_functorch._set_vmap_fallback_warning_enabled(False)


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """The training that all learners of a cycle share; only their batches differ."""

    model: nn.Module
    parameters: Parameters  #: from which every learner starts
    samples: Samples  #: as the model takes them
    training: Training
    precision: Precision = Precision.FP32
    #: Buffers that each learner keeps, in the order of plans; None: nothing stays.
    own: Sequence[Parameters] | None = None
    #: Of each learner's gradients, in the order of plans; None: of nobody's.
    corrections: Sequence[Parameters] | None = None
    #: From which each learner starts, in the order of plans; None: from the same.
    starts: Sequence[Parameters] | None = None
    #: Asked before each batch; the training of one that halts is of no use.
    halt: Callable[[], bool] = lambda: False

    @property
    def device(self) -> torch.device:
        """Where the model is: learners train there."""
        values = self.model.parameters()
        return next((v.device for v in values), torch.device("cpu"))

    @property
    def on_gpu(self) -> bool:
        """Whether that is an accelerator."""
        return self.device.type != "cpu"

    @property
    def loss(self) -> Loss:
        """The loss of each sample."""
        return loss_of(self.training)


#: Trains the learners of a chunk, sorted by their number of batches: returns the
#: stack of their parameters and of what each keeps, and each one's mean loss.
Engine = Callable[[Lesson, Sequence[Ints]], tuple[Parameters, Floats]]


def linear_layers(model: nn.Module) -> list[str]:
    """Names of the linear layers if ``model`` is a perceptron with ReLUs, else []."""
    if not isinstance(model, nn.Sequential):
        return []
    modules = list(model.named_children())
    if modules and type(modules[0][1]) is nn.Flatten:
        modules = modules[1:]
    linear, between = modules[::2], modules[1::2]
    fits = (
        len(modules) % 2 == 1
        and all(type(m) is nn.Linear and m.bias is not None for _, m in linear)
        and all(type(m) is nn.ReLU for _, m in between)
    )
    return [name for name, _ in linear] if fits else []


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """The next batch of the first ``active`` learners, short ones filled up."""

    active: int
    rows: Tensor  #: active × width
    weight: Tensor  #: active × width, 1/samples of the batch, 0 where filled up
    samples: Tensor  #: of each active learner

    def of(self, samples: Samples) -> Batch:
        """Return the rows of samples, active × width × the shape of a sample."""
        taken = samples[self.rows.flatten()]
        return {n: v.view(*self.rows.shape, *v.shape[1:]) for n, v in taken.items()}


class _Batches:
    """All batches of a chunk, on its device at once: no step waits for a transfer."""

    def __init__(
        self, plans: Sequence[Ints], device: torch.device, halt: Callable[[], bool]
    ) -> None:
        self._halt = halt
        self._lengths = np.array([len(plan) for plan in plans])
        most = int(self._lengths.max(initial=0))
        self._width = plans[0].shape[1]
        filled = np.full((most, len(plans), self._width), -1)
        for k, plan in enumerate(plans):
            filled[: len(plan), k] = plan
        self._rows = torch.from_numpy(filled).to(device)
        self._counts = (self._rows >= 0).sum(dim=2)
        self._at = torch.zeros(1, dtype=torch.int64, device=device)

    def each(self, step: Callable[[_Batch], None], *, recorded: bool) -> None:
        """Take a step with every batch; a GPU may replay one that was recorded."""
        for (active, width), alike in groupby(self._shapes()):
            take = partial(self._take, step, active, width)
            times = len(list(alike))
            if recorded:
                repeated(take, times, self._rows.device)
            else:
                for _ in range(times):
                    if self._halt():
                        return
                    take()

    def _shapes(self) -> list[tuple[int, int]]:
        """How many learners each batch has, and samples of each."""
        most = len(self._rows)
        active = (self._lengths[:, None] > np.arange(most)).sum(axis=0).tolist()
        # On a GPU all are filled up: a graph is of one shape, and asking would wait.
        short = self._rows.device.type == "cpu" and most
        widths = self._counts.amax(dim=1).tolist() if short else [self._width] * most
        return list(zip(active, widths, strict=True))

    def _take(self, step: Callable[[_Batch], None], active: int, width: int) -> None:
        rows = self._rows.index_select(0, self._at)[0, :active, :width]
        samples = self._counts.index_select(0, self._at)[0, :active]
        self._at += 1
        weight = (rows >= 0) / samples.unsqueeze(1)
        step(_Batch(active, rows.clamp(min=0), weight, samples))


class _MeanLoss:
    """Mean loss of each learner over its samples so far."""

    def __init__(self, learners: int, device: torch.device) -> None:
        self._sum = torch.zeros(learners, dtype=torch.float64, device=device)
        self._samples = torch.zeros_like(self._sum)

    def add(self, batch: _Batch, loss: Tensor) -> None:
        self._sum[: batch.active] += loss * batch.samples
        self._samples[: batch.active] += batch.samples

    def result(self) -> Floats:
        mean: Floats = (self._sum / self._samples.clamp(min=1.0)).cpu().numpy()
        return mean


def _stacked(lesson: Lesson, learners: int) -> Parameters:
    """Return what each learner starts from, a row each."""
    if lesson.starts:
        starts = lesson.starts
        return {n: torch.stack([one[n] for one in starts]) for n in lesson.parameters}
    return {
        name: value.expand(learners, *value.shape).clone()
        for name, value in lesson.parameters.items()
    }


def perceptrons(lesson: Lesson, plans: Sequence[Ints]) -> tuple[Parameters, Floats]:
    """Batched matrix products; each layer's gradient goes straight into its weights."""
    stack = _stacked(lesson, len(plans))
    layers = [
        (stack[f"{name}.weight"], stack[f"{name}.bias"])
        for name in linear_layers(lesson.model)
    ]
    inputs, targets = lesson.samples[:][INPUTS], lesson.samples[:][TARGETS]
    flat, device = inputs.flatten(1), inputs.device
    mean = _MeanLoss(len(plans), device)
    buffer = flat.new_empty(len(plans) * lesson.training.batch, flat.shape[1])

    def step(batch: _Batch) -> None:
        rows = batch.rows.flatten()
        x = torch.index_select(flat, 0, rows, out=buffer[: len(rows)])
        loss = _perceptron_step(
            [(W[: batch.active], b[: batch.active]) for W, b in layers],
            x.view(*batch.rows.shape, -1),
            targets[batch.rows],
            batch.weight,
            lesson.training.rate,
        )
        mean.add(batch, loss)

    _Batches(plans, device, lesson.halt).each(step, recorded=True)
    return stack, mean.result()


def _perceptron_step(
    layers: list[tuple[Tensor, Tensor]],
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    rate: float,
) -> Tensor:
    """One SGD step of every learner; returns their losses before it."""
    inputs = [x.transpose(1, 2)]
    for W, b in layers:
        # aₗ = relu(W·aₗ₋₁ + b), units × samples, the last without relu
        a = torch.baddbmm(b.unsqueeze(2), W, inputs[-1])
        inputs.append(a.relu_() if len(inputs) < len(layers) else a)
    log_p = inputs.pop().log_softmax(dim=1)
    target = y.unsqueeze(1)
    loss = -(log_p.gather(1, target).squeeze(1) * weight).sum(dim=1)
    # δ = (softmax − onehot) / samples
    delta = log_p.exp_()
    delta.scatter_add_(1, target, delta.new_full((1, 1, 1), -1.0).expand_as(target))
    delta.mul_(weight.unsqueeze(1))
    for i in reversed(range(len(layers))):
        W, b = layers[i]
        # δₗ₋₁ = (Wₗᵀ·δₗ) ∘ [aₗ₋₁ > 0]   before W moves
        below = delta
        if i:
            below = relu_backward(torch.bmm(W.transpose(1, 2), delta), inputs[i], 0.0)
        # W ← W − η·δ·aₗ₋₁ᵀ,   b ← b − η·Σ δ
        W.baddbmm_(delta, inputs[i].transpose(1, 2), alpha=-rate)
        b.sub_(delta.sum(dim=2), alpha=rate)
        delta = below
    return loss


def _corrections(lesson: Lesson, moved: Parameters) -> Parameters | None:
    """Return the corrections of all learners, in one stack for each parameter."""
    if not lesson.corrections:
        return None
    return {
        name: torch.stack([one[name].to(value) for one in lesson.corrections])
        for name, value in moved.items()
    }


def layered(lesson: Lesson, plans: Sequence[Ints]) -> tuple[Parameters, Floats]:
    """Layer by layer, all learners at once; the gradient by torch's own autograd."""
    half = lesson.precision == Precision.BF16
    loss_of_outputs = _of_outputs(lesson.loss)
    stack = _stacked(lesson, len(plans))
    optimiser = StackOptimiser(stack, lesson.training, _corrections(lesson, stack))
    mean = _MeanLoss(len(plans), lesson.device)

    def step(batch: _Batch) -> None:
        theta = {n: v[: batch.active].requires_grad_() for n, v in stack.items()}
        samples = batch.of(lesson.samples)
        x = samples[INPUTS]
        logits = forward(
            lesson.model,
            {n: v.bfloat16() for n, v in theta.items()} if half else theta,
            x.bfloat16() if half else x,
        )
        each = loss_of_outputs(
            (logits.float() if half else logits).flatten(0, 1),
            {name: value.flatten(0, 1) for name, value in samples.items()},
        )
        loss = (each.view_as(batch.weight) * batch.weight).sum(dim=1)
        # A loss depends on its own learner's parameters alone: the sum's gradient
        # holds every learner's.
        gradients = torch.autograd.grad(loss.sum(), list(theta.values()))
        with torch.no_grad():
            optimiser.step(batch.active, dict(zip(theta, gradients, strict=True)))
        mean.add(batch, loss.detach())

    _Batches(plans, lesson.device, lesson.halt).each(step, recorded=optimiser.on_device)
    return stack, mean.result()


def _of_outputs(loss: Loss) -> Callable[[Tensor, Batch], Tensor]:
    assert isinstance(loss, Supervised)  # `_choice` has seen to it
    return loss.of_outputs


class _Losses(nn.Module):
    """The loss as a module around the model, so that its parameters can be given."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model, self._loss = model, loss

    def forward(self, batch: Batch, weight: Tensor) -> Tensor:
        return (checked(self._loss(self.model, batch), len(weight)) * weight).sum()


def functional(lesson: Lesson, plans: Sequence[Ints]) -> tuple[Parameters, Floats]:
    """Map the gradient of one learner's loss over the chunk."""
    # Attention on a CPU is mapped by a loop inside torch, which says so: the result is
    # the same, and a user cannot mend it.
    warnings.filterwarnings("ignore", "There is a performance drop because we have not")
    # A functional call swaps the module's parameters: each thread needs a copy.
    losses = _Losses(copy.deepcopy(lesson.model).train(), lesson.loss)
    moving = trained(lesson.model)
    still = {  # buffers have no gradient
        f"model.{name}": value
        for name, value in lesson.parameters.items()
        if name not in moving
    }

    def loss_of_one(theta: Parameters, batch: Batch, weight: Tensor) -> Tensor:
        named = {f"model.{name}": value for name, value in theta.items()}
        loss: Tensor = functional_call(losses, still | named, (batch, weight))
        return loss

    gradient: Callable[..., Any] = vmap(grad_and_value(loss_of_one))
    stack = _stacked(lesson, len(plans))
    moved = {name: stack[name] for name in moving}
    optimiser = StackOptimiser(moved, lesson.training, _corrections(lesson, moved))
    mean = _MeanLoss(len(plans), lesson.device)

    def step(batch: _Batch) -> None:
        active = {name: value[: batch.active] for name, value in moved.items()}
        gradients, loss = gradient(active, batch.of(lesson.samples), batch.weight)
        optimiser.step(batch.active, gradients)
        mean.add(batch, loss)

    # A model's own code may look at values, which no recording can.
    _Batches(plans, lesson.device, lesson.halt).each(step, recorded=False)
    return stack, mean.result()


def one_by_one(lesson: Lesson, plans: Sequence[Ints]) -> tuple[Parameters, Floats]:
    """Train the learners in turn, as each would train itself."""
    training = in_precision(lesson.training, lesson.precision)
    model = copy.deepcopy(lesson.model)
    kept = frozen_of(model)  # the same for all
    state = {n: v for n, v in model.state_dict().items() if n not in kept}
    # The learners' values come last: a tied parameter has a second name in the state.
    others = {n: v.clone() for n, v in state.items() if n not in lesson.parameters}
    start = others | lesson.parameters
    own = lesson.own or [{}] * len(plans)
    whole = replace(lesson, parameters=lesson.parameters | own[0], starts=None)
    stack, losses = _stacked(whole, len(plans)), []
    for k, plan in enumerate(plans):
        at = lesson.starts[k] if lesson.starts else {}
        _copy(start | at | own[k], state)
        correction = lesson.corrections[k] if lesson.corrections else None
        done = train(
            model, lesson.samples, plan, training, lesson.halt, correction=correction
        )
        losses.append(done.loss)
        _copy({n: state[n] for n in stack}, {n: v[k] for n, v in stack.items()})
    return stack, np.array(losses)


def _copy(values: Parameters, into: Parameters) -> None:
    with torch.no_grad():
        for name, value in values.items():
            into[name].copy_(value)
