"""Telling lies: did a learner do the work that it wants to be paid for?

Where the orchestrator has the data (parallel mode), it knows what every learner was
to do, batch by batch. Two checks:

    redo      train again, from the same parameters along the same plan, and compare.
              Devices that did the work differ in rounding alone. Costs what the
              learner's training cost.
    suspect   did the loss fall further on the learner's own samples than on others',
              by as much as is usual? Costs forward passes. It is a statistic.

Suspicion decides who is redone sooner; only a redo convicts, so no honest learner is
accused by chance. Training must be the same function of its inputs on both sides:
dropout, which draws from the device's own generator, cannot be redone.
`docs/checks.md` has what was measured.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.modules.dropout import _DropoutNd

from melisma.errors import ConfigError
from melisma.learning.kernels import fast_kernels
from melisma.learning.parameters import Parameters, parameters_of, put
from melisma.learning.settings import Training
from melisma.learning.training import train
from melisma.maths.arrays import Floats, Ints

#: Distance from which an update is false. In `docs/checks.md` honest float32 training
#: stays under 0.014, on a GPU too; half of the work left out is over 0.4.
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


def redone(
    model: nn.Module,
    before: Parameters,
    x: Tensor,
    y: Tensor,
    plan: Ints,
    training: Training,
) -> Parameters:
    """Return what training from ``before`` along ``plan`` gives; ``model`` stays.

    For a learner that halted, give the part of its plan that it claims:
    ``plan[:batches]``.
    """
    twin = _with(model, before)
    train(twin, x, y, plan, training)
    return parameters_of(twin)


def distance(claimed: Parameters, redone: Parameters, before: Parameters) -> float:
    """‖claimed − redone‖ / ‖redone − before‖: the share of the work that is not there.

    0 if they are equal; infinite if ``claimed`` is not finite, or moved where the work
    would not have.
    """
    off, work = _apart(claimed, redone), _apart(redone, before)
    if off == 0:
        return 0.0
    return off / work if work > 0 and math.isfinite(off) else math.inf


def honest(distance: float) -> bool:
    """Whether rounding alone may explain this distance."""
    return distance < FALSE_FROM


def samples_seen(plan: Ints) -> int:
    """Samples in these batches, each counted once: all that their learner may claim."""
    return int(np.unique(plan[plan >= 0]).size)


def losses(model: nn.Module, parameters: Parameters, x: Tensor, y: Tensor) -> Floats:
    """Cross-entropy of each sample, in nats; a forward pass. ``model`` stays."""
    twin = _with(model, parameters).eval()
    with torch.no_grad(), fast_kernels(twin):
        parts = [
            cross_entropy(twin(x[part]), y[part], reduction="none")
            for part in torch.arange(len(y)).tensor_split(-(-len(y) // _TOGETHER))
        ]
    return torch.cat(parts).double().numpy()


@dataclass(frozen=True, slots=True, eq=False)
class Losses:
    """Loss of each sample before and after an update, in nats."""

    before: Floats
    after: Floats


@dataclass(frozen=True, slots=True)
class Gap:
    """How much further the loss fell on a learner's own samples, per pass over them."""

    mean: float  #: nats
    error: float  #: its standard error


def gap(own: Losses, others: Losses, passes: float) -> Gap:
    """Compare a learner's own samples with others that it was not sent.

    Each visit to a sample lowers its own loss, besides what all samples gain. That is
    the same however many there are, so learners of a cycle compare. Hard samples gain
    more: what the loss before foretells of the drop, judged by the others, is taken
    out first,

        drop ≈ a + b·loss + c·√loss.

    Raises ValueError unless there are two samples or more on both sides.
    """
    if min(len(own.after), len(others.after)) < 2:
        raise ValueError("a gap needs two samples or more on both sides")
    if not (np.isfinite(own.after).all() and np.isfinite(others.after).all()):
        return Gap(mean=-math.inf, error=0.0)
    terms = np.linalg.lstsq(_terms(others), _drop(others), rcond=None)[0]
    mine, theirs = (_drop(some) - _terms(some) @ terms for some in (own, others))
    error = math.sqrt(mine.var() / len(mine) + theirs.var() / len(theirs))
    return Gap(mean=float(mine.mean() - theirs.mean()) / passes, error=error / passes)


def usual(gaps: Sequence[Gap]) -> float:
    """Return the median gap of a cycle's learners, per pass; at least 0."""
    return max(0.0, float(np.median([gap.mean for gap in gaps])))


def suspicion(gap: Gap, usual: float) -> float:
    """How likely it is, 0 to 1, that a gap is under half of the usual one.

    Half, so that ordinary luck is far from it on one side and no work on the other.
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

    Who can foresee it need not work: seed ``rng`` from the operating system
    (``np.random.default_rng()``), never from the job's seed, which learners know; and
    draw once the update is here.
    """
    return bool(rng.random() < redo_chance(share, suspicion))


def _with(model: nn.Module, parameters: Parameters) -> nn.Module:
    twin = copy.deepcopy(model)
    put(parameters, twin)
    return twin


def _apart(one: Parameters, other: Parameters) -> float:
    squares = [(one[n].double() - other[n].double()).square().sum() for n in one]
    return math.sqrt(float(sum(squares)))


def _drop(losses: Losses) -> Floats:
    return losses.before - losses.after


def _terms(losses: Losses) -> Floats:
    b = losses.before
    return np.stack([np.ones_like(b), b, np.sqrt(b)], axis=1)
