"""Coded training on a virtual clock: the same steps, whoever straggles."""

import asyncio
import copy
import math
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import melisma as mel
from melisma.algorithms.coded import NOT_NEEDED, Coded, _parts
from melisma.algorithms.coder import Coder, Coding
from melisma.algorithms.loop import train
from melisma.algorithms.task import ScheduledTask
from melisma.coding import CODES, TwoStage, choice
from melisma.errors import ConfigError, InfeasibleError, TrainingError
from melisma.fleets.simulated_coded import Straggling
from melisma.jobs.building import Prepared
from melisma.jobs.coded import coding_of
from melisma.jobs.schema import Job, LearnersTable, StragglingTable, TrainingTable
from melisma.launch import simulate
from melisma.learning import data
from melisma.learning.parameters import Parameters, parameters_of
from melisma.runs.records import Aggregated, Allocated, Dropped, Evaluated, Record
from melisma.runs.store import RunWriter
from melisma.system.law import Mode
from melisma.units import BytesPerSecond, Deadline, SamplesPerSecond

CORES = (2, 2, 4, 4, 8, 8)


def job(code: str = "two-stage", **changes: Any) -> Job:
    plain = Job(
        scheme="coded",
        code=code,
        stragglers=1,
        cycles=4,
        samples=600,
        shard=5,
        deadline=Deadline(1e4),
        training=TrainingTable(rate=0.3, momentum=0.9),
        straggling=StragglingTable(number=1),
        learners=tuple(
            LearnersTable(
                name=f"w{i}",
                rate=SamplesPerSecond(100.0 * cores),
                bandwidth=BytesPerSecond(1e7),
            )
            for i, cores in enumerate(CORES)
        ),
    )
    return msgspec.structs.replace(plain, **changes)


def build(job: Job) -> Prepared:
    built: Prepared = simulate.build(job).built
    return built


@pytest.fixture
def _coarse_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Iterations need not be planned well where their durations are not looked at."""
    monkeypatch.setattr(choice, "SCENARIOS", 4)


COARSE = pytest.mark.usefixtures("_coarse_plans")


def ran(ready: Prepared) -> tuple[Parameters, list[Record]]:
    run = RunWriter()
    trained = train(ready.task, ready.crew, ready.algorithm, run)
    return asyncio.run(trained), run.records


def plainly(task: ScheduledTask, training: TrainingTable) -> Parameters:
    """The same steps by torch alone: all samples of a cycle at once."""
    model = copy.deepcopy(task.model).train()
    arguments: Any = training.arguments
    if training.momentum is not None:
        arguments = {"momentum": training.momentum, **arguments}
    kind: Any = getattr(torch.optim, training.optimiser or "SGD")
    step = kind(model.parameters(), lr=training.rate, **arguments)
    for cycle in range(1, task.cycles + 1):
        some = task.taken.train[np.concatenate(_parts(task, cycle, 1))]
        step.zero_grad()
        cross_entropy(model(some["x"]), some["y"]).backward()  # type: ignore[no-untyped-call]
        if training.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), training.clip)
        step.step()
    return parameters_of(model)


def assert_same(ours: Parameters, theirs: Parameters) -> None:
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=1e-4, atol=2e-6)


@COARSE
@pytest.mark.parametrize("slower", [8.0, math.inf])
@pytest.mark.parametrize("code", [code for code in CODES if code != "uncoded"])
def test_the_model_is_that_of_plain_descent(code: str, slower: float) -> None:
    ready = build(job(code, straggling=StragglingTable(number=1, slower=slower)))
    plain = plainly(ready.task, ready.job.training)
    ours, happened = ran(ready)
    assert_same(ours, plain)
    assert {r.error for r in happened if isinstance(r, Aggregated)} == {0.0}


ANY = {
    "AdamW": TrainingTable(
        optimiser="AdamW", rate=1e-3, arguments={"eps": 1e-3, "weight_decay": 0.1}
    ),
    "clipped": TrainingTable(rate=0.3, momentum=0.9, clip=0.5),
    "decayed": TrainingTable(rate=0.3, arguments={"weight_decay": 0.1}),
}


@COARSE
@pytest.mark.parametrize("how", ANY)
def test_any_optimiser_descends_as_torchs_own(how: str) -> None:
    ready = build(job(training=ANY[how]))
    plain = plainly(ready.task, ANY[how])
    assert_same(ran(ready)[0], plain)


@COARSE
def test_a_tasks_own_optimiser_descends() -> None:
    def named(optimiser: Any) -> Any:
        arguments = {"weight_decay": 0.1, "eps": 1e-3}
        return lambda: mel.Task(
            model="TwoNN",
            train=data.load("mnist-5k").train,
            test=data.load("mnist-5k").test,
            optimiser=optimiser,
            arguments=arguments,
            rate=1e-3,
        )

    ours, theirs = (
        ran(build(job(task=named(given), training=TrainingTable())))[0]
        for given in (torch.optim.AdamW, "AdamW")
    )
    assert_same(ours, theirs)
    ready = build(job(training=ANY["AdamW"]))
    assert_same(ours, plainly(ready.task, ANY["AdamW"]))


def test_uncoded_training_waits_for_the_slowest() -> None:
    ready = build(job("uncoded", stragglers=0))
    plain = plainly(ready.task, ready.job.training)
    ours, happened = ran(ready)
    assert_same(ours, plain)
    assert not any(isinstance(record, Dropped) for record in happened)


@pytest.mark.slow
def test_helpers_may_be_reserved() -> None:
    ready = build(job(helpers="reserved"))
    plain = plainly(ready.task, ready.job.training)
    ours, happened = ran(ready)
    assert_same(ours, plain)
    first = [r for r in happened if isinstance(r, Allocated) and r.cycle == 1]
    assert 0 < sum(r.samples == 0 for r in first) < len(CORES)


def started(happened: list[Record]) -> dict[int, list[str]]:
    """Who had work when a cycle began."""
    return {
        cycle: [
            r.learner
            for r in happened
            if isinstance(r, Allocated) and r.cycle == cycle and r.samples
        ]
        for cycle in range(1, 5)
    }


@COARSE
@pytest.mark.parametrize("first", ["chosen", "random", 3])
def test_a_ring_of_helpers_trains_as_plain_descent_does(first: Any) -> None:
    dead = StragglingTable(number=1, slower=math.inf)
    ready = build(job(helpers="ring", first=first, straggling=dead))
    plain = plainly(ready.task, ready.job.training)
    ours, happened = ran(ready)
    assert_same(ours, plain)
    assert {r.error for r in happened if isinstance(r, Aggregated)} == {0.0}
    sizes = {len(names) for names in started(happened).values()}
    assert sizes <= {"chosen": {1, 2, 3, 4, 5}, "random": {4}, 3: {3}}[first]


@COARSE
@pytest.mark.parametrize(
    ("helpers", "coded"), [("ring", "ring"), ("reserved", "blocks")]
)
def test_helpers_of_a_run_are_coded_as_its_job_says(helpers: Any, coded: str) -> None:
    ready = build(job(helpers=helpers, first=3))
    coder = Coder(coding_of(ready.job), ready.task)
    law = asyncio.run(ready.crew.law())
    code, _ = coder.code(ready.crew.learners, law, 1)
    assert isinstance(code, TwoStage)
    assert (code.helpers, code.coded) == (helpers, coded)


@COARSE
def test_who_starts_is_drawn_anew_in_each_cycle() -> None:
    _, happened = ran(build(job(helpers="ring", first=2)))
    assert len({tuple(names) for names in started(happened).values()}) > 1


def drawn(cycles: list[int], **changes: Any) -> list[tuple[int, ...]]:
    """Who starts in these cycles, by a coder that begins with the first of them."""
    ready = build(job(helpers="ring", **changes))
    coder = Coder(coding_of(ready.job), ready.task)
    law = asyncio.run(ready.crew.law())
    codes = [coder.code(ready.crew.learners, law, cycle)[0] for cycle in cycles]
    return [tuple(np.flatnonzero(code.loads).tolist()) for code in codes]


@COARSE
def test_a_resumed_run_draws_those_who_start_as_it_would_have() -> None:
    assert drawn([1, 2, 3, 4], first=3)[2:] == drawn([3, 4], first=3)
    assert drawn([3, 4], first=3) != drawn([3, 4], first=3, seed=1)


def test_more_than_two_in_three_do_not_start_where_stragglers_need_helpers() -> None:
    assert [len(some) for some in drawn([1], first="random", stragglers=4)] == [2]


def test_too_few_are_there_for_those_who_are_to_start() -> None:
    ready = build(job())
    coder = Coder(Coding(helpers="ring", first=5, stragglers=2), ready.task)
    law = asyncio.run(ready.crew.law())
    with pytest.raises(InfeasibleError, match="5 of them are to start, and 2 to help"):
        coder.code(ready.crew.learners, law, 1)


@pytest.mark.slow
def test_two_stages_are_faster_than_any_code_of_one() -> None:
    times = {}
    for code in CODES:
        _, happened = ran(build(job(code, cycles=20, samples=1200)))
        merged = [r.cycle_s for r in happened if isinstance(r, Aggregated)]
        times[code] = float(np.mean(merged))
    assert times["two-stage"] < min(times["hetero"], times["fractional"])
    assert max(times["hetero"], times["fractional"]) < times["cyclic"]
    assert times["cyclic"] < times["uncoded"]


def test_who_was_not_needed_is_recorded_so() -> None:
    _, happened = ran(build(job("hetero")))
    dropped = [r for r in happened if isinstance(r, Dropped)]
    assert {(r.reason, r.offence) for r in dropped} == {(NOT_NEEDED, False)}


def test_what_cannot_be_decoded_is_a_step_with_a_stated_error() -> None:
    dead = StragglingTable(number=2, slower=math.inf)
    ready = build(job("cyclic", straggling=dead, deadline=Deadline(30.0)))
    _, happened = ran(ready)
    merged = [r for r in happened if isinstance(r, Aggregated)]
    assert all(r.error is not None and 0 < r.error < 1 for r in merged)
    assert len([r for r in happened if isinstance(r, Evaluated)]) == 4
    assert happened[-1].time_s == pytest.approx(4 * 30.0)


def test_nobody_in_time_is_an_error_that_says_so() -> None:
    with pytest.raises(InfeasibleError, match=r"answered by the deadline of 0\.01 s"):
        ran(build(job("hetero", deadline=Deadline(0.01))))


def test_a_step_to_infinity_is_not_taken() -> None:
    far = job("fractional", training=TrainingTable(rate=1e300))
    with pytest.raises(
        TrainingError, match=r"model is not finite.* lower the learning"
    ):
        ran(build(far))


@pytest.mark.slow
def test_stragglers_are_predicted_where_none_are_given() -> None:
    times = []
    for stragglers in (1, None):
        ready = build(job("two-stage", stragglers=stragglers, cycles=15))
        _, happened = ran(ready)
        merged = [r for r in happened if isinstance(r, Aggregated)]
        assert {r.error for r in merged} == {0.0}
        times.append(np.mean([r.cycle_s for r in merged]))
    assert times[1] < 1.5 * times[0]


def test_shared_channels_take_longer_and_change_nothing_else() -> None:
    free, shared = (
        ran(build(job("hetero", channels=channels))) for channels in (None, 1)
    )
    assert_same(free[0], shared[0])
    assert shared[1][-1].time_s > free[1][-1].time_s


def test_enough_channels_are_as_good_as_one_each() -> None:
    alone, together = (
        ran(build(job("fractional", channels=channels))) for channels in (None, 6)
    )
    times = [
        [r.time_s for r in happened if isinstance(r, Aggregated)]
        for _, happened in (alone, together)
    ]
    assert times[0] == pytest.approx(times[1], rel=1e-9)


@COARSE
def test_the_same_seed_gives_the_same_records() -> None:
    one, two = (ran(build(job()))[1] for _ in range(2))
    assert one == two


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scheme": "coded:cylic"}, "unknown scheme 'coded:cylic'"),
        ({"mode": Mode.FEDERATED}, "needs mode 'parallel'"),
        ({"stragglers": 6}, "stragglers = 6 of 6 learners: give 0 to 5"),
        ({"training": TrainingTable(momentum=1.0)}, "momentum 1.0"),
        ({"straggling": StragglingTable(number=7)}, "7 stragglers of 6 workers"),
        ({"first": 0, "helpers": "ring"}, "first = 0: give at least 1"),
        ({"first": 6, "helpers": "ring"}, "first = 6 of 6 learners.*give 1 to 5"),
        ({"first": 4, "helpers": "ring", "stragglers": 3}, "give 1 to 3"),
        ({"first": "random"}, "with helpers = 'finished', where everybody starts"),
    ],
)
def test_what_cannot_be_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ran(build(job(**changes)))


def test_a_scheme_may_name_its_code() -> None:
    assert coding_of(job(scheme="coded:hetero")).code == "hetero"
    assert coding_of(job()).code == "two-stage"


def test_a_cyclic_code_needs_a_shard_for_each_worker() -> None:
    with pytest.raises(InfeasibleError, match="needs a shard for each"):
        ran(build(job("cyclic", samples=600, shard=200)))


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.Dropout(), "dropout"),
        (nn.BatchNorm1d(784), "batch normalisation"),
        (nn.BatchNorm1d(784, track_running_stats=False), "batch normalisation"),
        (nn.InstanceNorm1d(784, track_running_stats=True), "no gradient"),
    ],
)
def test_a_model_whose_gradients_do_not_add_up_is_refused(
    layer: nn.Module, message: str
) -> None:
    ready = build(job())
    model = nn.Sequential(nn.Flatten(), layer, nn.Linear(784, 10))
    odd = replace(ready.task, model=model)
    with pytest.raises(ConfigError, match=message):
        Coded(odd, ready.crew, coding_of(ready.job))


def test_straggling_has_sense() -> None:
    with pytest.raises(ConfigError, match=r"0\.5 times as slow"):
        Straggling(number=1, slower=0.5)
    with pytest.raises(ConfigError, match="-1 stragglers"):
        Straggling(number=-1)
