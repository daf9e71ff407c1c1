"""Spot checks: did a learner do the training that it reports?

Where the orchestrator has the data (parallel mode), it knows every learner's batches
and can test an update in two ways:

    redo      Train again from the same parameters on the same batches, and compare.
              Honest devices differ by rounding only. Costs as much as the training.
    suspect   Compare how far the loss fell on the learner's own samples and on others.
              A statistic, which costs forward passes.

Suspicion makes a redo more likely; only a redo convicts, so that no honest learner is
expelled by chance. Training has to be a function of its inputs: dropout draws from the
device's generator and cannot be redone. Measurements are in `docs/checks.md`.
"""

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from melisma.errors import ConfigError
from melisma.learning.kernels import fast_kernels
from melisma.learning.losses import Loss
from melisma.learning.parameters import (
    Parameters,
    buffers_are_local,
    parameters_of,
    put,
)
from melisma.learning.samples import Samples
from melisma.learning.settings import Training
from melisma.learning.training import Session, train
from melisma.maths.arrays import Floats, Ints

#: Distance from which an update counts as false. Honest float32 training stays below
#: 0.014, on a GPU too, and half of the work left out is above 0.4 (`docs/checks.md`).
FALSE_FROM = 0.2

#: Samples that go forward through a model together.
_TOGETHER = 1000


def check_repeatable(model: nn.Module) -> None:
    """Raise ConfigError if training draws random numbers: honest work would differ."""
    for name, part in model.named_modules():
        if isinstance(part, _DropoutNd):
            raise ConfigError(
                f"layer {name!r} of the model is {part}: its work cannot be redone, so "
                "use checks = 0 or a model without dropout"
            )


def check_known(model: nn.Module) -> None:
    """Raise ConfigError if training depends on buffers that stay on each learner.

    That of batch norm does not: only its evaluation uses the statistics.
    """
    for name, part in model.named_modules():
        real = [v for v in part.buffers(recurse=False) if v.is_floating_point()]
        if buffers_are_local(model) and real and not isinstance(part, _NormBase):
            raise ConfigError(
                f"layer {name!r} of the model has buffers that stay on each learner: "
                'its work cannot be redone, so use checks = 0 or buffers = "average"'
            )


def redone(
    model: nn.Module,
    before: Parameters,
    samples: Samples,
    plan: Ints,
    training: Training,
) -> Parameters:
    """Return what training from ``before`` along ``plan`` gives; ``model`` stays.

    For a learner that halted, give the part of its plan that it claims:
    ``plan[:batches]``.
    """
    twin = _with(model, before)
    train(twin, samples, plan, training)
    return parameters_of(twin)


def redone_unless(
    halt: Callable[[], bool],
    model: nn.Module,
    before: Parameters,
    samples: Samples,
    pieces: Iterable[Ints],
    training: Training,
) -> Parameters | None:
    """Return the same for a plan that comes in pieces; None if that is halted.

    ``halt`` is asked before each batch.
    """
    twin = _with(model, before)
    session = Session(twin, training)
    for piece in pieces:
        session.train(samples, piece, halt)
        if session.trained().halted:
            return None
    return parameters_of(twin)


def distance(claimed: Parameters, redone: Parameters, before: Parameters) -> float:
    """‖claimed − redone‖ / ‖redone − before‖, the error as a share of the work.

    0 if they are equal; infinite if ``claimed`` is not finite, or differs although
    the work would have changed nothing.
    """
    error, work = _norm(claimed, redone), _norm(redone, before)
    if error == 0:
        return 0.0
    return error / work if work > 0 and math.isfinite(error) else math.inf


def honest(distance: float) -> bool:
    """Whether rounding alone may explain this distance."""
    return distance < FALSE_FROM


def samples_seen(plan: Ints) -> int:
    """Return the distinct samples of these batches, the most a learner may report."""
    return int(np.unique(plan[plan >= 0]).size)


def losses(
    model: nn.Module, parameters: Parameters, samples: Samples, loss: Loss
) -> Floats:
    """Return the loss of each sample; a forward pass. ``model`` stays."""
    twin = _with(model, parameters).eval()
    with torch.no_grad(), fast_kernels(twin):
        parts = [
            loss(twin, samples[part])
            for part in torch.arange(len(samples)).tensor_split(
                -(-len(samples) // _TOGETHER)
            )
        ]
    return torch.cat(parts).double().numpy()


@dataclass(frozen=True, slots=True, eq=False)
class Losses:
    """Loss of each sample before and after an update."""

    before: Floats
    after: Floats


@dataclass(frozen=True, slots=True)
class Gap:
    """How much further the loss fell on a learner's own samples, per pass over them."""

    mean: float
    error: float  #: its standard error


def gap(own: Losses, others: Losses, passes: float) -> Gap:
    """Compare a learner's own samples with others that it was not sent.

    Training on a sample lowers its own loss by more than that of samples not seen,
    by an amount that does not depend on their number: learners of a cycle compare.
    Hard samples gain more, so the part of the drop that the loss before predicts,
    fitted to the others, is subtracted first:

        drop ≈ a + b·loss + c·√loss

    Raises ValueError unless there are two samples or more on both sides.
    """
    if min(len(own.after), len(others.after)) < 2:
        raise ValueError("a gap needs two samples or more on both sides")
    sides = (own.before, own.after, others.before, others.after)
    if not all(np.isfinite(side).all() for side in sides):
        return Gap(mean=-math.inf, error=0.0)
    terms = np.linalg.lstsq(_terms(others), _drop(others), rcond=None)[0]
    a, b = (_drop(part) - _terms(part) @ terms for part in (own, others))
    error = math.sqrt(a.var() / len(a) + b.var() / len(b))
    return Gap(mean=float(a.mean() - b.mean()) / passes, error=error / passes)


def usual(gaps: Sequence[Gap]) -> float:
    """Return the median gap of a cycle's learners, per pass; at least 0."""
    return max(0.0, float(np.median([gap.mean for gap in gaps])))


def suspicion(gap: Gap, usual: float) -> float:
    """How likely it is, 0 to 1, that a gap is under half of the usual one.

    Half lies far from both the honest learner's gap and that of one who did nothing.
    """
    short = usual / 2 - gap.mean
    if gap.error == 0:  # nothing moved, or nothing is finite
        return float(short >= 0)
    # Φ(short / error)
    return 0.5 * math.erfc(-short / gap.error / math.sqrt(2))


def redo_chance(share: float, suspicion: float) -> float:
    """``share`` for the ordinary update, up to 1 for the surely suspicious.

    >>> [redo_chance(0.1, suspicion) for suspicion in (0.0, 0.5, 0.75, 1.0)]
    [0.1, 0.1, 0.55, 1.0]
    """
    return share + (1 - share) * max(0.0, 2 * suspicion - 1)


def is_redone(share: float, suspicion: float, rng: np.random.Generator) -> bool:
    """Draw whether to redo an update.

    A learner that could predict the draw could skip its work: seed ``rng`` from the
    operating system (``np.random.default_rng()``), never from the job's seed, which
    learners know, and draw after the update has arrived.
    """
    return bool(rng.random() < redo_chance(share, suspicion))


def _with(model: nn.Module, parameters: Parameters) -> nn.Module:
    twin = copy.deepcopy(model)
    put(parameters, twin)
    return twin


def _norm(a: Parameters, b: Parameters) -> float:
    """‖a − b‖ over all parameters."""
    squares = [(a[name].double() - b[name].double()).square().sum() for name in a]
    return math.sqrt(float(sum(squares)))


def _drop(losses: Losses) -> Floats:
    return losses.before - losses.after


def _terms(losses: Losses) -> Floats:
    b = losses.before
    return np.stack([np.ones_like(b), b, np.sqrt(b)], axis=1)
