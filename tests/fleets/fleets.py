"""Small fleets that tests share: four pixels, two classes, learners by law."""

import asyncio
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn

from melisma.algorithms.averaging import Averaging
from melisma.algorithms.loop import train
from melisma.algorithms.task import ScheduledTask
from melisma.fleets.protocols import Order, Trains, Updates
from melisma.fleets.simulated import Conditions, SimulatedLearners
from melisma.learning.data import Dataset
from melisma.learning.parameters import Parameters, parameters_of
from melisma.learning.samples import pairs
from melisma.learning.settings import Hardware, Training
from melisma.maths.arrays import Ints
from melisma.runs.records import Record
from melisma.runs.store import RunWriter, ignore
from melisma.system.law import DelayLaw


def small_data(rows: int = 40) -> Dataset:
    source = torch.Generator().manual_seed(0)
    x = torch.randn(rows, 1, 2, 2, generator=source)
    y = (x.sum(dim=(1, 2, 3)) > 0).long()
    return Dataset("small", pairs(x, y), pairs(x[:10], y[:10]))


def small_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))


def law(step_s: ArrayLike, sample_s: ArrayLike, fixed_s: ArrayLike) -> DelayLaw:
    return DelayLaw(
        step_s=np.asarray(step_s, dtype=float),
        sample_s=np.asarray(sample_s, dtype=float),
        fixed_s=np.asarray(fixed_s, dtype=float),
    )


def fleet_of(
    delays: DelayLaw,
    conditions: Conditions | None = None,
    *,
    batch: int = 4,
    rate: float = 0.1,
    seed: int = 0,
    threads: int = 1,
    own_rows: Sequence[Ints] | None = None,
) -> SimulatedLearners:
    return SimulatedLearners(
        [f"learner-{k}" for k in range(len(delays.step_s))],
        delays,
        model=small_model(),
        samples=small_data().train,
        training=Training(batch=batch, rate=rate),
        seed=seed,
        conditions=conditions,
        hardware=Hardware(threads=threads),
        own_rows=own_rows,
    )


def carried_out(
    fleet: Trains, orders: Sequence[Order], deadline_s: float
) -> list[Updates]:
    async def collect() -> list[Updates]:
        parameters, arrived = parameters_of(small_model()), []
        async for updates in fleet.train(orders, parameters, deadline_s):
            assert isinstance(updates, Updates)
            arrived.append(updates)
        return arrived

    return asyncio.run(collect())


def task_of(scheme: str, deadline_s: float, **changes: object) -> ScheduledTask:
    options: dict[str, object] = {
        "name": "small",
        "model": small_model(),
        "data": small_data(),
        "scheme": scheme,
        "cycles": 2,
        "deadline_s": deadline_s,
        "seed": 0,
    }
    return ScheduledTask(**(options | changes))  # type: ignore[arg-type]


def ran(task: ScheduledTask, crew: Trains) -> tuple[Parameters, list[Record]]:
    run = RunWriter()
    return asyncio.run(train(task, crew, Averaging(crew), run)), run.records


class Watched(RunWriter):
    """A run in memory whose records and checkpoints a test sees."""

    def __init__(
        self,
        watch: Callable[[Record], None] = ignore,
        past: Sequence[Record] = (),
        keep: Callable[[int, Parameters], None] = lambda cycle, parameters: None,
    ) -> None:
        super().__init__(list(past), watch)
        self._keep_in_test = keep

    def keep(self, cycle: int, time_s: float, parameters: Parameters) -> None:
        self._keep_in_test(cycle, parameters)
