"""Several tasks on learners in this process, over real sockets."""

from collections import defaultdict
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fleets.learners import Steady, changed, joined, live, of, slow

from melisma import rpc
from melisma.errors import ConfigError
from melisma.fleets.messages import Speeds, StateSpeeds, TrainRequest
from melisma.jobs.benchmark_table import BenchmarkTable, Known
from melisma.jobs.measured_states import MeasuredStates, _next_state
from melisma.jobs.schema import LearnersTable, StateTable, TaskTable
from melisma.launch.serve import orchestrate
from melisma.learner.background import BackgroundLoad, State
from melisma.learner.learner import Learner
from melisma.learner.service import Service
from melisma.learner.source import Caller
from melisma.runs import records
from melisma.runs.records import Record, read
from melisma.runs.store import MODEL, RECORDS
from melisma.system.states import owner_state
from melisma.units import BytesPerSecond, Deadline, SamplesPerSecond, Seconds

JOB = changed(
    name="many",
    scheme="med",
    cycles=2,
    shard=20,
    deadline=Deadline(30.0),
    tasks=(
        TaskTable(name="one", samples=400, steps=1),
        TaskTable(name="two", samples=200, steps=2),
    ),
)


def spans(happened: list[Record]) -> dict[str, list[tuple[float, float]]]:
    """When each learner was at work, whatever the task."""
    began = {
        (r.task, r.cycle, r.learner): r.time_s
        for r in of(records.Allocated, happened)
        if r.samples
    }
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for r in of(records.Uploaded, happened):
        found[r.learner].append((began[r.task, r.cycle, r.learner], r.time_s))
    return {name: sorted(some) for name, some in found.items()}


def given(happened: list[Record], task: str, cycle: int) -> dict[str, int]:
    return {
        r.learner: r.samples
        for r in of(records.Allocated, happened)
        if (r.task, r.cycle) == (task, cycle) and r.samples
    }


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["med-probe", "med", "mmtt", "med-learned", "rmed"])
def test_every_scheme_trains_all_tasks_live(tmp_path: Path, scheme: str) -> None:
    learners = [Learner(name=name) for name in "abc"]
    happened = live(changed(JOB, scheme=scheme), tmp_path, learners)
    done = {r.task: r.cycle for r in of(records.Evaluated, happened)}
    assert done == {"one": 2, "two": 2}
    for task, samples in (("one", 400), ("two", 200)):
        assert (tmp_path / task / MODEL).exists()
        assert sum(given(happened, task, 1).values()) == samples
    for some in spans(happened).values():
        for (_, end_s), (begin_s, _) in pairwise(some):
            assert end_s <= begin_s
    assert not of(records.Dropped, happened)


def test_foresight_is_for_simulations(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="simulate it, or use 'med-probe'"):
        live(changed(JOB, scheme="mmtt-ideal"), tmp_path, [])


@pytest.mark.slow
def test_who_turns_out_slow_is_given_little(tmp_path: Path) -> None:
    class Busier(Learner):
        """Fast when it benchmarks itself, then slow."""

        def probe(self, request: TrainRequest, caller: Caller) -> Any:
            self._device.background = slow(100.0)
            return super().probe(request, caller)

    job = changed(JOB, scheme="med-probe", cycles=1, tasks=JOB.tasks[:1])
    learners = [Learner(name="a", background=slow(2000.0)), Busier(name="b")]
    shares = given(live(job, tmp_path, learners), "one", 1)
    # 2,000 samples a second against 100; and each begins with a shard of 20.
    assert sum(shares.values()) == 400
    assert shares["b"] <= 60


@pytest.mark.slow
def test_what_was_probed_passes_every_check(tmp_path: Path) -> None:
    job = changed(JOB, scheme="med-probe", checks=1.0, tasks=JOB.tasks[:1])
    happened = live(job, tmp_path, [Learner(name="a"), Learner(name="b")])
    checked = of(records.Checked, happened)
    assert len(checked) == 4
    assert max(r.distance for r in checked) < 1e-3
    assert not of(records.Dropped, happened)


@pytest.mark.slow
def test_who_does_not_answer_a_probe_costs_nobody_else(tmp_path: Path) -> None:
    class Unwilling(Learner):
        def probe(self, request: TrainRequest, caller: Caller) -> Any:
            raise ConfigError("not today")

    job = changed(JOB, scheme="med-probe", cycles=1, tasks=JOB.tasks[:1])
    happened = live(job, tmp_path, [Learner(name="a"), Unwilling(name="b")])
    assert given(happened, "one", 1) == {"a": 400}


@pytest.mark.long
@pytest.mark.slow
def test_a_task_that_comes_later_is_admitted_beside_the_others(tmp_path: Path) -> None:
    late = TaskTable(name="late", samples=100, steps=1, arrives=Seconds(1.0))
    job = changed(JOB, cycles=3, tasks=(*JOB.tasks, late))
    happened = live(
        job, tmp_path, [Learner(name=n, background=slow(400.0)) for n in "abc"]
    )
    first_s = min(r.time_s for r in happened if r.task == "late")
    assert first_s >= 1.0
    assert {r.task for r in of(records.Evaluated, happened)} == {"one", "two", "late"}


@pytest.mark.slow
def test_a_task_that_cannot_be_paid_for_is_refused_with_a_reason(
    tmp_path: Path,
) -> None:
    # A shard costs 1 where the job does not say: 20 for "one", 10 more for "two".
    happened = live(changed(JOB, budget=25.0), tmp_path, [Learner(name="a")] * 1)
    (refused,) = of(records.Refused, happened)
    assert "budget" in refused.reason or "learner" in refused.reason
    assert (tmp_path / refused.task / RECORDS).read_text().count("refused") == 1
    assert len({r.task for r in of(records.Evaluated, happened)}) == 1


@pytest.mark.slow
def test_the_learners_of_a_task_may_leave_and_others_take_over(tmp_path: Path) -> None:
    leaves = Thread(target=lambda: lines["a"].close())
    lines: dict[str, Any] = {}

    def watch(record: Record) -> None:
        if isinstance(record, records.Evaluated) and leaves.ident is None:
            leaves.start()

    def start(server: rpc.Server) -> None:
        for name in "abc":
            line = rpc.connect(server.address, Service(Steady(name=name)), name=name)
            lines[name] = stack.enter_context(line)

    with ExitStack() as stack:
        happened = orchestrate(
            changed(JOB, cycles=4),
            tmp_path,
            learners=3,
            watch=watch,
            ready=start,
            port=0,
            say=lambda text: None,
        )
    leaves.join()
    done = {r.task: r.cycle for r in of(records.Evaluated, happened)}
    assert done == {"one": 4, "two": 4}
    last = {name for task in done for name in given(happened, task, 4)}
    assert last <= {"b", "c"}


@pytest.mark.long
@pytest.mark.slow
def test_a_newcomer_serves_a_task_as_soon_as_it_is_ready(tmp_path: Path) -> None:
    comes = Thread(
        target=lambda: stack.enter_context(joined(servers[0], [Learner(name="new")]))
    )
    servers: list[rpc.Server] = []

    def watch(record: Record) -> None:
        if isinstance(record, records.Evaluated) and comes.ident is None:
            comes.start()

    def start(server: rpc.Server) -> None:
        servers.append(server)
        there = [Learner(name=name, background=slow(300.0)) for name in "ab"]
        stack.enter_context(joined(server, there))

    with ExitStack() as stack:
        happened = orchestrate(
            changed(JOB, cycles=12),
            tmp_path,
            learners=2,
            watch=watch,
            ready=start,
            port=0,
            say=lambda text: None,
        )
        comes.join()
    assert "new" in {r.learner for r in of(records.Allocated, happened) if r.samples}


@pytest.mark.slow
def test_several_tasks_that_were_cut_short_go_on(tmp_path: Path) -> None:
    class Cut(Exception):
        pass

    def cut(record: Record) -> None:
        if isinstance(record, records.Evaluated) and record.cycle == 2:
            raise Cut

    job = changed(JOB, cycles=3)
    learners = [Steady(name=name) for name in "ab"]
    with pytest.raises(Cut):
        live(job, tmp_path, learners, cut)
    before = {t: read(tmp_path / t / RECORDS) for t in ("one", "two")}
    happened = live(job, tmp_path, [Steady(name=name) for name in "ab"])
    for task in ("one", "two"):
        cycles = [r.cycle for r in of(records.Evaluated, happened) if r.task == task]
        assert cycles == [1, 2, 3]
        kept = [r for r in before[task] if r.cycle == 1]
        assert read(tmp_path / task / RECORDS)[: len(kept)] == kept
        assert (tmp_path / task / MODEL).exists()


@pytest.mark.slow
def test_given_states_are_what_med_goes_by(tmp_path: Path) -> None:
    # By its states, "b" trains 100 samples a second half of the time and 10 otherwise:
    # 0.055 s a sample against 0.01 s of "a". It has no owner here, and is fast.
    def state(probability: float, rate: float) -> StateTable:
        return StateTable(
            probability=probability,
            rate=SamplesPerSecond(rate),
            bandwidth=BytesPerSecond(1e9),
        )

    tables = (
        LearnersTable(name="a", states=(state(1.0, 100.0),)),
        LearnersTable(name="b", states=(state(0.5, 100.0), state(0.5, 10.0))),
    )
    job = changed(JOB, cycles=1, learners=tables, tasks=JOB.tasks[:1])
    learners = [Learner(name=name) for name in "ab"]
    shares = given(live(job, tmp_path, learners), "one", 1)
    assert shares["a"] / shares["b"] == pytest.approx(5.5, rel=0.15)


@pytest.mark.slow
def test_the_learnt_association_is_of_what_was_seen(tmp_path: Path) -> None:
    class Lying(Learner):
        """Benchmarks itself at full speed, and is slow from then on."""

        def measure(self, name: str, keys: list[str], caller: Caller) -> None:
            super().measure(name, keys, caller)
            self._device.background = slow(150.0)

    job = changed(JOB, scheme="med-learned", cycles=4, tasks=JOB.tasks[:1])
    learners = [Learner(name="a", background=slow(1500.0)), Lying(name="b")]
    happened = live(job, tmp_path, learners)
    shares = [given(happened, "one", cycle) for cycle in (1, 4)]
    assert shares[0]["b"] > shares[1]["b"]
    assert shares[1]["b"] < 150


def owned(name: str, *rates: float, seed: int = 5) -> Learner:
    """A learner with an emulated owner; all its states are equally likely."""
    states = [State(probability=1 / len(rates), samples_per_s=rate) for rate in rates]
    return Learner(name=name, background=BackgroundLoad(states, seed, owner=name))


MEASURED = BenchmarkTable(known=Known.MEASURED, shards=4)
SMALL = (TaskTable(name="one", samples=240, steps=1),)


@pytest.mark.slow
@pytest.mark.parametrize(
    "scheme", ["med", pytest.param("mmtt", marks=pytest.mark.long)]
)
def test_learners_benchmark_themselves_in_every_state(
    tmp_path: Path, scheme: str
) -> None:
    # "a" has 1/100 s a sample; "b" 1/200 s or 1/20 s, 0.0275 s on the mean.
    job = changed(JOB, scheme=scheme, cycles=1, tasks=SMALL, benchmark=MEASURED)
    happened = live(job, tmp_path, [owned("a", 100.0), owned("b", 200.0, 20.0)])
    shares = given(happened, "one", 1)
    drawn = owner_state([0.5, 0.5], 5, "b", 0)
    ratio = {"med": 100 * (1 / 200 + 1 / 20) / 2, "mmtt": 100 / (200, 20)[drawn]}
    assert shares["a"] / shares["b"] == pytest.approx(ratio[scheme], rel=0.3)


@pytest.mark.slow
def test_emulated_owners_are_foreseen_live(tmp_path: Path) -> None:
    job = changed(JOB, scheme="mmtt-ideal", cycles=3, tasks=SMALL, benchmark=MEASURED)
    happened = live(job, tmp_path, [owned("a", 100.0), owned("b", 200.0, 20.0)])
    states = [owner_state([0.5, 0.5], 5, "b", cycle) for cycle in range(1, 4)]
    assert set(states) == {0, 1}  # or the test is of nothing
    for cycle, state in enumerate(states, start=1):
        shares = given(happened, "one", cycle)
        assert (shares["b"] > shares["a"]) == (state == 0)


def test_nobody_foresees_a_real_owner() -> None:
    law: dict[str, Any] = {"step_s": 1.0, "sample_s": 1.0, "fixed_s": 1.0}
    states = [StateSpeeds(probability=p, **law) for p in (0.4, 0.6)]
    with pytest.raises(ConfigError, match="next states of a, which nobody knows"):
        _next_state(Speeds(**law, states=states), "a", 1)


def test_an_overhead_is_in_states_that_were_measured() -> None:
    laws: list[dict[str, Any]] = [
        {"step_s": s, "sample_s": 0.1, "fixed_s": 10 * s} for s in (0.1, 0.2)
    ]
    states = [StateSpeeds(probability=0.5, **law) for law in laws]
    told = Speeds(**laws[0], states=states, owner=5)
    roster: Any = SimpleNamespace(
        known=["a"], overhead_s=0.5, speeds=lambda task, names: [told]
    )
    tasks: Any = [SimpleNamespace(name="one", shard=10, steps=2)]
    measured = MeasuredStates(roster, tasks)
    # A shard takes 10 · (0.1 + 2 · 0.1 or 0.2) s, and the rest 1 or 2 s and 0.5 s.
    shard_s, fixed_s = measured().expected()
    assert (shard_s.item(), fixed_s.item()) == pytest.approx((4.0, 2.0))
    shard_s, fixed_s = measured.foreseen([1])
    state = owner_state([0.5, 0.5], 5, "a", 1)
    assert (shard_s.item(), fixed_s.item()) == pytest.approx(
        (3 + 2 * state, 1.5 + state)
    )
