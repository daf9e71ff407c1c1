"""What a sample is worth that is trained on by a way of taking part, measured.

A few short cycles are trained as they are, and each of them by every way: from the
model as it arrives, and sent as it travels, with error feedback. Of what was meant, x,
and what came, y, both summed over the cycles,

    v = cos²∠(x, y) = ⟨x, y⟩² / (‖x‖²·‖y‖²)     in (0, 1]

For a smooth loss, the best step along y takes it down by cos²∠(∇, y) of what the best
step along the gradient does (the descent lemma), so that v is the share of progress
that is left. It is what theory says of either kind of codec: 1/(1 + ω) in expectation
for an unbiased one of variance ω (QSGD), and δ for a contraction such as top-k, of one
change; over several, error feedback brings what was left out, and v rises. Who trains a
part of the model moves nothing else, which counts as 0 in y.

Papers: D. Alistarh et al., "QSGD", arXiv:1610.02132; S. U. Stich and S. P. Karimireddy,
"The Error-Feedback Framework", arXiv:1909.05350.
"""

import copy
from collections.abc import Iterable, Sequence

import numpy as np
import torch

from melisma.learning.parameters import (
    Model,
    Parameters,
    norm_of,
    parameters_of,
    put,
    trained,
)
from melisma.learning.samples import Samples
from melisma.learning.settings import Training
from melisma.learning.submodels.part import Part
from melisma.learning.training import batch_plan, train
from melisma.learning.way import Downwards, Way
from melisma.learning.wire import Sender, seed_of
from melisma.maths.arrays import Ints
from melisma.system.streams import Stream

#: Cycles, and batches in each, that values are measured over.
CYCLES, BATCHES = 4, 10
#: The least value: who sends what leads elsewhere is worth next to nothing.
LEAST = 1e-3
#: Who starts from the same model, and trains the same of it.
Alike = tuple[Downwards, Part | None]


def worths(
    ways: Sequence[Way], model: Model, samples: Samples, training: Training, seed: int
) -> list[float]:
    """Return the value of each way, in its place; ``model`` stays as it is."""
    model, rng = copy.deepcopy(model), np.random.default_rng([seed, Stream.WORTH])
    moving = trained(model).keys()
    senders = [Sender(way.wire.up) for way in ways]
    models: dict[Part | None, Model] = {None: model}
    models |= {w.part: copy.deepcopy(w.part.model) for w in ways if w.part}
    meant = Parameters()
    came: list[Parameters] = [{} for _ in ways]
    for cycle in range(1, CYCLES + 1):
        before = parameters_of(model)
        plan, now = _plan(samples, training, rng), training.at(cycle)
        plain = _trained(model, before, samples, plan, now, seed)
        _add(meant, plain, before, moving)
        after: dict[Alike, tuple[Parameters, Parameters]] = {
            (Way().downwards, None): (before, plain)
        }
        for way, sender, total in zip(ways, senders, came, strict=True):
            alike = way.downwards, way.part
            if alike not in after:
                sent = way.sent(before, moving, seed_of(seed, cycle))
                start = way.arrived(sent, before, moving)
                own = _trained(models[way.part], start, samples, plan, now, seed)
                after[alike] = start, own
            start, made = after[alike]
            draws = seed_of(seed, cycle, str(way.wire.up))
            update = sender.update(
                made, start, way.moving(moving), draws, None, way.part
            )
            learnt = way.learnt(update, before, moving, draws)
            whole = learnt if way.part is None else way.part.spread(learnt, before)
            _add(total, whole, before, moving)
        put(plain, model)
    return [_squared_cosine(meant, total) for total in came]


def _plan(samples: Samples, training: Training, rng: np.random.Generator) -> Ints:
    rows = min(len(samples), BATCHES * training.batch)
    return batch_plan(rng.permutation(len(samples))[:rows], 1, training, rng)


def _trained(
    model: Model,
    start: Parameters,
    samples: Samples,
    plan: Ints,
    training: Training,
    seed: int,
) -> Parameters:
    """Return what training makes of a start, with the same draws for each."""
    put(start, model)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        train(model, samples, plan, training)
    return parameters_of(model)


def _add(
    total: Parameters, after: Parameters, before: Parameters, moving: Iterable[str]
) -> None:
    """Add a change to a total."""
    for name in moving:
        change = after[name] - before[name]
        total[name] = total[name] + change if name in total else change


def _squared_cosine(x: Parameters, y: Parameters) -> float:
    """Return cos²∠(x, y), and `LEAST` where that is less, or y leads backwards."""
    lengths = norm_of(x) * norm_of(y)
    product = sum(float((x[n].double() * y[n].double()).sum()) for n in x)
    if product <= 0 or not lengths:
        return LEAST
    return float(np.clip((product / lengths) ** 2, LEAST, 1.0))
