"""The order of a learner's batches, for the learner itself and for who checks it."""

import zlib
from collections.abc import Iterator

import numpy as np

from melisma.fleets.messages import TrainRequest
from melisma.learning.settings import Training
from melisma.learning.training import batch_plan
from melisma.maths.arrays import Ints
from melisma.system.streams import Stream

#: Samples of all passes that are planned at once by who goes through a plan in parts.
_TOGETHER = 1 << 20


def batch_order(seed: int, cycle: int, name: str) -> np.random.Generator:
    """Return the generator from which a learner draws its batches of a cycle."""
    return np.random.default_rng(
        [seed, Stream.LEARNER, cycle, zlib.crc32(name.encode())]
    )


def batches_of(
    request: TrainRequest, training: Training, rng: np.random.Generator
) -> Ints:
    """Return the rows of each batch of a request, counted through its shards.

    A probe's samples are a part of their own: they were trained on before the rest.
    """
    plans = [batch_plan(part, request.steps, training, rng) for part in _parts(request)]
    return np.concatenate(plans)


def first_batches(
    request: TrainRequest,
    training: Training,
    rng: np.random.Generator,
    batches: int,
) -> Iterator[Ints]:
    """Yield the first ``batches`` of `batches_of` in pieces, in a bounded memory."""
    for part in _parts(request):
        at_once = max(1, _TOGETHER // max(1, len(part)))
        for begun in range(0, request.steps, at_once):
            steps = min(at_once, request.steps - begun)
            piece = batch_plan(part, steps, training, rng)[:batches]
            batches -= len(piece)
            yield piece
            if not batches:
                return


def samples_in(request: TrainRequest, training: Training, batches: int) -> int:
    """Return the distinct samples of a request's first batches: every pass has all."""
    seen = 0
    for part in _parts(request):
        per_pass = -(-len(part) // training.batch)
        seen += min(len(part), batches * training.batch)
        batches = max(0, batches - per_pass * request.steps)
    return seen


def _parts(request: TrainRequest) -> list[Ints]:
    cuts = [request.first] if request.first else []
    return np.split(np.arange(request.samples), cuts)
