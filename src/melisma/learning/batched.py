"""Training many learners at once, with the result of training them one by one.

Learners are taken in chunks whose models fit the cache together, or a GPU's memory.
Inside a chunk they are sorted by how many batches they train, so that those still at
work are always the first rows of every tensor: unequal d and τ cost no masks and no
idle arithmetic. Only a short last batch is filled up, with rows of weight zero.

Four engines, the first that fits:

    perceptrons   multilayer perceptrons under SGD: batched matrix products that
                  update the weights in place, with no gradient ever stored
    layered       on a GPU, or in bfloat16: chains of layers, each one batched product,
                  convolutions included
    functional    other models without convolutions: torch.func's vmap of the gradient
    one_by_one    the rest. On a CPU a batched convolution takes longer than its parts
                  in turn (`python benchmarks/bench_simulation.py --models`), and
                  dropout or batch normalisation would not be the learner's own
"""

import copy
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.functional import cross_entropy

from melisma.learning.devices import check_precision
from melisma.learning.kernels import fast_kernels
from melisma.learning.layers import forward, is_chain
from melisma.learning.parameters import Parameters, parameters_of, put
from melisma.learning.settings import Optimiser, Precision, Training
from melisma.learning.training import train
from melisma.maths.arrays import Floats, Ints

#: δ where a > 0, else 0, in one pass.
relu_backward = torch.ops.aten.threshold_backward

#: Bytes of parameters that one chunk may hold, and the learners in it at most.
CHUNK_BYTES, CHUNK_LEARNERS = 10_000_000, 64
#: The same on a GPU, where the samples of one step decide on the memory.
GPU_CHUNK_BYTES, GPU_CHUNK_SAMPLES = 4 << 30, 1 << 17


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """The training that all learners of a cycle share; only their batches differ."""

    model: nn.Module
    parameters: Parameters  #: from which every learner starts
    x: Tensor
    y: Tensor
    training: Training
    precision: Precision = Precision.FP32

    @property
    def on_gpu(self) -> bool:
        """Whether the data lie on an accelerator: then learners train there."""
        return self.x.device.type != "cpu"


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Results of a group of learners, one row each."""

    learners: list[int]  #: their places in the list of plans
    parameters: Parameters  #: a stack
    loss: Floats  #: mean over all their training samples, as in ``Trained``


def train_many(
    lesson: Lesson, plans: Sequence[Ints], threads: int = 1
) -> Iterator[Chunk]:
    """Train one learner for each batch plan, where the lesson's data lie.

    Chunks come in the order of the plans and do not depend on ``threads``; at most
    ``threads`` + 1 are in memory. On a GPU there is one at a time.
    """
    engine = engine_for(lesson)
    if lesson.on_gpu:
        yield from _on_gpu(lesson, plans, engine)
        return
    size = chunk_size(lesson)

    def work(start: int) -> Chunk:
        torch.set_num_threads(1)
        return _chunk(lesson, plans, range(start, start + size), engine)

    # Each thread has its own setting. The caller's must not depend on ``threads``
    # either: it evaluates the result, and kernels on two cores round differently.
    torch.set_num_threads(1)
    starts = range(0, len(plans), size)
    if threads == 1:
        yield from map(work, starts)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[Chunk]] = deque()
        for start in starts:
            waiting.append(pool.submit(work, start))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _on_gpu(lesson: Lesson, plans: Sequence[Ints], engine: "Engine") -> Iterator[Chunk]:
    """Train chunk by chunk; halve the chunk size when memory runs out."""
    start, size = 0, chunk_size(lesson)
    while start < len(plans):
        try:
            chunk = _chunk(lesson, plans, range(start, start + size), engine)
        except torch.OutOfMemoryError:
            if size == 1:
                raise
            size //= 2
            continue
        yield chunk
        start += size


def _chunk(
    lesson: Lesson, plans: Sequence[Ints], places: range, engine: "Engine"
) -> Chunk:
    """Train the learners at ``places``, which may reach beyond the last one."""
    existing = range(places.start, min(places.stop, len(plans)))
    learners = sorted(existing, key=lambda k: -len(plans[k]))
    # In bfloat16 the products are oneDNN's.
    half = lesson.precision == Precision.BF16
    with nullcontext() if half else fast_kernels(lesson.model):
        return Chunk(learners, *engine(lesson, [plans[k] for k in learners]))


def chunk_size(lesson: Lesson) -> int:
    """How many learners train side by side."""
    values = lesson.parameters.values()
    size = max(1, sum(p.numel() * p.element_size() for p in values))
    most, room = CHUNK_LEARNERS, CHUNK_BYTES
    if lesson.on_gpu:
        most, room = GPU_CHUNK_SAMPLES // lesson.training.batch, GPU_CHUNK_BYTES
    return max(1, min(most, room // size))


#: Trains the learners of a chunk, sorted by their number of batches: returns the
#: stack of their parameters and each one's mean loss.
Engine = Callable[[Lesson, Sequence[Ints]], tuple[Parameters, Floats]]


def engine_for(lesson: Lesson) -> Engine:
    """Return the fastest engine that does what each learner alone would do.

    Raises ConfigError where model or device cannot compute in the lesson's precision.
    """
    check_precision(lesson.precision, lesson.model, lesson.x.device)
    in_half = lesson.precision == Precision.BF16
    is_sgd = lesson.training.optimiser == Optimiser.SGD
    if linear_layers(lesson.model) and is_sgd and not in_half:
        return perceptrons
    if in_half or (lesson.on_gpu and is_chain(lesson.model)):
        return layered
    return functional if _is_function(lesson.model) else one_by_one


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


def _is_function(model: nn.Module) -> bool:
    """Whether outputs depend on inputs and parameters alone, with no convolution."""
    others = (nn.modules.conv._ConvNd, nn.modules.dropout._DropoutNd)
    stateful = any(True for _ in model.buffers())
    return not stateful and not any(isinstance(m, others) for m in model.modules())


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """The next batch of the first ``active`` learners, short ones filled up."""

    active: int
    rows: Tensor  #: active × width
    weight: Tensor  #: active × width, 1/samples of the batch, 0 where filled up
    samples: Tensor  #: of each active learner


def _batches(plans: Sequence[Ints], device: torch.device) -> Iterator[_Batch]:
    lengths = np.array([len(plan) for plan in plans])
    most = int(lengths.max(initial=0))
    if not most:
        return
    # All batches go to the device at once, so that no step waits for a transfer.
    filled = np.full((most, len(plans), plans[0].shape[1]), -1)
    for k, plan in enumerate(plans):
        filled[: len(plan), k] = plan
    batches = torch.from_numpy(filled).to(device)
    counts = (batches >= 0).sum(dim=2)
    widths = counts.amax(dim=1).tolist()
    for i, width in enumerate(widths):
        active = int((lengths > i).sum())
        rows, samples = batches[i, :active, :width], counts[i, :active]
        weight = (rows >= 0) / samples.unsqueeze(1)
        yield _Batch(active, rows.clamp(min=0), weight, samples)


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


def _stacked(parameters: Parameters, learners: int) -> Parameters:
    return {
        name: value.expand(learners, *value.shape).clone()
        for name, value in parameters.items()
    }


def perceptrons(lesson: Lesson, plans: Sequence[Ints]) -> tuple[Parameters, Floats]:
    """Batched matrix products; each layer's gradient goes straight into its weights."""
    stack = _stacked(lesson.parameters, len(plans))
    layers = [
        (stack[f"{name}.weight"], stack[f"{name}.bias"])
        for name in linear_layers(lesson.model)
    ]
    flat, device = lesson.x.flatten(1), lesson.x.device
    mean = _MeanLoss(len(plans), device)
    buffer = flat.new_empty(len(plans) * lesson.training.batch, flat.shape[1])
    for batch in _batches(plans, device):
        rows = batch.rows.flatten()
        x = torch.index_select(flat, 0, rows, out=buffer[: len(rows)])
        loss = _perceptron_step(
            [(W[: batch.active], b[: batch.active]) for W, b in layers],
            x.view(*batch.rows.shape, -1),
            lesson.y[batch.rows],
            batch.weight,
            lesson.training.rate,
        )
        mean.add(batch, loss)
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


def layered(lesson: Lesson, plans: Sequence[Ints]) -> tuple[Parameters, Floats]:
    """Layer by layer, all learners at once; the gradient by torch's own autograd."""
    half = lesson.precision == Precision.BF16
    x = lesson.x.bfloat16() if half else lesson.x
    stack, training = _stacked(lesson.parameters, len(plans)), lesson.training
    step = _Adam(stack) if training.optimiser == Optimiser.ADAM else _sgd
    mean = _MeanLoss(len(plans), x.device)
    for batch in _batches(plans, x.device):
        active = {name: value[: batch.active] for name, value in stack.items()}
        theta = {name: value.requires_grad_() for name, value in active.items()}
        logits = forward(
            lesson.model,
            {n: v.bfloat16() for n, v in theta.items()} if half else theta,
            x[batch.rows],
        )
        each = cross_entropy(
            (logits.float() if half else logits).flatten(0, 1),
            lesson.y[batch.rows].flatten(),
            reduction="none",
        )
        loss = (each.view_as(batch.weight) * batch.weight).sum(dim=1)
        # A loss depends on its own learner's parameters alone: the sum's gradient
        # holds every learner's.
        gradients = torch.autograd.grad(loss.sum(), list(theta.values()))
        with torch.no_grad():
            step(active, dict(zip(active, gradients, strict=True)), training.rate)
        mean.add(batch, loss.detach())
    return stack, mean.result()


def functional(lesson: Lesson, plans: Sequence[Ints]) -> tuple[Parameters, Floats]:
    """Map the gradient of one learner's loss over the chunk."""
    # A functional call swaps the module's parameters: each thread needs a copy.
    model = copy.deepcopy(lesson.model).train()

    def loss_of(theta: Parameters, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        each = cross_entropy(functional_call(model, theta, (x,)), y, reduction="none")
        return (each * weight).sum()

    gradient: Callable[..., Any] = vmap(grad_and_value(loss_of))
    stack, training = _stacked(lesson.parameters, len(plans)), lesson.training
    step = _Adam(stack) if training.optimiser == Optimiser.ADAM else _sgd
    mean = _MeanLoss(len(plans), lesson.x.device)
    for batch in _batches(plans, lesson.x.device):
        active = {name: value[: batch.active] for name, value in stack.items()}
        x, y = lesson.x[batch.rows], lesson.y[batch.rows]
        gradients, loss = gradient(active, x, y, batch.weight)
        step(active, gradients, training.rate)
        mean.add(batch, loss)
    return stack, mean.result()


def _sgd(stack: Parameters, gradients: Parameters, rate: float) -> None:
    for name, value in stack.items():
        value.sub_(gradients[name], alpha=rate)


class _Adam:
    """torch.optim.Adam with its defaults, on the first rows of a stack.

    A learner drops out after its last batch, so all active ones have made the same
    number of steps.
    """

    def __init__(self, stack: Parameters) -> None:
        self._mean = {name: torch.zeros_like(value) for name, value in stack.items()}
        self._square = {name: torch.zeros_like(value) for name, value in stack.items()}
        self._steps = 0

    def __call__(self, stack: Parameters, gradients: Parameters, rate: float) -> None:
        self._steps += 1
        beta1, beta2, epsilon = 0.9, 0.999, 1e-8
        for name, value in stack.items():
            rows, gradient = len(value), gradients[name]
            m = self._mean[name][:rows].lerp_(gradient, 1 - beta1)
            v = self._square[name][:rows].mul_(beta2)
            v.addcmul_(gradient, gradient, value=1 - beta2)
            scale = (v.sqrt() / (1 - beta2**self._steps) ** 0.5).add_(epsilon)
            value.addcdiv_(m, scale, value=-rate / (1 - beta1**self._steps))


def one_by_one(lesson: Lesson, plans: Sequence[Ints]) -> tuple[Parameters, Floats]:
    """Train the learners in turn, as each would train itself."""
    model, rows, losses = copy.deepcopy(lesson.model), [], []
    for plan in plans:
        put(lesson.parameters, model)
        losses.append(train(model, lesson.x, lesson.y, plan, lesson.training).loss)
        rows.append(parameters_of(model))
    stack = {
        name: torch.stack([row[name] for row in rows]) for name in lesson.parameters
    }
    return stack, np.array(losses)
