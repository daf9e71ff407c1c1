"""Spot checks: was the work that a learner claims really done?

The orchestrator has the data and knows the order of batches, so it can redo an update
and compare. Chance decides whose, drawn from the system's own entropy once the update
is here, and suspicion raises it; only a redone update convicts.
"""

import asyncio
from collections import deque

import numpy as np

from melisma.fleets.messages import TaskSpec, TrainRequest, Update
from melisma.learner.training import batch_order, batches_of
from melisma.learning.checks import (
    Gap,
    Losses,
    check_repeatable,
    distance,
    gap,
    honest,
    is_redone,
    losses,
    redone,
    samples_seen,
    suspicion,
    usual,
)
from melisma.learning.parameters import Model, Parameters
from melisma.learning.settings import Optimiser, Training
from melisma.learning.shards import Examples, ShardStore, unpacked
from melisma.maths.arrays import Ints

#: Shards, of the learner's own and of others, whose loss is looked at.
LOOKED_AT = 10
#: Updates that say what is usual.
REMEMBERED = 50


class Audit:
    """Redoes a share of the updates, and more of the suspicious ones.

    Raises ConfigError for a model whose training cannot be repeated.
    """

    def __init__(
        self, model: Model, shelf: ShardStore, spec: TaskSpec, share: float
    ) -> None:
        check_repeatable(model)
        self._model, self._shelf, self._spec = model, shelf, spec
        self._training = Training(
            optimiser=Optimiser(spec.optimiser), rate=spec.rate, batch=spec.batch
        )
        self._share, self._chance = share, np.random.default_rng()
        self._gaps: deque[Gap] = deque(maxlen=REMEMBERED)

    async def __call__(
        self, name: str, request: TrainRequest, update: Update, sent: Parameters
    ) -> tuple[str, float | None]:
        """Return why an update is refused, or nothing; and how far off it is."""
        rng = batch_order(self._spec, request.cycle, name)
        plan = batches_of(request, self._training, rng)[: update.batches]
        if update.samples > (seen := samples_seen(plan)):
            return f"{update.samples} samples claimed where {seen} were seen", None
        if not len(plan):
            return "", None
        suspect = await asyncio.to_thread(self._suspicion, request, update, sent)
        if not is_redone(self._share, suspect, self._chance):
            return "", None
        off = await asyncio.to_thread(self._off, request, update, sent, plan)
        if honest(off):
            return "", off
        return f"not what its work leads to ({off:.2g} of it off)", off

    def _suspicion(
        self, request: TrainRequest, update: Update, sent: Parameters
    ) -> float:
        """Look at the loss on some of its shards and on some of others'."""
        others = self._shelf.others(request.keys, LOOKED_AT, self._chance)
        if not others:
            return 0.0
        own = self._chance.permutation(request.keys)[:LOOKED_AT].tolist()
        passes = update.batches * self._training.batch / request.samples
        seen = gap(
            self._losses(own, update, sent), self._losses(others, update, sent), passes
        )
        self._gaps.append(seen)
        return suspicion(seen, usual(self._gaps))

    def _losses(self, keys: list[str], update: Update, sent: Parameters) -> Losses:
        examples = self._examples(keys)
        return Losses(
            losses(self._model, sent, *examples),
            losses(self._model, update.parameters, *examples),
        )

    def _off(
        self, request: TrainRequest, update: Update, sent: Parameters, plan: Ints
    ) -> float:
        x, y = self._examples(request.keys)
        ours = redone(self._model, sent, x, y, plan, self._training)
        return distance(update.parameters, ours, sent)

    def _examples(self, keys: list[str]) -> Examples:
        return unpacked(self._shelf.take(keys))
