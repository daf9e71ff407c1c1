"""Training many learners at once, with the result of training them one by one.

Learners are taken in chunks whose models fit the cache together, or a GPU's memory.
Inside a chunk they are sorted by how many batches they train, so that those still at
work are always the first rows of every tensor: unequal d and τ cost no masks and no
idle arithmetic. Only a short last batch is filled up, with rows of weight zero.

Four engines, the first that fits:

    perceptrons   multilayer perceptrons under plain SGD and cross-entropy: batched
                  matrix products that update the weights in place, with no gradient
                  ever stored
    layered       on a GPU, or in bfloat16: chains of layers, each one batched product,
                  convolutions included
    functional    other models without convolutions: torch.func's vmap of the gradient
    one_by_one    the rest. On a CPU a batched convolution takes longer than its parts
                  in turn (`python benchmarks/bench_simulation.py --models`), dropout
                  or batch normalisation would not be the learner's own, and some code
                  cannot be mapped, or not be computed in bfloat16 together

`engine_for` chooses, and says why.
"""

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import nn

from melisma.errors import MelismaError
from melisma.learning.devices import check_precision
from melisma.learning.engines import (
    Engine,
    Lesson,
    functional,
    layered,
    linear_layers,
    one_by_one,
    perceptrons,
)
from melisma.learning.kernels import fast_kernels
from melisma.learning.layers import is_chain
from melisma.learning.losses import LOSSES, Supervised
from melisma.learning.optimisers import goes_by_value
from melisma.learning.parameters import Parameters, trained
from melisma.learning.samples import INPUTS, Arrays
from melisma.learning.settings import Precision, Training
from melisma.maths.arrays import Floats, Ints

#: Bytes of parameters that one chunk may hold, and the learners in it at most.
CHUNK_BYTES, CHUNK_LEARNERS = 10_000_000, 64
#: The same on a GPU, where the samples of one step decide on the memory.
GPU_CHUNK_BYTES, GPU_CHUNK_SAMPLES = 4 << 30, 1 << 17


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
    halted = threading.Event()
    lesson = replace(lesson, halt=halted.is_set)
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[Chunk]] = deque()
        try:
            for start in starts:
                waiting.append(pool.submit(work, start))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:  # Ctrl-C does not wait for the threads' work
            halted.set()


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
    if lesson.own:
        lesson = replace(lesson, own=[lesson.own[k] for k in learners])
    if lesson.corrections:
        corrections = [lesson.corrections[k] for k in learners]
        lesson = replace(lesson, corrections=corrections)
    if lesson.starts:
        lesson = replace(lesson, starts=[lesson.starts[k] for k in learners])
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


class Choice(NamedTuple):
    """An engine, and why it is not a faster one."""

    engine: Engine
    why: str = ""

    def __str__(self) -> str:
        how = _HOW[self.engine.__name__]
        return f"{how}: {self.why}" if self.why else how


_HOW = {
    "perceptrons": "all learners at once, in batched products",
    "layered": "all learners at once, layer by layer",
    "functional": "all learners at once, by torch.func",
    "one_by_one": "one learner after another",
}

#: What was chosen for a model, and for which training.
_chosen: WeakKeyDictionary[nn.Module, tuple[Training, Precision, bool, Choice]]
_chosen = WeakKeyDictionary()


def engine_for(lesson: Lesson) -> Engine:
    """Return the fastest engine that does what each learner alone would do.

    Raises ConfigError where the device cannot compute in the lesson's precision.
    """
    return choice_for(lesson).engine


def choice_for(lesson: Lesson) -> Choice:
    """Return the engine of `engine_for`, and why it is that one; remembered."""
    # The rate changes from cycle to cycle, and decides nothing here.
    corrected = lesson.corrections is not None
    key = replace(lesson.training, rate=1.0), lesson.precision, corrected
    known = _chosen.get(lesson.model)
    if known is None or known[:3] != key:
        known = _chosen[lesson.model] = *key, _choice(lesson)
    return known[3]


def _choice(lesson: Lesson) -> Choice:
    model, training, loss = lesson.model, lesson.training, lesson.loss
    check_precision(lesson.precision, lesson.device)
    in_half = lesson.precision == Precision.BF16
    by_value = goes_by_value(training)
    every = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    whole = set(trained(model)) == every  # nothing is frozen, and nothing tied
    by_class = whole and loss is LOSSES["cross-entropy"]
    plain = training.is_plain_sgd and not lesson.corrections
    if by_class and plain and not in_half and _is_flat(lesson):
        return Choice(perceptrons)
    in_layers = whole and isinstance(loss, Supervised) and by_value
    if lesson.own is not None:
        return Choice(one_by_one, "each learner keeps its own buffers")
    if (in_half or lesson.on_gpu) and is_chain(model) and in_layers:
        return Choice(layered)
    if in_half:
        return Choice(one_by_one, "in bf16 only chains of layers train together")
    if not by_value:
        return Choice(one_by_one, f"{training.optimiser} does not go value by value")
    if why := _alone(lesson):
        return Choice(one_by_one, why)
    return _mapped(lesson)


def _is_flat(lesson: Lesson) -> bool:
    """Whether this is a perceptron, and its samples are or become rows of numbers."""
    if not linear_layers(lesson.model) or not isinstance(lesson.samples, Arrays):
        return False
    first = next(iter(lesson.model.children()))
    return type(first) is nn.Flatten or lesson.samples.arrays[INPUTS].ndim == 2


def _mapped(lesson: Lesson) -> Choice:
    """Choose torch.func if it takes the model and the loss: a batch of two learners."""
    few = np.arange(min(2, len(lesson.samples)))[None]
    lesson = replace(lesson, corrections=None, starts=None)
    try:
        functional(lesson, [few, few])
    except MelismaError:
        raise  # it is wrong for one learner as well
    except Exception as error:  # the model's own code may raise anything in a map
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return Choice(one_by_one, f"torch.func cannot map this model: {reason[:100]}")
    return Choice(functional)


def _alone(lesson: Lesson) -> str:
    """Return why each learner trains by itself, or "".

    Outputs depend on more than inputs and parameters, or it is faster.
    """
    for name, part in lesson.model.named_modules():
        if isinstance(part, nn.modules.conv._ConvNd) and not lesson.on_gpu:
            return f"batched convolutions are slower on a CPU ({name})"
        if isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0:
            return f"each learner draws its own dropout ({name})"
        if (
            isinstance(part, nn.modules.batchnorm._NormBase)
            and part.track_running_stats
        ):
            return f"batch normalisation keeps statistics ({name})"
        if getattr(part, "dropout", 0.0) and isinstance(
            part, nn.RNNBase | nn.MultiheadAttention
        ):
            return f"each learner draws its own dropout ({name})"
    return ""
