"""Spot checks of updates: some are redone and compared.

The orchestrator has the data and knows the order of batches, so it can repeat a
learner's work. Which updates are redone is drawn from the system's entropy once they
have arrived, suspicious ones more often; only a redone update can be refused.
"""

import asyncio
from collections import deque

import numpy as np

from melisma.fleets.batches import batch_order, batches_of
from melisma.fleets.messages import TaskSpec, TrainRequest, Update
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
from melisma.learning.shards import Examples, ShardStore, unpacked
from melisma.maths.arrays import Ints

#: Shards, of the learner's own and of others, whose loss is compared.
COMPARED = 10
#: Latest updates that define what is usual.
REMEMBERED = 50


class Audit:
    """Redoes a share of the updates, and more of the suspicious ones.

    Raises ConfigError for a model whose training cannot be repeated.
    """

    def __init__(
        self, model: Model, store: ShardStore, spec: TaskSpec, share: float
    ) -> None:
        check_repeatable(model)
        self._model, self._store = model, store
        self._seed, self._training = spec.seed, spec.training
        self._share, self._chance = share, np.random.default_rng()
        self._gaps: deque[Gap] = deque(maxlen=REMEMBERED)

    async def __call__(
        self, name: str, request: TrainRequest, update: Update, sent: Parameters
    ) -> tuple[str, float | None]:
        """Return why an update is refused, or nothing, and its distance if redone."""
        rng = batch_order(self._seed, request.cycle, name)
        plan = batches_of(request, self._training, rng)[: update.batches]
        if update.samples > (seen := samples_seen(plan)):
            return f"{update.samples} samples claimed where {seen} were seen", None
        if not len(plan):
            return "", None
        suspect = await asyncio.to_thread(self._suspicion, request, update, sent)
        if not is_redone(self._share, suspect, self._chance):
            return "", None
        off = await asyncio.to_thread(self._distance, request, update, sent, plan)
        if honest(off):
            return "", off
        return f"not what its work leads to ({off:.2g} of it off)", off

    def _suspicion(
        self, request: TrainRequest, update: Update, sent: Parameters
    ) -> float:
        """Compare the loss on some of its shards with that on other shards."""
        others = self._store.others(request.keys, COMPARED, self._chance)
        if not others:
            return 0.0
        own = self._chance.permutation(request.keys)[:COMPARED].tolist()
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

    def _distance(
        self, request: TrainRequest, update: Update, sent: Parameters, plan: Ints
    ) -> float:
        x, y = self._examples(request.keys)
        ours = redone(self._model, sent, x, y, plan, self._training)
        return distance(update.parameters, ours, sent)

    def _examples(self, keys: list[str]) -> Examples:
        return unpacked(self._store.take(keys))
