"""Live learners that train parts of the model, against plain loops over its entries."""

import copy
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from tests.fleets.learners import Steady, changed, live, of
from tests.fleets.test_federated import owner

from melisma.errors import ConfigError
from melisma.fleets.batches import batch_order, batches_of
from melisma.fleets.messages import Speeds, TrainRequest, Update
from melisma.jobs.building import task_of
from melisma.jobs.live_task import LiveTask
from melisma.jobs.schema import Job, LearnersTable
from melisma.jobs.ways import ways_of
from melisma.jobs.wire_table import OptionTable, WireTable
from melisma.learner import orders
from melisma.learner.source import Caller
from melisma.learner.speed import Speed
from melisma.learning.losses import transform_of
from melisma.learning.parameters import Parameters, load, parameters_of, put
from melisma.learning.samples import Arrays, joined, transformed
from melisma.learning.shards import ShardStore
from melisma.learning.training import train
from melisma.learning.wire import PLAIN, Sender, seed_of
from melisma.runs import records
from melisma.runs.store import MODEL, RunWriter
from melisma.system.law import Mode
from melisma.units import BytesPerSecond, Deadline, SamplesPerSecond

SPEED: dict[str, Any] = {
    "rate": SamplesPerSecond(1.0),
    "bandwidth": BytesPerSecond(1.0),
}
SUBMODELS = {"a": None, "b": "width 0.5", "c": "freeze 0.4", "d": "width 0.8"}


def with_parts(**changes: Any) -> Job:
    groups = [LearnersTable(name=n, submodel=s, **SPEED) for n, s in SUBMODELS.items()]
    return changed(learners=tuple(groups), **changes)


class Watched(Steady):
    """Keeps the orders that it was given."""

    given: list[tuple[str, TrainRequest]]

    def train(self, request: TrainRequest, caller: Caller) -> Update:
        self.given.append((self.name, request))
        return super().train(request, caller)


def watched(
    names: str = "abcd",
) -> tuple[list[Watched], list[tuple[str, TrainRequest]]]:
    learners = [Watched(name=name) for name in names]
    given: list[tuple[str, TrainRequest]] = []
    for learner in learners:
        learner.given = given
    return learners, given


def by_loops(job: Job, given: list[tuple[str, TrainRequest]]) -> Parameters:
    """The model after a run of these orders, entry by entry."""
    task = task_of(job)
    ways, store = ways_of(job, task), ShardStore(task.data.train, task.shard)
    store.first(len(task.data.train) // task.shard)  # which names them
    model = parameters_of(task.model)
    for cycle in range(1, job.cycles + 1):
        totals = {n: np.zeros(t.numel()) for n, t in model.items()}
        weights = {n: np.zeros(t.numel()) for n, t in model.items()}
        for name, request in given:
            if request.cycle != cycle:
                continue
            part = {way.submodel: way.part for way in ways.each}[request.submodel]
            own = copy.deepcopy(task.model if part is None else part.model)
            put(model if part is None else part.sent(model), own)
            plan = batches_of(
                request, task.training, batch_order(job.seed, cycle, name)
            )
            shards = Arrays(joined(store.take(request.keys)))
            samples = transformed(shards, transform_of(task.training))
            train(own, samples, plan, task.training.at(cycle))
            after = parameters_of(own)
            whole = after if part is None else part.spread(after, model)
            for key, tensor in whole.items():
                has = np.ones(tensor.numel())
                if part is not None:
                    has = part.mask(model)[key].flatten().numpy().astype(float)
                weight = request.samples * has
                totals[key] += weight * tensor.flatten().double().numpy()
                weights[key] += weight
        found = {}
        for key, tensor in model.items():
            old, w = tensor.flatten().double().numpy(), weights[key]
            new = np.where(w > 0, totals[key] / np.maximum(w, 1e-300), old)
            found[key] = torch.tensor(new).float().view(tensor.shape)
        model = found
    return model


@pytest.mark.slow
def test_a_run_is_what_each_makes_of_its_part(tmp_path: Path) -> None:
    job = with_parts()
    learners, given = watched()
    happened = live(job, tmp_path, learners)
    assert not of(records.Dropped, happened)
    assert {(n, r.submodel) for n, r in given} == {
        (name, submodel or "") for name, submodel in SUBMODELS.items()
    }
    expected = by_loops(job, given)
    for name, tensor in load(tmp_path / MODEL).items():
        torch.testing.assert_close(tensor, expected[name], atol=1e-5, rtol=1e-4)


@pytest.mark.slow
def test_plans_are_by_what_a_part_computes_and_sends(tmp_path: Path) -> None:
    job = with_parts(scheme="csa", deadline=Deadline(8.0), cycles=1)
    happened = live(job, tmp_path, watched()[0])
    options = ways_of(job, task_of(job)).options
    shares = options.size_bytes / options.size_bytes[0]
    compute = np.broadcast_to(options.compute, shares.shape)
    for r in of(records.Allocated, happened):
        m = options.names.index(SUBMODELS[r.learner] or "")
        expected = 0.1 * shares[m] + 0.001 * r.samples
        expected += 0.01 * compute[m] * r.samples * r.steps
        assert r.predicted_s == pytest.approx(expected)


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(Mode))
def test_with_codecs_a_run_that_was_cut_short_goes_on(
    tmp_path: Path, mode: Mode
) -> None:
    job = with_parts(mode=mode, cycles=4, wire=WireTable(down="int8", up="top-k 2 %"))
    if mode == Mode.FEDERATED:
        job = changed(job, samples=None, shard=10)

    def learners() -> list[Any]:
        if mode == Mode.FEDERATED:
            rows = [range(150 * k, 150 * k + 150) for k in range(4)]
            return [owner(n, own) for n, own in zip("abcd", rows, strict=True)]
        return [Steady(name=name) for name in "abcd"]

    def cut(record: records.Record) -> None:
        if isinstance(record, records.Evaluated) and record.cycle == 2:
            raise KeyboardInterrupt

    assert not of(records.Dropped, live(job, tmp_path / "whole", learners()))
    those = learners()
    with pytest.raises(KeyboardInterrupt):
        live(job, tmp_path / "resumed", those, cut)
    live(job, tmp_path / "resumed", those)
    whole, resumed = (load(tmp_path / f / MODEL) for f in ("whole", "resumed"))
    for name, tensor in whole.items():
        torch.testing.assert_close(resumed[name], tensor, atol=1e-6, rtol=0)


class Cheat(Steady):
    """Sends a change of all of the model, or with numbers that are none."""

    how = "whole"

    def train(self, request: TrainRequest, caller: Caller) -> Update:
        update = super().train(request, caller)
        task = task_of(with_parts())
        part = ways_of(with_parts(), task).of(self.name).part
        assert part is not None
        like = parameters_of(task.model)
        like = like if self.how == "whole" else part.kept(like)
        bad = {n: torch.full_like(t, float("nan")) for n, t in like.items()}
        after = like if self.how == "whole" else bad
        seed = seed_of(task.seed, request.cycle, self.name)
        packed = Sender(PLAIN).update(after, like, like.keys(), seed)
        return msgspec.structs.replace(update, packed=packed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "why"), [("whole", "fp32 came as other"), ("nan", "not finite")]
)
def test_an_update_of_something_else_costs_its_sender(
    tmp_path: Path, how: str, why: str
) -> None:
    cheat = Cheat(name="b")
    cheat.how = how
    honest, given = watched("acd")
    job = with_parts(cycles=1)
    happened = live(job, tmp_path, [cheat, *honest])
    (dropped,) = of(records.Dropped, happened)
    assert (dropped.learner, dropped.offence) == ("b", True)
    assert why in dropped.reason
    # The others' cycle is as if it had not been there.
    expected = by_loops(job, given)
    for name, tensor in load(tmp_path / MODEL).items():
        torch.testing.assert_close(tensor, expected[name], atol=1e-5, rtol=1e-4)


@pytest.mark.slow
def test_a_device_sees_itself_as_the_benchmark_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass over a part counts as far as it computes, so that speeds do not drift."""
    seen: list[float] = []
    monkeypatch.setattr(Speed, "trained", lambda self, samples, s: seen.append(samples))
    learners, given = watched("b")
    job = with_parts(cycles=1)
    live(job, tmp_path, learners)
    (request,) = [request for _, request in given]
    options = ways_of(job, task_of(job)).options
    step = np.asarray(options.compute)[options.names.index("width 0.5")]
    assert seen == pytest.approx([request.samples * request.steps * step])


class Far(Watched):
    """Behind a link that takes most of a cycle for the whole model."""

    def speeds(self, task: str, drifted: bool) -> Speeds:
        return Speeds(step_s=0.01, sample_s=0.001, fixed_s=26.0)


@pytest.mark.slow
def test_the_scheme_chooses_who_trains_which_part(tmp_path: Path) -> None:
    options = (
        OptionTable(),
        OptionTable(submodel="width 0.5", value=0.8),
        OptionTable(submodel="freeze 0.4", value=0.7),
    )
    job = changed(scheme="csa-options", options=options, coverage=0.2)
    near, given = watched("ab")
    far = Far(name="far")
    far.given = given
    happened = live(job, tmp_path, [*near, far])
    assert not of(records.Dropped, happened)
    allocated = of(records.Allocated, happened)
    assert {r.option for r in allocated if r.learner == "far"} == {"width 0.5"}
    task = task_of(job)
    shares = [
        way.share(parameters_of(task.model), ()) for way in ways_of(job, task).each
    ]
    (saved,) = {r.saved_bytes for r in allocated if r.learner == "far"}
    whole = 2 * sum(t.nbytes for t in parameters_of(task.model).values())
    assert saved == pytest.approx(whole * (1 - shares[1]), abs=1)
    for cycle in (1, 2):
        those = [r for r in allocated if r.cycle == cycle]
        all_of_it = sum(r.samples for r in those if r.option == "fp32")
        assert all_of_it >= 0.2 * sum(r.samples for r in those)
    expected = by_loops(job, given)
    for name, tensor in load(tmp_path / MODEL).items():
        torch.testing.assert_close(tensor, expected[name], atol=1e-5, rtol=1e-4)


def test_no_other_part_is_made_for_an_orchestrator() -> None:
    spec = LiveTask.of(with_parts(), RunWriter()).announcement.spec
    assert spec.submodels == ["freeze 0.4", "width 0.5", "width 0.8"]
    orders.check_spec(spec)
    request = TrainRequest(
        task="test",
        cycle=1,
        keys=["a"],
        samples=50,
        steps=1,
        deadline_s=1.0,
        late=with_parts().late,
        down="fp32",
        up="fp32",
        submodel="width 0.5",
    )
    orders.check_train(request, spec, None)
    named = ({"submodel": "width 0.7"}, {"submodel": 3})
    for wrong in (*named, {"down": "", "up": ""}, {"corrected": True}):
        with pytest.raises(ConfigError):
            orders.check_train(msgspec.structs.replace(request, **wrong), spec, None)
    for submodels in (["width 2"], ["tiny"], [7], "width 0.5", ["width 0.5"] * 99):
        with pytest.raises(ConfigError):
            orders.check_spec(msgspec.structs.replace(spec, submodels=submodels))
