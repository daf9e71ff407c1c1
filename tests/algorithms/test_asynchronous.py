"""Asynchronous training: against a plain queue of learners, and across a resume."""

import asyncio
import copy
import heapq
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from tests.algorithms.resuming import whole_and_resumed
from tests.fleets.fleets import law, small_data, small_model, task_of
from tests.jobs.small import small

from melisma.algorithms.asynchronous import TOO_OLD, Asynchronous
from melisma.algorithms.asynchronous import Rule as AsynchronousRule
from melisma.algorithms.asynchronous.fedasync import FedAsync
from melisma.algorithms.asynchronous.fedbuff import FedBuff
from melisma.algorithms.asynchronous.ringmaster import Ringmaster
from melisma.algorithms.log import CycleLog
from melisma.algorithms.loop import train as loop
from melisma.algorithms.state import RunState
from melisma.errors import ConfigError, InfeasibleError
from melisma.fleets.flow import SimulatedFlow
from melisma.fleets.protocols import NOT_FINITE, Report
from melisma.fleets.ways import Ways
from melisma.jobs.asynchronous_checks import ASYNCHRONOUS, FEDCOMPASS, RINGLEADER
from melisma.jobs.asynchronous_table import AsynchronousTable
from melisma.jobs.families import family_of
from melisma.jobs.schema import (
    DEMO_LEARNERS,
    AggregationTable,
    DataTable,
    LearnersTable,
    Split,
    StateTable,
    TrainingTable,
)
from melisma.launch.api import simulate
from melisma.learning.codecs import codec_of
from melisma.learning.parameters import Parameters, parameters_of, put, trained
from melisma.learning.servers import server_for
from melisma.learning.settings import Late, Merging, Rule, Training
from melisma.learning.training import batch_plan, train
from melisma.learning.way import Way
from melisma.learning.wire import Wire, seed_of
from melisma.runs import records
from melisma.runs.records import Record
from melisma.runs.store import RunWriter
from melisma.system.law import Mode
from melisma.units import BytesPerSecond, SamplesPerSecond

OWN = [np.arange(0, 8), np.arange(8, 20), np.arange(20, 40)]
#: Orders of 8, 12 and 20 samples take 0.36, 0.8 and 2.2 s.
LAW = law([0.02, 0.05, 0.1], [0.0] * 3, [0.2, 0.2, 0.2])
TRAINING = Training(batch=4, rate=0.1, shuffle=False)
STEPS = 1

Server = Callable[[Parameters, list[tuple[Parameters, Parameters, int]]], Parameters]


class Travel:
    """What codecs make of models and of changes, with what each client owes."""

    def __init__(self, down: str, up: str) -> None:
        self._down, self._up = codec_of(down), codec_of(up)
        self._owed: dict[str, Parameters] = {}

    def down(self, model: Parameters, number: int) -> Parameters:
        return self._down.decode(self._down.encode(model, seed_of(0, number)), model)

    def up(
        self, name: str, new: Parameters, had: Parameters, number: int
    ) -> Parameters:
        owed = self._owed.get(name, dict.fromkeys(new, torch.tensor(0.0)))
        change = {n: t - had[n] + owed[n] for n, t in new.items()}
        encoded = self._up.encode(change, seed_of(0, number, name))
        sent = self._up.decode(encoded, change)
        if self._up.feeds_back:
            self._owed[name] = {n: t - sent[n] for n, t in change.items()}
        return sent


def reference(
    mix: Server,
    buffer: int,
    arrivals: int,
    at_most: int | None = None,
    travel: Travel | None = None,
) -> tuple[Parameters, list[tuple[float, int, int]]]:
    """A server and three clients, one event at a time; ages are versions."""
    model = parameters_of(small_model())
    times = [
        float(LAW.seconds(np.array([len(r)] * 3), np.ones(3))[k])
        for k, r in enumerate(OWN)
    ]
    queue = [(times[k], k, k, 0, model) for k in range(3)]
    heapq.heapify(queue)
    version, serial, found, gathered = 0, 3, [], []
    for _ in range(arrivals):
        now, earlier, k, ordered, start = heapq.heappop(queue)
        client, number = small_model(), earlier + 1
        had = travel.down(start, number) if travel else start
        put(copy.deepcopy(had), client)
        plan = batch_plan(OWN[k], STEPS, TRAINING, np.random.default_rng(0))
        train(client, small_data().train, plan, TRAINING)
        age = version - ordered
        found.append((round(now, 9), k, age))
        new = parameters_of(client)
        if travel:
            sent = travel.up("abc"[k], new, had, number)
            new = {n: t + sent[n] for n, t in start.items()}
        if at_most is None or age <= at_most:
            gathered.append((new, start, age))
        if len(gathered) == buffer:
            model, version, gathered = mix(model, gathered), version + 1, []
        heapq.heappush(queue, (now + times[k], serial, k, version, model))
        serial += 1
    return model, found


def fedasync(
    model: Parameters, came: list[tuple[Parameters, Parameters, int]]
) -> Parameters:
    ((new, _, age),) = came
    a = 0.6 * (1 + age) ** -0.5
    return {n: (1 - a) * t + a * new[n] for n, t in model.items()}


def fedbuff(
    model: Parameters, came: list[tuple[Parameters, Parameters, int]]
) -> Parameters:
    return {
        n: t
        + sum((new[n] - start[n]) / (1 + age) ** 0.5 for new, start, age in came)
        / len(came)
        for n, t in model.items()
    }


def ringmaster(
    model: Parameters, came: list[tuple[Parameters, Parameters, int]]
) -> Parameters:
    ((new, start, _),) = came
    return {n: t + 0.5 * (new[n] - start[n]) for n, t in model.items()}


CASES: dict[
    str, tuple[Callable[[], AsynchronousRule], Server, int, int, int | None]
] = {
    "fedasync": (lambda: FedAsync(0.6, 0.5), fedasync, 1, 3, None),
    "fedbuff": (
        lambda: FedBuff(server_for(Merging()), trained(small_model()).keys(), 4),
        fedbuff,
        4,
        6,
        None,
    ),
    "ringmaster": (lambda: Ringmaster(0.5), ringmaster, 1, 3, 1),
}


@pytest.mark.parametrize(
    ("name", "wire"),
    [
        *((name, None) for name in CASES),
        ("fedasync", ("int8", "int8")),
        ("ringmaster", ("fp16", "top-k 25 %")),
        pytest.param("fedbuff", ("int8", "top-k 25 %"), marks=pytest.mark.slow),
        pytest.param("fedbuff", ("bf16", "int4"), marks=pytest.mark.slow),
    ],
)
def test_models_times_and_ages_are_those_of_a_plain_queue(
    name: str, wire: tuple[str, str] | None
) -> None:
    make, mix, buffer, updates, at_most = CASES[name]
    crew = SimulatedFlow(
        ["a", "b", "c"],
        LAW,
        model=small_model(),
        samples=small_data().train,
        training=TRAINING,
        seed=0,
        own_rows=OWN,
        ways=Ways(each=[Way(Wire.of(*wire or ("fp32", "fp32")))]),
    )
    task = task_of(
        "async:test",
        100.0,
        federated=True,
        samples=None,
        training=TRAINING,
        steps=STEPS,
        cycles=5,
    )
    found: list[Record] = []
    algorithm = Asynchronous(crew, make(), updates=updates, staleness_at_most=at_most)
    final = asyncio.run(loop(task, crew, algorithm, RunWriter(watch=found.append)))
    travel = Travel(*wire) if wire else None
    model, arrivals = reference(mix, buffer, 5 * updates, at_most, travel)
    sent = [
        (round(r.time_s, 9), "abc".index(r.learner))
        for r in found
        if isinstance(r, records.Uploaded)
    ]
    assert sent == [(time_s, k) for time_s, k, _ in arrivals]
    assert any(age for _, _, age in arrivals)
    old = [r for r in found if isinstance(r, records.Dropped)]
    too_old = [age for _, _, age in arrivals if at_most is not None and age > at_most]
    assert len(old) == len(too_old)
    assert all(r.reason == TOO_OLD for r in old)
    if name == "ringmaster":
        assert too_old
    for n, value in model.items():
        torch.testing.assert_close(final[n], value, atol=1e-6, rtol=1e-5)


JOB = small(
    scheme="async:fedbuff",
    mode=Mode.FEDERATED,
    cycles=6,
    steps=1,
    noise=0.3,
    data=DataTable(split=Split.DIRICHLET, alpha=0.3),
    training=TrainingTable(batch=128),
    asynchronous=AsynchronousTable(updates=7),
)
SCHEMES = list(ASYNCHRONOUS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode", [Mode.FEDERATED, pytest.param(Mode.PARALLEL, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_resumed_run_goes_on_with_what_was_on_its_way(
    scheme: str, mode: Mode, tmp_path: Path
) -> None:
    job = msgspec.structs.replace(JOB, scheme=scheme, mode=mode)
    whole, resumed = whole_and_resumed(job, tmp_path, after=3)
    assert whole == resumed


@pytest.mark.slow
@pytest.mark.parametrize("scheme", [name for name in SCHEMES if name != FEDCOMPASS])
def test_nobody_waits_for_anybody(scheme: str) -> None:
    found: list[Record] = []
    table = AsynchronousTable(updates=30)  # Ringleader waits for a first of everybody
    simulate(
        msgspec.structs.replace(
            JOB, scheme=scheme, noise=0.0, cycles=3, asynchronous=table
        ),
        runs=None,
        watch=found.append,
    )
    given = [r for r in found if isinstance(r, records.Allocated)]
    sent = [r for r in found if isinstance(r, records.Uploaded)]
    for name in {r.learner for r in sent}:
        ends = [r.time_s for r in sent if r.learner == name]
        begins = [r.time_s for r in given if r.learner == name]
        assert begins[0] == 0.0
        assert begins[1:] == pytest.approx(ends[:-1])
    merged = [r for r in found if isinstance(r, records.Aggregated)]
    assert [r.learners for r in merged] == [30] * 3
    assert max(r.max_staleness for r in merged) > 0
    ages = [r.age for r in found if isinstance(r, records.Carried)]
    assert max(ages) == max(r.max_staleness for r in merged)


@pytest.mark.slow
def test_it_learns() -> None:
    for scheme in SCHEMES:
        table = AsynchronousTable(updates=30 if scheme == RINGLEADER else 10)
        job = msgspec.structs.replace(
            JOB,
            scheme=scheme,
            cycles=25,
            asynchronous=table,
            training=TrainingTable(),
            samples=None,
            learners=DEMO_LEARNERS,
        )
        assert max(simulate(job, runs=None).history.metric) > 0.55


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scheme": "async:fedbuf"}, "did you mean 'async:fedbuff'"),
        ({"late": Late.WAIT}, "late = 'wait': in asynchronous training nobody is"),
        ({"checks": 0.1, "mode": Mode.PARALLEL}, "checks are not for asynchronous"),
        ({"late_at_most": 0.1}, "late_at_most under 'async:fedbuff'"),
        (
            {"aggregation": AggregationTable(rule=Rule.MEDIAN)},
            r"\[aggregation\] rule has no effect under 'async:fedbuff'",
        ),
        (
            {"aggregation": AggregationTable(rate=0.5), "scheme": "async:fedasync"},
            r"\[aggregation\] rate has no effect under 'async:fedasync'",
        ),
        (
            {"asynchronous": AsynchronousTable(mixing=0.5)},
            r"\[asynchronous\] mixing has no effect under 'async:fedbuff'",
        ),
    ],
)
def test_what_it_cannot_do_it_says(changes: dict[str, object], message: str) -> None:
    job = msgspec.structs.replace(JOB, **changes)
    with pytest.raises(ConfigError, match=message):
        family_of(job).checked(job)


def test_who_has_less_than_a_shard_has_no_orders() -> None:
    crew = SimulatedFlow(
        ["a", "b", "c"],  # with 8, 12 and 20 samples
        LAW,
        model=small_model(),
        samples=small_data().train,
        training=TRAINING,
        seed=0,
        own_rows=OWN,
    )
    task = task_of("async:test", 100.0, federated=True, samples=None, shard=10)
    found: list[Record] = []
    algorithm = Asynchronous(crew, FedAsync(0.6, 0.5))
    asyncio.run(loop(task, crew, algorithm, RunWriter(watch=found.append)))
    given = {r.learner: r.samples for r in found if isinstance(r, records.Allocated)}
    assert given == {"b": 10, "c": 20}


def test_too_few_samples_for_a_shard_each_are_said_to_be() -> None:
    job = msgspec.structs.replace(JOB, mode=Mode.PARALLEL, shard=300)
    with pytest.raises(InfeasibleError, match="has a shard of 300 samples"):
        simulate(job, runs=None)


def answered(report: Report, reason: str = "") -> list[Record]:
    task, found = task_of("eta", 10.0), list[Record]()
    crew = SimulatedFlow(
        ["a"],
        law([0.1], [0.0], [0.1]),
        model=small_model(),
        samples=small_data().train,
        training=TRAINING,
        seed=0,
    )
    log = CycleLog(task, crew, found.append, RunState(), 1)
    log.begin_answers()
    log.answered(report, 0.0, 1.0, 1, age=0, weight=1.0, reason=reason)
    return found


REPORT = Report(
    learner=0,
    downloaded_s=0.1,
    trained_s=0.2,
    uploaded_s=0.3,
    samples=4,
    batches=1,
    loss=1.0,
    halted=True,
)


def test_who_halted_is_recorded_so_and_what_is_not_finite_is_an_offence() -> None:
    kinds = [type(r) for r in answered(REPORT)]
    assert records.Halted in kinds
    assert records.Trained not in kinds
    for reason, offence in ((TOO_OLD, False), (f"parameters are {NOT_FINITE}", True)):
        (dropped,) = [
            r for r in answered(REPORT, reason) if isinstance(r, records.Dropped)
        ]
        assert dropped.offence is offence


def test_learners_with_states_are_refused() -> None:
    state = StateTable(
        probability=0.5, rate=SamplesPerSecond(10), bandwidth=BytesPerSecond(1e6)
    )
    learners = (LearnersTable(name="a", states=(state, state)),)
    with pytest.raises(ConfigError, match="learners with states are not for"):
        simulate(msgspec.structs.replace(JOB, learners=learners), runs=None)


@pytest.mark.parametrize(
    "wrong",
    [{"updates": 0}, {"staleness_at_most": -1}, {"mixing": 0.0}, {"exponent": -1.0}],
)
def test_a_table_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="give"):
        AsynchronousTable(**wrong)  # type: ignore[arg-type]
