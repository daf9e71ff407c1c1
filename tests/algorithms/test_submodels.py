"""Whole runs of parts of a model, against loops over every entry."""

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
from melisma.fleets.ways import Ways
from melisma.learning.losses import LOSSES
from melisma.learning.parameters import Parameters
from melisma.learning.servers import server_for
from melisma.learning.settings import Merging, ServerRule, Training, Weights
from melisma.learning.submodels import Example, Part, submodel_of
from melisma.learning.way import Way
from melisma.runs.store import RunWriter

OWN = [np.arange(0, 6), np.arange(6, 16), np.arange(16, 40)]
LAW = law([0.02, 0.05, 0.1], [0.0, 0.0, 0.0], [0.2, 0.2, 0.2])
CYCLES = 3

#: A learner's place, batches, update and part.
Seen = tuple[int, int, Parameters, Part | None]


class Watched(SimulatedLearners):
    """Keeps what learners were given and sent."""

    cycles: list[tuple[Parameters, list[Seen]]]

    async def train(
        self, orders: Sequence[Order], parameters: Parameters, deadline_s: float
    ) -> AsyncIterator[Updates | Lost]:
        seen: list[Seen] = []
        self.cycles.append((parameters, seen))
        async for item in super().train(orders, parameters, deadline_s):
            if isinstance(item, Updates):
                for row, r in enumerate(item.reports):
                    update = {n: v[row].clone() for n, v in item.parameters.items()}
                    seen.append((r.learner, r.batches, update, item.part))
            yield item


def run(submodels: Sequence[str | None], merging: Merging) -> Watched:
    model, data, names = small_model(), small_data(), ["a", "b", "c"]
    example = Example(LOSSES["cross-entropy"], data.train[:4])
    parts = [
        None if w is None else submodel_of(w).part(model, example) for w in submodels
    ]
    ways = [Way(), *(Way(part=part) for part in parts if part)]
    fixed = {n: ways.index(Way(part=p)) for n, p in zip(names, parts, strict=True) if p}
    training = Training(batch=4, rate=0.1)
    crew = Watched(
        *(names, LAW),
        model=model,
        samples=data.train,
        training=training,
        seed=0,
        own_rows=OWN,
        ways=Ways(each=ways, fixed=fixed),
    )
    crew.cycles = []
    task = task_of(
        *("csa", 5.0),
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


def by_loops(
    weights: Weights, before: Parameters, seen: Sequence[Seen], name: str
) -> list[tuple[float, bool]]:
    """Each entry's mean, by those alone who have it, and whether anybody has."""
    found = []
    start = before[name].double().flatten().tolist()
    whole = []
    for k, batches, update, part in seen:
        has = torch.ones_like(before[name], dtype=torch.bool)
        values = update.get(name, before[name])
        if part is not None:
            has = part.mask(before)[name]
            values = part.spread(update, before)[name]
        w = {Weights.LEARNERS: 1.0}.get(weights, float(len(OWN[k])))
        a = float(batches) if weights == Weights.FEDNOVA else 1.0
        whole.append((w, a, values.double().flatten().tolist(), has.flatten().tolist()))
    for i, entry in enumerate(start):
        those = [(w, a, values[i]) for w, a, values, has in whole if has[i]]
        total = sum(w for w, _, _ in those)
        if not total:
            found.append((entry, False))
            continue
        long = sum(w / total * a for w, a, _ in those)
        change = sum(w / total / a * (value - entry) for w, a, value in those)
        found.append((entry + long * change, True))
    return found


PARTS = [
    (None, "width 0.6", "width 0.3"),
    ("width 0.6", "width 0.6", "width 0.3"),  # nobody has all
    ("freeze 0.5", None, "width 0.6"),
]


@pytest.mark.slow
@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize(
    "weights",
    [
        Weights.FEDNOVA,
        pytest.param(Weights.DATA, marks=pytest.mark.slow),
        pytest.param(Weights.LEARNERS, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("momentum", [0.9, pytest.param(0.0, marks=pytest.mark.slow)])
def test_each_entry_moves_by_those_who_trained_it(
    parts: tuple[str | None, ...], weights: Weights, momentum: float
) -> None:
    merging = Merging(weights=weights, server=ServerRule.SGD, momentum=momentum)
    crew, velocity = run(parts, merging), dict[tuple[str, int], float]()
    for (before, seen), (after, _) in zip(crew.cycles, crew.cycles[1:], strict=False):
        assert len(seen) == 3
        assert len({batches for _, batches, _, _ in seen}) > 1  # unequal work
        for name, tensor in after.items():
            means = by_loops(weights, before, seen, name)
            starts, ends = before[name].flatten().tolist(), tensor.flatten().tolist()
            for i, (mean, trained) in enumerate(means):
                v = momentum * velocity.get((name, i), 0.0) + mean - starts[i]
                velocity[name, i] = v
                if trained:
                    assert ends[i] == pytest.approx(starts[i] + v, abs=2e-6)
                else:
                    assert ends[i] == starts[i]


def test_an_update_has_the_size_of_its_part() -> None:
    crew = run(("freeze 0.5", None, "width 0.6"), Merging())
    by_name = {k: update for k, _, update, _ in crew.cycles[0][1]}
    assert {n: tuple(t.shape) for n, t in by_name[0].items()} == {
        "3.weight": (2, 3),
        "3.bias": (2,),
    }
    assert len(by_name[1]) == 4
    assert by_name[2]["1.weight"].shape == (2, 4)
    assert by_name[2]["3.weight"].shape == (2, 2)


def test_updates_of_parts_are_clipped_by_their_own_length() -> None:
    crew = run((None, "width 0.6", "width 0.3"), Merging(clip=0.01))
    for (before, seen), (after, _) in zip(crew.cycles, crew.cycles[1:], strict=False):
        moved = sum(float((after[n] - t).square().sum()) for n, t in before.items())
        # Every entry is a mean of three changes, none longer than 0.01.
        assert moved**0.5 <= 0.01 * len(seen)
        assert moved > 0
