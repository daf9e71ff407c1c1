"""The order of a learner's batches, for the learner itself and for who checks it."""

import zlib

import numpy as np

from melisma.fleets.messages import TrainRequest
from melisma.learning.settings import Training
from melisma.learning.training import batch_plan
from melisma.maths.arrays import Ints
from melisma.system.streams import Stream


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
    cuts = [request.first] if request.first else []
    parts = np.split(np.arange(request.samples), cuts)
    plans = [batch_plan(part, request.steps, training, rng) for part in parts]
    return np.concatenate(plans)
