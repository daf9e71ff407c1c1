"""FedBuff as melisma simulates it: ``python async_ours.py problem.npz weights.npz``.

Learner k's orders take 1 s and a little more for each k: updates arrive in turn. Those
of ``unlike`` learners take between 1 and 10 s, and updates arrive in any order. The
model is evaluated after every buffer, on ten images; records and checkpoints are
written, as by ``melisma simulate``.
"""

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from melisma.algorithms.asynchronous import Asynchronous
from melisma.algorithms.asynchronous.fedbuff import FedBuff
from melisma.algorithms.loop import train
from melisma.algorithms.task import ScheduledTask
from melisma.fleets.flow import SimulatedFlow
from melisma.learning.data import Dataset
from melisma.learning.models import build
from melisma.learning.parameters import put, to_arrays, trained
from melisma.learning.samples import pairs
from melisma.learning.servers import server_for
from melisma.learning.settings import Merging, Training
from melisma.runs.store import RunWriter
from melisma.system.law import DelayLaw


def task_of(data: Any) -> tuple[ScheduledTask, SimulatedFlow]:
    """Return the task, and its learners."""
    K, rounds = int(data["learners"]), int(data["rounds"])
    x, y = torch.from_numpy(data["x"]).view(-1, 1, 28, 28), torch.from_numpy(data["y"])
    model = build("TwoNN", seed=0)
    put({n: torch.from_numpy(data[n]) for n in trained(model)}, model)
    training = Training(
        rate=float(data["rate"]), batch=int(data["batch"]), shuffle=False
    )
    task = ScheduledTask(
        name="benchmark",
        model=model,
        data=Dataset("mnist-5k", pairs(x, y), pairs(x[:10], y[:10])),
        scheme="async:fedbuff",
        cycles=rounds * K // int(data["buffer"]),
        deadline_s=20.0,
        seed=0,
        steps=int(data["epochs"]),
        training=training,
        federated=True,
    )
    # The last learner's update of a round comes before the first one's of the next.
    order_s = 1.0 + np.arange(K) / (K * (rounds + 1))
    if data["unlike"]:
        order_s = np.random.default_rng(0).uniform(1.0, 10.0, K)
    learners = SimulatedFlow(
        [f"learner {k}" for k in range(K)],
        DelayLaw(step_s=np.full(K, 1e-9), sample_s=np.zeros(K), fixed_s=order_s),
        model=model,
        samples=task.data.train,
        training=training,
        seed=0,
        own_rows=np.array_split(np.arange(len(y)), K),
    )
    return task, learners


def main(problem: str, weights: str) -> None:
    """Train, print the seconds as JSON, and write the weights."""
    torch.set_num_threads(1)
    data = np.load(problem)
    task, learners = task_of(data)
    buffer = int(data["buffer"])
    rule = FedBuff(server_for(Merging()), trained(task.model).keys(), buffer)
    algorithm = Asynchronous(learners, rule, updates=buffer)
    with (
        tempfile.TemporaryDirectory() as folder,
        RunWriter.open(Path(folder, "run"), "", seldom=True) as run,
    ):
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        final = asyncio.run(train(task, learners, algorithm, run))
        seconds = time.perf_counter() - began_s
        cpu_s = time.process_time() - began_cpu_s
    arrays: dict[str, Any] = {**to_arrays(final)}
    np.savez(weights, **arrays)
    print(json.dumps({"wall_s": seconds, "cpu_s": cpu_s, "versions": task.cycles}))


if __name__ == "__main__":
    main(*sys.argv[1:])
