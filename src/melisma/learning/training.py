"""Local training: τ passes over d samples, batch by batch, until halted."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from melisma.learning.devices import synchronise
from melisma.learning.kernels import fast_kernels
from melisma.learning.losses import mean_loss, precision_of, to_train
from melisma.learning.optimisers import Pull, optimiser_for
from melisma.learning.parameters import Parameters, trained
from melisma.learning.samples import Batch, Samples, length
from melisma.learning.settings import Precision, Training
from melisma.maths.arrays import Ints


class Trained(msgspec.Struct, frozen=True, kw_only=True):
    """What a learner really did: the part that every report of it has in common."""

    samples: int  #: samples seen at least once
    batches: int  #: batches trained
    loss: float  #: mean over all samples of all batches, each before its own update
    halted: bool  #: stopped before its work was done

    def fields(self) -> dict[str, Any]:
        """Return these fields alone, for a report that adds its own."""
        return {name: getattr(self, name) for name in Trained.__struct_fields__}


def batch_plan(
    rows: Ints, steps: int, training: Training, rng: np.random.Generator
) -> Ints:
    """Rows of each batch, in the order of training; −1 fills a pass's last batch.

    >>> plan = Training(batch=2, shuffle=False)
    >>> batch_plan(np.array([7, 8, 9]), 2, plan, np.random.default_rng(0)).tolist()
    [[7, 8], [9, -1], [7, 8], [9, -1]]
    """
    d, size = len(rows), training.batch
    per_pass = -(-d // size)
    order = np.tile(rows, (steps, 1))
    if training.shuffle:
        order = rng.permuted(order, axis=1)
    plan = np.full((steps, per_pass * size), -1, dtype=np.int64)
    plan[:, :d] = order
    return plan.reshape(steps * per_pass, size)


class Session:
    """Trains a model in place, in one or several calls, with one optimiser."""

    def __init__(self, model: nn.Module, training: Training) -> None:
        self._model, self._clip = model, training.clip
        self._trained = list(trained(model).values())
        self._proximal, self._pull = training.proximal, Pull((), 0.0)
        self._correction: list[Tensor] | None = None
        self._step = optimiser_for(self._trained, training)
        self._loss_of = to_train(training)
        # In bfloat16 the products are oneDNN's.
        self._half = precision_of(training) == Precision.BF16
        self._loss, self._passes = torch.tensor(0.0), 0
        self._batches, self._samples, self._due = 0, 0, 0

    def correct(self, correction: Parameters) -> None:
        """Add this to the gradient of every batch from now on, by name."""
        moving = trained(self._model)
        self._correction = [correction[n].to(p.device) for n, p in moving.items()]

    def train(
        self,
        samples: Samples,
        plan: Ints,
        halt: Callable[[], bool] = lambda: False,
    ) -> None:
        """Train on the rows of ``plan``; ask ``halt`` before each batch."""
        self._model.train()
        if not self._due:  # which is when the model is in place
            self._pull = Pull(self._trained, self._proximal, self._correction)
        self._due += len(plan)
        batches = 0
        with nullcontext() if self._half else fast_kernels(self._model):
            for batch in plan:
                if halt():
                    break
                self._train_batch(samples[batch[batch >= 0]])
                batches += 1
        self._batches += batches
        self._samples += np.unique(plan[:batches][plan[:batches] >= 0]).size

    def _train_batch(self, batch: Batch) -> None:
        self._step.zero_grad()
        loss = mean_loss(self._loss_of, self._model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        self._pull.add(self._trained, [p.grad for p in self._trained])
        if self._clip is not None:
            nn.utils.clip_grad_norm_(self._trained, self._clip)
        self._step.step()
        synchronise(loss.device)
        samples = length(batch)
        self._loss = torch.add(self._loss, loss.detach(), alpha=samples)
        self._passes += samples

    @property
    def passes(self) -> int:
        """Samples of all batches so far, each as often as it was trained on."""
        return self._passes

    def trained(self) -> Trained:
        """Return the work so far; calls are assumed to have no sample in common."""
        return Trained(
            samples=self._samples,
            batches=self._batches,
            loss=float(self._loss) / max(self._passes, 1),
            halted=self._batches < self._due,
        )


def train(
    model: nn.Module,
    samples: Samples,
    plan: Ints,
    training: Training,
    halt: Callable[[], bool] = lambda: False,
    correction: Parameters | None = None,
) -> Trained:
    """Train ``model`` in place on the rows of ``plan``; ask ``halt`` before each batch.

    A halted model keeps what it has learnt: its update is partial, not lost.
    """
    session = Session(model, training)
    if correction:
        session.correct(correction)
    session.train(samples, plan, halt)
    return session.trained()


def use_threads(threads: int) -> None:
    """Let torch use ``threads`` cores."""
    torch.set_num_threads(threads)
