"""A run done again from its records, in plain PyTorch: what its model must be.

The records say who was allocated how many samples and passes, and how many batches and
samples of them were trained. Which samples those were follows from the job's seed:

    shards    are shuffled by [seed, 2, cycle], and dealt in the records' order
    own data  is dealt by [seed, 3], and each cycle's drawn by [seed, 4, cycle, name]
    batches   of each pass are shuffled by [seed, 4, cycle, name]
"""

import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tests.examples.own import PLAIN, Batch, Plain, made
from torch import Tensor, nn

import melisma as mel
from melisma.jobs.building import task_of
from melisma.jobs.schema import Job
from melisma.learning.kernels import fast_kernels
from melisma.runs.records import Record

Rows = NDArray[np.int64]
State = dict[str, Tensor]
BATCH = 32


def replayed(job: Job, happened: Sequence[Record]) -> State:
    """Return the state of the model after the last cycle."""
    plain, model = PLAIN[job.name], made(job.name, job.seed)
    samples, start = task_of(job).data.train, _state(model)
    for cycle in range(1, job.cycles + 1):
        updates, weights = list[State](), list[float]()
        for batches, own, record in _work(job, len(samples), happened, cycle):
            assert record.batches <= len(batches)
            model.load_state_dict(start)
            with fast_kernels(model):  # as on learners: rounding depends on it
                _train(model, plain, (samples[b] for b in batches[: record.batches]))
            updates.append(_state(model))
            weights.append(own if job.mode == "federated" else record.samples)
        start = _mean(updates, weights)
    return start


def _state(model: nn.Module) -> State:
    return {name: value.clone() for name, value in model.state_dict().items()}


def _work(
    job: Job, size: int, happened: Sequence[Record], cycle: int
) -> Iterator[tuple[list[Rows], int, Any]]:
    """Yield the batches of each learner, the samples it has, and what it trained."""
    now: dict[type, list[Any]] = defaultdict(list)
    for record in happened:
        if record.cycle == cycle:
            now[type(record)].append(record)
    assert not now[mel.Dropped]
    done = {r.learner: r for r in now[mel.Trained] + now[mel.Halted]}
    assert len(done) == len([r for r in now[mel.Allocated] if r.samples])
    order = np.random.default_rng([job.seed, 2, cycle]).permutation(size // job.shard)
    owners = np.array_split(
        np.random.default_rng([job.seed, 3]).permutation(size), len(now[mel.Allocated])
    )
    for given, own in zip(now[mel.Allocated], owners, strict=True):
        who = zlib.crc32(given.learner.encode())
        rng = np.random.default_rng([job.seed, 4, cycle, who])
        if job.mode == "federated":
            rows = own[rng.permutation(len(own))[: given.samples]]
        else:
            shards = given.samples // job.shard
            dealt, order = order[:shards], order[shards:]
            rows = (dealt[:, None] * job.shard + np.arange(job.shard)).ravel()
        if given.samples:
            passes = rng.permuted(
                np.tile(np.arange(len(rows)), (given.steps, 1)), axis=1
            )
            cuts = range(BATCH, len(rows), BATCH)
            batches = [rows[b] for one in passes for b in np.split(one, cuts)]
            yield batches, len(own), done[given.learner]


def _train(model: nn.Module, plain: Plain, batches: Iterable[Batch]) -> None:
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimiser = plain.optimiser(parameters, **plain.arguments)
    for batch in batches:
        optimiser.zero_grad()
        plain.loss(model, batch).backward()  # type: ignore[no-untyped-call]
        if plain.clip:
            nn.utils.clip_grad_norm_(parameters, plain.clip)
        optimiser.step()


def _mean(updates: list[State], weights: list[float]) -> State:
    """Average by weight; of three or more, none weighs more than all the others."""
    heaviest = max(weights)
    if len(weights) > 2:
        others = sum(weights) - heaviest
        weights[weights.index(heaviest)] = min(heaviest, others)
    total = sum(weights)
    return {
        name: torch.stack(
            [
                w / total * u[name].double()
                for u, w in zip(updates, weights, strict=True)
            ]
        )
        .sum(dim=0)
        .float()
        for name in updates[0]
    }
