"""SCAFFOLD: against a few lines of the paper's own algorithm, and across a resume."""

import asyncio
import copy
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from tests.algorithms.resuming import whole_and_resumed
from tests.fleets.fleets import law, small_data, small_model, task_of
from torch.nn.functional import cross_entropy

from melisma.algorithms.averaging import Averaging
from melisma.algorithms.controls import Controls, limited
from melisma.algorithms.loop import train
from melisma.algorithms.merging import Merger
from melisma.errors import ConfigError
from melisma.fleets.simulated import SimulatedLearners
from melisma.jobs.averaging import learners_of
from melisma.jobs.building import task_of as built
from melisma.jobs.families import family_of
from melisma.jobs.schema import (
    AggregationTable,
    DataTable,
    Job,
    Split,
    TaskTable,
    TrainingTable,
)
from melisma.learning.parameters import Parameters, norm_of, parameters_of
from melisma.learning.settings import (
    HERE,
    Correction,
    Late,
    Merging,
    Training,
    Weights,
)
from melisma.maths.arrays import Ints
from melisma.runs import records
from melisma.runs.store import RunWriter
from melisma.system.law import Mode
from melisma.units import Deadline

#: Whole batches in a fixed order, so that work can be redone by hand.
OWN = [np.arange(0, 8), np.arange(8, 16), np.arange(16, 32)]
TRAINING = Training(batch=8, rate=0.1, shuffle=False)
CORRECTED = AggregationTable(correction=Correction.SCAFFOLD)


def gradient(model: torch.nn.Module, rows: Ints) -> list[torch.Tensor]:
    batch = small_data().train[rows]
    loss = cross_entropy(model(batch["x"]), batch["y"])
    return list(torch.autograd.grad(loss, list(model.parameters())))


def by_the_paper(cycles: int, steps: list[int]) -> Parameters:
    """Algorithm 1, option II, with all clients and η_g = 1: c_i on the clients."""
    x = small_model()
    c = [torch.zeros_like(p) for p in x.parameters()]
    own = [[torch.zeros_like(p) for p in x.parameters()] for _ in OWN]
    for _ in range(cycles):
        changes, renewed = [], []
        for i, rows in enumerate(OWN):
            y = copy.deepcopy(x)
            batches = [b for _ in range(steps[i]) for b in rows.reshape(-1, 8)]
            for batch in batches:
                slopes = gradient(y, batch)
                with torch.no_grad():
                    for p, g, ci, ct in zip(
                        y.parameters(), slopes, own[i], c, strict=True
                    ):
                        p.sub_(0.1 * (g - ci + ct))
            ends = list(zip(x.parameters(), y.parameters(), strict=True))
            changes.append([b.detach() - a.detach() for a, b in ends])
            renewed.append(
                [
                    ci - ct - d / (0.1 * len(batches))
                    for ci, ct, d in zip(own[i], c, changes[-1], strict=True)
                ]
            )
        with torch.no_grad():
            for n, p in enumerate(x.parameters()):
                p.add_(torch.stack([change[n] for change in changes]).mean(dim=0))
                moved = [r[n] - o[n] for r, o in zip(renewed, own, strict=True)]
                c[n] = c[n] + torch.stack(moved).mean(dim=0)
        own = renewed
    return parameters_of(x)


def test_the_model_is_that_of_the_papers_algorithm() -> None:
    crew = SimulatedLearners(
        ["a", "b", "c"],
        law([0.02, 0.05, 0.1], [0.0] * 3, [0.2] * 3),
        model=small_model(),
        samples=small_data().train,
        training=TRAINING,
        seed=0,
        own_rows=OWN,
    )
    merging = Merging(weights=Weights.LEARNERS, correction=Correction.SCAFFOLD)
    task = task_of(
        "csa",
        5.0,
        federated=True,
        samples=None,
        merging=merging,
        training=TRAINING,
        cycles=4,
    )
    run = RunWriter(watch=(found := list[records.Record]()).append)
    algorithm = Averaging(crew, merger=Merger(controls=Controls()))
    final = asyncio.run(train(task, crew, algorithm, run))
    given = {r.learner: r.steps for r in found if isinstance(r, records.Allocated)}
    steps = [given[name] for name in "abc"]
    assert len(set(steps)) > 1
    for name, value in by_the_paper(4, steps).items():
        torch.testing.assert_close(final[name], value, atol=1e-5, rtol=1e-4)


JOB = Job(
    mode=Mode.FEDERATED,
    cycles=5,
    deadline=Deadline(1.0),
    samples=400,
    data=DataTable(split=Split.DIRICHLET, alpha=0.1),
    aggregation=CORRECTED,
)


@pytest.mark.slow
def test_a_resumed_run_goes_on_with_its_controls(tmp_path: Path) -> None:
    whole, resumed = whole_and_resumed(JOB, tmp_path, after=3)
    assert whole == resumed


def test_a_correction_takes_the_time_of_a_model_on_its_way_to_learners() -> None:
    plain = msgspec.structs.replace(JOB, aggregation=AggregationTable())
    laws = [asyncio.run(learners_of(job, HERE)[1].law()) for job in (plain, JOB)]
    assert laws[1].fixed_s == pytest.approx(1.5 * laws[0].fixed_s)
    assert laws[1].step_s == pytest.approx(laws[0].step_s)


@pytest.mark.parametrize(
    "job",
    [
        Job(aggregation=CORRECTED),
        Job(mode=Mode.FEDERATED, late=Late.CARRY, aggregation=CORRECTED),
        Job(mode=Mode.FEDERATED, scheme="dab", aggregation=CORRECTED),
        Job(mode=Mode.FEDERATED, scheme="fog", aggregation=CORRECTED),
        Job(scheme="coded", aggregation=CORRECTED),
        Job(scheme="med", tasks=(TaskTable(name="a", aggregation=CORRECTED),)),
    ],
    ids=["parallel", "carry", "dab", "fog", "coded", "tasks"],
)
def test_only_averaged_updates_of_own_data_show_how_to_correct(job: Job) -> None:
    with pytest.raises(ConfigError, match="correction is for one task"):
        family_of(job).checked(job)


def test_steps_of_other_optimisers_do_not_show_gradients() -> None:
    training = TrainingTable(optimiser="adam")
    with pytest.raises(ConfigError, match="use sgd"):
        built(msgspec.structs.replace(JOB, training=training))


def test_who_lies_does_not_lead_the_others_astray() -> None:
    rng = torch.Generator().manual_seed(0)
    owned = {
        name: {"w": torch.randn(10, generator=rng), "b": torch.randn(2, generator=rng)}
        for name in "abcde"
    }
    owned["e"] = {n: 1e30 * t for n, t in owned["e"].items()}
    found = limited(owned, 5.0)
    middle = sorted(norm_of(own) for own in owned.values())[2]
    assert norm_of(found["e"]) == pytest.approx(5.0 * middle)
    for name in "abcd":
        assert found[name] is owned[name]
    direction = found["e"]["w"] / owned["e"]["w"]
    torch.testing.assert_close(direction, direction[:1].expand(10))
