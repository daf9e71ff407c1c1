"""Whole runs under each rule, against a few lines that do as the papers say."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import numpy as np
import pytest
import torch
from tests.fleets.fleets import law, small_data, small_model, task_of

from melisma.algorithms.averaging import Averaging
from melisma.algorithms.loop import train
from melisma.algorithms.merging import Merger
from melisma.fleets.protocols import Lost, Order, Updates
from melisma.fleets.simulated import SimulatedLearners
from melisma.learning.parameters import Parameters
from melisma.learning.servers import server_for
from melisma.learning.settings import Merging, ServerRule, Training, Weights
from melisma.runs.store import RunWriter

#: Data of unequal size on learners of unequal speed.
OWN = [np.arange(0, 6), np.arange(6, 16), np.arange(16, 40)]
LAW = law([0.02, 0.05, 0.1], [0.0, 0.0, 0.0], [0.2, 0.2, 0.2])
CYCLES = 3


class Watched(SimulatedLearners):
    """Keeps what learners were given and sent."""

    cycles: list[tuple[Parameters, list[tuple[int, int, int, Parameters]]]]

    async def train(
        self, orders: Sequence[Order], parameters: Parameters, deadline_s: float
    ) -> AsyncIterator[Updates | Lost]:
        seen: list[tuple[int, int, int, Parameters]] = []
        self.cycles.append((parameters, seen))
        async for item in super().train(orders, parameters, deadline_s):
            if isinstance(item, Updates):
                for row, r in enumerate(item.reports):
                    update = {n: v[row].clone() for n, v in item.parameters.items()}
                    seen.append((r.learner, r.samples, r.batches, update))
            yield item


def run(merging: Merging, training: Training) -> Watched:
    crew = Watched(
        ["a", "b", "c"],
        LAW,
        model=small_model(),
        samples=small_data().train,
        training=training,
        seed=0,
        own_rows=OWN,
    )
    crew.cycles = []
    task = task_of(
        "csa",
        5.0,
        federated=True,
        samples=None,
        merging=merging,
        training=training,
        cycles=CYCLES,
    )
    algorithm = Averaging(crew, merger=Merger(server_for(merging)))
    final = asyncio.run(train(task, crew, algorithm, RunWriter()))
    crew.cycles.append((final, []))
    return crew


def by_hand(
    weights: Weights, before: Parameters, seen: list[tuple[int, int, int, Parameters]]
) -> Parameters:
    """FedAvg's and FedNova's mean, in double precision."""
    p = {
        Weights.SAMPLES: [samples for _, samples, _, _ in seen],
        Weights.LEARNERS: [1] * len(seen),
    }.get(weights, [len(OWN[k]) for k, _, _, _ in seen])
    share = np.array(p) / sum(p)
    a = np.array([batches for _, _, batches, _ in seen], dtype=float)
    if weights != Weights.FEDNOVA:
        a[:] = 1.0
    effective = float(share @ a)
    after = {}
    for name, start in before.items():
        direction = sum(
            float(s / length) * (update[name].double() - start.double())
            for s, length, (_, _, _, update) in zip(share, a, seen, strict=True)
        )
        after[name] = start.double() + effective * direction
    return after


@pytest.mark.parametrize("weights", Weights)
def test_the_mean_is_that_of_the_papers(weights: Weights) -> None:
    crew = run(Merging(weights=weights), Training(batch=4, rate=0.1))
    for (before, seen), (after, _) in zip(crew.cycles, crew.cycles[1:], strict=False):
        assert len({batches for _, _, batches, _ in seen}) > 1  # unequal work
        expected = by_hand(weights, before, seen)
        for name, tensor in after.items():
            assert torch.allclose(tensor.double(), expected[name], atol=1e-6)


@pytest.mark.parametrize("weights", [Weights.DATA, Weights.FEDNOVA])
def test_the_server_steps_along_that_mean(weights: Weights) -> None:
    merging = Merging(weights=weights, server=ServerRule.NESTEROV)
    crew = run(merging, Training(batch=4, rate=0.1))
    velocity = {n: torch.zeros_like(t).double() for n, t in crew.cycles[0][0].items()}
    for (before, seen), (after, _) in zip(crew.cycles, crew.cycles[1:], strict=False):
        mean = by_hand(weights, before, seen)
        for name, start in before.items():
            delta = mean[name] - start.double()
            velocity[name] = 0.9 * velocity[name] + delta
            expected = start.double() + 0.7 * (delta + 0.9 * velocity[name])
            assert torch.allclose(after[name].double(), expected, atol=1e-5)
