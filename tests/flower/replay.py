"""A run done again from its records, by plain code: what the model must have become."""

import zlib
from collections.abc import Sequence

import numpy as np
import torch

from melisma.algorithms.averaging import share_out
from melisma.jobs.building import task_of
from melisma.jobs.schema import Job
from melisma.learning.parameters import Parameters, parameters_of, put
from melisma.learning.samples import Part
from melisma.learning.training import batch_plan, train
from melisma.maths.arrays import Ints
from melisma.runs import records
from melisma.runs.records import Record
from melisma.system.problem import Allocation
from melisma.system.streams import Stream


def replayed(
    job: Job, happened: Sequence[Record], own_rows: dict[str, Ints] | None = None
) -> Parameters:
    """Train what each learner trained, one after the other; take the weighted mean."""
    task = task_of(job)
    training = task.training
    model = task.model
    for cycle in range(1, task.cycles + 1):
        now = [record for record in happened if record.cycle == cycle]
        given = [r for r in now if isinstance(r, records.Allocated)]
        trained = {
            r.learner: r for r in now if isinstance(r, records.Trained | records.Halted)
        }
        dropped = {r.learner for r in now if isinstance(r, records.Dropped)}
        orders = share_out(
            task,
            Allocation(
                samples=np.array([r.samples // task.shard for r in given]),
                steps=np.array([r.steps for r in given]),
            ),
            cycle,
            None if own_rows is None else [len(own_rows[r.learner]) for r in given],
        )
        before, sums, samples = parameters_of(model), dict[str, torch.Tensor](), 0
        for record, order in zip(given, orders, strict=True):
            if record.learner in dropped or record.learner not in trained:
                continue
            done = trained[record.learner]
            who = zlib.crc32(record.learner.encode())
            rng = np.random.default_rng([job.seed, Stream.LEARNER, cycle, who])
            rows = order.rows
            if own_rows is not None:
                own = own_rows[record.learner]
                rows = own[rng.permutation(len(own))[: order.samples]]
            assert rows is not None
            dealt = Part(task.taken.train, rows)
            plan = batch_plan(np.arange(len(rows)), order.steps, training, rng)
            put(before, model)
            train(model, dealt, plan[: done.batches], training)
            for name, value in parameters_of(model).items():
                sums[name] = sums.get(name, 0) + done.samples * value.double()
            samples += done.samples
        mean = {name: (value / samples).float() for name, value in sums.items()}
        put(mean or before, model)
    return parameters_of(model)


def farthest(one: Parameters, other: Parameters) -> float:
    """The greatest difference between two models' parameters."""
    return max(float((one[name] - other[name]).abs().max()) for name in one)
