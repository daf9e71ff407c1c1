"""Spot checks of updates: some are redone and compared.

The orchestrator has the data and knows the order of batches, so it can repeat a
learner's work. Which updates are redone is drawn from the system's entropy once they
have arrived, suspicious ones more often; only a redone update can be refused.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterator

import numpy as np

from melisma.fleets.batches import batch_order, first_batches, samples_in
from melisma.fleets.messages import TrainRequest, Update
from melisma.learning.checks import (
    Gap,
    Losses,
    check_known,
    check_repeatable,
    distance,
    gap,
    honest,
    is_redone,
    losses,
    redone_unless,
    suspicion,
    usual,
)
from melisma.learning.losses import loss_of, transform_of
from melisma.learning.parameters import Model, Parameters
from melisma.learning.samples import Arrays, Samples, joined
from melisma.learning.settings import Training
from melisma.learning.shards import ShardStore
from melisma.maths.arrays import Ints

log = logging.getLogger("melisma.orchestrator")

#: Shards, of the learner's own and of others, whose loss is compared.
COMPARED = 10
#: Latest updates that define what is usual.
REMEMBERED = 50
#: Deadlines that redoing an update may take: as long as its learner had. A learner that
#: claims more work than that delays its cycle by no more.
LONGEST_REDO = 1.0


class Audit:
    """Redoes a share of the updates, and more of the suspicious ones.

    Raises ConfigError for a model whose training cannot be repeated.
    """

    def __init__(
        self,
        model: Model,
        store: ShardStore,
        training: Training,
        *,
        seed: int,
        share: float,
    ) -> None:
        check_repeatable(model)
        check_known(model)
        self._model, self._store = model, store
        self._seed, self._training = seed, training
        self._share, self._chance = share, np.random.default_rng()
        self._gaps: deque[Gap] = deque(maxlen=REMEMBERED)

    async def __call__(
        self, name: str, request: TrainRequest, update: Update, sent: Parameters
    ) -> tuple[str, float | None]:
        """Return why an update is refused, or nothing, and its distance if redone."""
        seen = samples_in(request, self._training, update.batches)
        if update.samples > seen:
            return f"{update.samples} samples claimed where {seen} were seen", None
        if not update.batches:
            return "", None
        suspect = await asyncio.to_thread(self._suspicion, request, update, sent)
        if not is_redone(self._share, suspect, self._chance):
            return "", None
        rng = batch_order(self._seed, request.cycle, name)
        plan = first_batches(request, self._training, rng, update.batches)
        off = await asyncio.to_thread(self._distance, request, update, sent, plan)
        if off is None:
            log.warning("an update of %s takes too long to redo: not checked", name)
            return "", None
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
        size = request.samples // len(request.keys)
        if min(len(own), len(others)) * size < 2:
            return 0.0  # too few samples to compare
        passes = update.batches * self._training.batch / request.samples
        seen = gap(
            self._losses(own, update, sent), self._losses(others, update, sent), passes
        )
        self._gaps.append(seen)
        return suspicion(seen, usual(self._gaps))

    def _losses(self, keys: list[str], update: Update, sent: Parameters) -> Losses:
        examples, loss = self._examples(keys), loss_of(self._training)
        return Losses(
            losses(self._model, sent, examples, loss),
            losses(self._model, update.parameters, examples, loss),
        )

    def _distance(
        self,
        request: TrainRequest,
        update: Update,
        sent: Parameters,
        plan: Iterator[Ints],
    ) -> float | None:
        """Redo an update; None if that takes too long."""
        until = time.monotonic() + LONGEST_REDO * request.deadline_s
        ours = redone_unless(
            lambda: time.monotonic() > until,
            self._model,
            sent,
            self._examples(request.keys),
            plan,
            self._training.at(request.cycle),
        )
        return None if ours is None else distance(update.parameters, ours, sent)

    def _examples(self, keys: list[str]) -> Samples:
        shards = joined(self._store.take(keys))
        return Arrays(transform_of(self._training)(shards))
