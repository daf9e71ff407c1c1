"""Melisma as a user gets it: the orchestrator on a simulated crew, records written."""

import asyncio
import tempfile

import numpy as np

from melisma.algorithms.averaging import Averaging
from melisma.algorithms.loop import train
from melisma.algorithms.task import ScheduledTask
from melisma.fleets.simulated import SimulatedLearners
from melisma.learning.data import Dataset
from melisma.learning.parameters import Parameters
from melisma.learning.samples import pairs
from melisma.learning.settings import Hardware, Training
from melisma.runs import records
from melisma.runs.store import RunWriter
from melisma.system.law import DelayLaw
from peers.meter import Meter
from peers.workload import (
    BATCH,
    RATE,
    SAMPLES,
    Workload,
    initial_model,
    pool,
    rows,
)


def run(workload: Workload, meter: Meter, threads: int = 1) -> Parameters:
    """Federated mode; by the delay law an epoch takes 1 s, so that just one fits."""
    K = workload.learners
    x, y = pool()
    x = x.view(-1, 1, 28, 28)
    model = initial_model()
    data = Dataset("normal", pairs(x, y), pairs(x[:10], y[:10]))
    law = DelayLaw(
        step_s=np.full(K, 1.0 / SAMPLES), sample_s=np.zeros(K), fixed_s=np.zeros(K)
    )
    crew = SimulatedLearners(
        [f"learner {k}" for k in range(K)],
        law,
        model=model,
        samples=data.train,
        training=Training(rate=RATE, batch=BATCH, shuffle=False),
        seed=0,
        own_rows=[rows(k) for k in range(K)],
        hardware=Hardware(threads=threads),
    )
    task = ScheduledTask(
        name="benchmark",
        model=model,
        data=data,
        scheme="eta",
        cycles=workload.cycles,
        deadline_s=1.5,
        seed=0,
    )
    with tempfile.TemporaryFile() as file:

        def sink(record: records.Record) -> None:
            records.write(record, file)
            if isinstance(record, records.Evaluated):
                meter.tick()

        meter.tick()
        return asyncio.run(train(task, crew, Averaging(crew), RunWriter(watch=sink)))
