"""Buffers of a model: averaged, or kept by each learner, as the task says."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.fleets.fleets import law
from tests.fleets.learners import Steady, changed, live, of
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import melisma as mel
from melisma.errors import ConfigError
from melisma.fleets.audit import Audit
from melisma.fleets.batches import batch_order
from melisma.fleets.messages import TrainRequest, Update
from melisma.fleets.protocols import Order, Updates
from melisma.fleets.simulated import SimulatedLearners
from melisma.jobs import multitask
from melisma.jobs.fog_table import FogTable
from melisma.jobs.live_task import LiveTask
from melisma.jobs.schema import Job, LearnersTable, TaskTable, TrainingTable, tasks_of
from melisma.launch import api
from melisma.launch.simulate import opened
from melisma.learner.source import Caller
from melisma.learning.aggregation import aggregate
from melisma.learning.batched import choice_for
from melisma.learning.engines import Lesson, one_by_one
from melisma.learning.evaluation import estimate_buffers
from melisma.learning.losses import loss_of
from melisma.learning.parameters import (
    Parameters,
    load,
    parameters_of,
    put,
    staying_of,
    with_buffers,
)
from melisma.learning.samples import Arrays, joined, pairs
from melisma.learning.settings import Buffers, Rule, Training
from melisma.learning.shards import ShardStore
from melisma.learning.training import batch_plan
from melisma.runs.records import Dropped, Evaluated
from melisma.runs.store import MODEL, RECORDS
from melisma.system.law import Mode
from melisma.units import BytesPerSecond, SamplesPerSecond

RNG = np.random.default_rng(0)
X = torch.from_numpy(RNG.normal(2.0, 3.0, size=(80, 5)).astype("f4"))
Y = (X.sum(dim=1) > 10).long()
LOCAL = Training(buffers=Buffers.LOCAL, batch=8, rate=0.1, shuffle=False)
STATISTICS = ["1.running_mean", "1.running_var"]


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def task(buffers: str = "local", make: Any = normed) -> mel.Task:
    return mel.Task(
        model=make,
        train={"x": X, "y": Y},
        test={"x": X[:20], "y": Y[:20]},
        rate=0.1,
        batch=8,
        buffers=buffers,
    )


def kept() -> mel.Task:
    return task()


def averaged() -> mel.Task:
    return task("average")


def seeded() -> nn.Module:
    torch.manual_seed(3)
    return normed()


def trained(model: nn.Module, x: Tensor, y: Tensor, plan: Any, rate: float) -> None:
    """Train as anyone would in plain PyTorch."""
    model.train()
    step = torch.optim.SGD(model.parameters(), lr=rate)
    for batch in plan:
        rows = torch.from_numpy(batch[batch >= 0])
        step.zero_grad()
        cross_entropy(model(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
        step.step()


def simulated(model: nn.Module, training: Training) -> SimulatedLearners:
    return SimulatedLearners(
        ["a", "b"],
        law([0.001] * 2, [0.0] * 2, [0.0] * 2),
        model=with_buffers(model, training.buffers),
        samples=pairs(X, Y),
        training=training,
        seed=0,
    )


ORDERS = [
    Order(learner=k, samples=n, steps=2, rows=np.arange(first, first + n))
    for k, n, first in ((0, 24, 0), (1, 40, 30))
]


def cycle(crew: SimulatedLearners, parameters: Parameters) -> Updates:
    async def collect() -> list[Any]:
        return [u async for u in crew.train(ORDERS, parameters, 100.0)]

    (updates,) = asyncio.run(collect())
    assert isinstance(updates, Updates)
    return updates


def near(found: Parameters, expected: Parameters) -> None:
    assert list(found) == list(expected)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6)


def test_simulated_learners_keep_buffers_as_plain_pytorch_would() -> None:
    crew, twins = simulated(seeded(), LOCAL), [seeded(), seeded()]
    parameters = parameters_of(with_buffers(seeded(), Buffers.LOCAL))
    for _ in range(3):
        updates = cycle(crew, parameters)
        assert not set(STATISTICS) & set(updates.parameters)
        for order, twin in zip(ORDERS, twins, strict=True):
            put(parameters, twin)
            plan = batch_plan(order.rows, order.steps, LOCAL, RNG)  # type: ignore[arg-type]
            trained(twin, X, Y, plan, 0.1)
        parameters = {n: rows.mean(dim=0) for n, rows in updates.parameters.items()}
    for name, twin in zip("ab", twins, strict=True):
        found = crew.state()
        mine = {k: found[f"buffers/{name}/{k}"] for k in dict(twin.named_buffers())}
        near(mine, dict(twin.named_buffers()))
    assert int(found["buffers/b/1.num_batches_tracked"]) == 3 * 2 * 5


def test_averaged_buffers_are_the_mean_by_samples() -> None:
    training = Training(batch=8, rate=0.1, shuffle=False)
    crew, sums = simulated(seeded(), training), dict[str, Tensor]()
    updates = cycle(crew, parameters_of(seeded()))
    merge = aggregate(Rule.MEAN, trim=0.1)
    merge.add(updates.parameters, [report.samples for report in updates.reports])
    for order in ORDERS:
        twin = seeded()
        plan = batch_plan(order.rows, order.steps, training, RNG)  # type: ignore[arg-type]
        trained(twin, X, Y, plan, 0.1)
        for name, value in parameters_of(twin).items():
            sums[name] = sums.get(name, torch.tensor(0.0)) + order.samples / 64 * value
    assert set(STATISTICS) <= set(sums)
    near({name: merge.result()[name] for name in sums}, sums)
    assert crew.state() == {}


class Noting(Steady):
    """Notes what comes and goes, and repeats its work in plain PyTorch."""

    def __init__(self, name: str, recipe: str) -> None:
        super().__init__(name=name, allowed=[recipe])
        self.twin, self.fetched = nn.Module(), list[Parameters]()
        self.updates: list[Update] = []

    def train(self, request: TrainRequest, caller: Caller) -> Update:
        if request.cycle == 1:
            self.twin = task().build(0)
        sent = caller.source.parameters(request.task, request.cycle)
        self.fetched.append(sent)
        put(sent, self.twin)
        if "1.running_mean" in sent:  # counters are as they were made
            put(staying_of(task().build(0)), self.twin)
        data = joined(caller.source.shards(request.task, request.keys))
        rows = np.arange(request.samples)
        plan = batch_plan(
            rows, request.steps, self.warm.training, batch_order(0, request.cycle, "a")
        )
        trained(self.twin, data["x"], data["y"], plan, 0.1)
        self.updates.append(super().train(request, caller))
        return self.updates[-1]

    @property
    def warm(self) -> Any:
        return self._tasks["test"]


def job(recipe: Any, **changes: Any) -> Job:
    given = mel.Job(task=recipe).task
    return changed(task=given, samples=80, shard=10, cycles=2, **changes)


def quick(recipe: Any, **changes: Any) -> Job:
    """Two fast learners, one epoch a cycle."""
    fast = LearnersTable(
        name="x", count=2, rate=SamplesPerSecond(1e4), bandwidth=BytesPerSecond(1e6)
    )
    few: dict[str, Any] = {"scheme": "dab", "steps": 1, "cycles": 4}
    return Job(task=recipe, learners=(fast,), **(few | changes))


def check_statistics(state: Parameters, samples: Tensor) -> None:
    """Check that batch norm has mean and variance of what these samples become."""
    inside = samples @ state["0.weight"].T + state["0.bias"]
    mean, var = state["1.running_mean"], state["1.running_var"]
    torch.testing.assert_close(mean, inside.mean(dim=0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(var, inside.var(dim=0), rtol=1e-4, atol=1e-5)
    normed().load_state_dict(state)


def check_live(recipe: Any, folder: Path) -> Noting:
    """Run live, twice on one learner; check its buffers against plain PyTorch."""
    ordered = job(recipe)
    learner = Noting("a", str(ordered.task))
    for run in ("first", "second"):  # the second starts anew
        happened = live(ordered, folder / run, [learner])
        assert not of(Dropped, happened)
        found = dict(learner.warm.model.named_buffers())
        near(found, dict(learner.twin.named_buffers()))
    return learner


def on_the_wire(learner: Noting) -> set[str]:
    updates = [update.parameters for update in learner.updates]
    return {name for sent in [*learner.fetched, *updates] for name in sent}


@pytest.mark.slow
def test_a_live_learners_own_buffers_are_those_of_plain_pytorch(tmp_path: Path) -> None:
    learner = check_live(kept, tmp_path)
    assert not {name for name in on_the_wire(learner) if name.startswith("1.r")}
    check_statistics(load(tmp_path / "first" / MODEL), X)


@pytest.mark.slow
def test_averaged_buffers_of_a_live_learner_start_from_the_models(
    tmp_path: Path,
) -> None:
    assert set(STATISTICS) <= on_the_wire(check_live(averaged, tmp_path))


def test_a_simulated_run_saves_statistics_of_the_samples_that_it_serves() -> None:
    check_statistics(mel.simulate(quick(kept), runs=None).parameters, X)


def test_in_federated_mode_statistics_are_of_the_test_set() -> None:
    ran = mel.simulate(quick(kept, mode=Mode.FEDERATED), runs=None)
    check_statistics(ran.parameters, X[:20])


def test_statistics_are_of_few_samples_from_all_over_the_set() -> None:
    model = nn.BatchNorm1d(1, momentum=0.3)
    with_buffers(model, Buffers.LOCAL)
    samples = Arrays({"x": torch.arange(5000.0)[:, None]})
    widths = []

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        widths.append(len(batch["x"]))
        return model(batch["x"])[:, 0]  # type: ignore[no-any-return]

    estimate_buffers(model, samples, loss)
    assert widths == [500]
    assert float(model.running_mean) == pytest.approx(2499.5, rel=1e-3)  # type: ignore[arg-type]
    assert (model.momentum, model.training) == (0.3, False)


def test_statistics_that_a_model_holds_fast_are_left_alone() -> None:
    class Held(nn.Sequential):
        def train(self, mode: bool = True) -> "Held":
            super().train(mode)
            self[0].eval()
            return self

    model = with_buffers(Held(nn.BatchNorm1d(5), nn.Linear(5, 2)), Buffers.LOCAL)
    estimate_buffers(model, pairs(X, Y), loss_of(Training()))
    assert torch.equal(model[0].running_mean, torch.zeros(5))  # type: ignore[index]


def test_too_few_samples_for_statistics_are_named() -> None:
    model = with_buffers(normed(), Buffers.LOCAL)
    with pytest.raises(ConfigError, match="estimated from 1 samples"):
        estimate_buffers(model, pairs(X[:1], Y[:1]), loss_of(Training()))


def test_a_task_that_was_over_before_a_resume_leaves_its_whole_model(
    tmp_path: Path,
) -> None:
    given = quick(kept, scheme="med", tasks=(TaskTable(name="one"),), shard=10)
    for _ in range(2):
        with opened(given, tmp_path, {"engine": "serve"}) as runs:
            tasks = [LiveTask.of(one, runs[one.name]) for one in tasks_of(given)]
            (run,) = runs.values()
            if run.checkpoint is None:
                run.keep(given.cycles, 1.0, parameters_of(tasks[0].task.model))
                continue
            crewless: Any = None
            asyncio.run(multitask.live(given, tasks, crewless, mel.Control(), []))
    check_statistics(load(tmp_path / "one" / MODEL), X)


class Centred(nn.Module):
    """Trains on inputs less the mean of those it has seen, which it keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.centre = nn.Linear(5, 2), nn.Buffer(torch.zeros(5))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.centre.mul_(0.9).add_(x.detach().mean(dim=0), alpha=0.1)
        return self.last(x - self.centre)  # type: ignore[no-any-return]


def centred() -> mel.Task:
    return task(make=Centred)


def test_learners_with_buffers_train_one_by_one_even_where_none_has_work() -> None:
    model = with_buffers(Centred(), Buffers.LOCAL)
    lesson = Lesson(model, parameters_of(model), pairs(X, Y), LOCAL, own=[])
    assert choice_for(lesson).engine is one_by_one


FOG = {"scheme": "fog:alone", "mode": Mode.FEDERATED, "fog": FogTable(period=2)}


@pytest.mark.parametrize("changes", [{}, FOG], ids=["averaging", "fog"])
def test_a_resumed_simulation_goes_on_with_its_learners_buffers(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    ordered = quick(centred, **changes)
    whole = mel.simulate(ordered, runs=tmp_path / "whole")
    stop, parts = mel.Control(), tmp_path / "parts"

    def watch(record: Any) -> None:
        if isinstance(record, Evaluated) and record.cycle == 2:
            stop.stop()

    cut = mel.simulate(ordered, runs=parts, watch=watch, control=stop)
    assert cut.folder
    assert whole.folder
    assert len(cut.history.loss) == 2
    api.resume(cut.folder)
    for name in (RECORDS, MODEL):
        assert (cut.folder / name).read_bytes() == (whole.folder / name).read_bytes()


def test_updates_that_depend_on_a_learners_own_buffers_cannot_be_checked() -> None:
    store = ShardStore(Arrays({"x": X, "y": Y}), 10)
    for model in (normed(), with_buffers(normed(), Buffers.LOCAL), Centred()):
        Audit(model, store, LOCAL, seed=0, share=1.0)
    own = with_buffers(Centred(), Buffers.LOCAL)
    with pytest.raises(ConfigError, match="buffers that stay on each learner"):
        Audit(own, store, LOCAL, seed=0, share=1.0)


def test_an_unknown_word_for_buffers_is_named() -> None:
    with pytest.raises(ConfigError, match="unknown buffers 'lokal': did you mean"):
        task("lokal").training()


def test_a_job_says_what_happens_to_buffers() -> None:
    table = TrainingTable(buffers=Buffers.LOCAL)
    assert api.job_of(Job(training=table)).training.buffers == Buffers.LOCAL
