"""A run that chooses its deadline: what it believes, what it chooses, what it keeps."""

import asyncio
import math
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.algorithms.resuming import whole_and_resumed
from tests.fleets.learners import Steady, changed, live, of
from tests.jobs.small import small

from melisma.algorithms import auto as module
from melisma.algorithms.auto import (
    Auto,
    Belief,
    Work,
    shortest_s,
    way_of,
    ways_of,
)
from melisma.algorithms.control import Control
from melisma.algorithms.task import Plan
from melisma.errors import ConfigError, InfeasibleError
from melisma.jobs.families import family_of
from melisma.jobs.files import dump, load
from melisma.jobs.schema import Job, LearnersTable, ParticipationTable, TaskTable
from melisma.launch.api import resume, simulate
from melisma.runs.records import Aggregated, Allocated, Evaluated, Record, Steered, read
from melisma.schemes import TakesPart
from melisma.system.law import Mode
from melisma.system.problem import Allocation
from melisma.units import BytesPerSecond, Deadline, SamplesPerSecond

AUTO = Deadline.of("auto")
JOB = Job(
    cycles=6,
    samples=200,
    shard=20,
    deadline=AUTO,
    learners=(
        LearnersTable(
            name="a", rate=SamplesPerSecond(400), bandwidth=BytesPerSecond(4e6)
        ),
        LearnersTable(
            name="b", rate=SamplesPerSecond(100), bandwidth=BytesPerSecond(1e6)
        ),
    ),
)


@pytest.fixture
def _coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few deadlines to choose from, each a whole plan, where that is enough."""
    monkeypatch.setattr(module, "TO_A_DOUBLING", 1)


COARSE = pytest.mark.usefixtures("_coarse")


# The filter


@pytest.mark.parametrize("seed", range(3))
def test_what_is_believed_is_what_a_sum_over_all_paths_gives(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, shapes, noises = [2.0, 16.0], [1.0, 2.0], [0.02, 0.2]
    gains, step, uneven = np.log([0.01, 0.05, 0.2]), 0.5, 0.3
    monkeypatch.setattr(module, "FULL", np.array(full))
    monkeypatch.setattr(module, "NOISES", tuple(noises))
    monkeypatch.setattr(module, "GAINS", gains)
    monkeypatch.setattr(module, "GAIN_STEP", step)
    monkeypatch.setattr(module, "STRAY", 0.0)
    rng, belief = np.random.default_rng(seed), Belief()
    seen = [(float(rng.uniform(1, 20)), float(rng.normal(0.2, 0.2))) for _ in range(4)]
    for trained, fall in seen:
        belief.see(trained, fall)

    def density(fall: float, mean: float, sigma: float) -> float:
        return math.exp(-((fall - mean) ** 2) / (2 * sigma**2)) / sigma

    def move(a: int, b: int) -> float:
        to = [math.exp(-((gains[a] - g) ** 2) / (2 * step**2)) for g in gains]
        return to[b] / sum(to)

    found: dict[tuple[int, int], float] = {}
    for h, (X, p, sigma) in enumerate(product(full, shapes, noises)):
        usual = math.exp(-(math.log(X / module.USUAL) ** 2) / (2 * module.SPREAD**2))
        for path in product(range(3), repeat=5):
            chance = usual
            for n, (x, fall) in enumerate(seen):
                mean = math.exp(gains[path[n]]) * x / (1 + (x / X) ** p)
                chance *= density(fall, mean, math.hypot(uneven * mean, sigma))
                chance *= move(path[n], path[n + 1])
            found[h, path[4]] = found.get((h, path[4]), 0.0) + chance
    whole = sum(found.values())
    expected = [[found[h, g] / whole for g in range(3)] for h in range(8)]
    assert belief.weights == pytest.approx(np.array(expected))


def test_a_loss_that_makes_no_sense_leaves_every_hypothesis_possible() -> None:
    belief = Belief()
    for fall in (-50.0, 50.0, 0.0):
        belief.see(3.0, fall)
    assert np.isfinite(belief.weights).all()
    assert belief.weights.sum() == pytest.approx(1.0)


# The choice


class Curve:
    """A run whose progress is known: c + x seconds for x passes, u(x) of each.

    A pass is over 170 samples of the one learner.
    """

    def __init__(self, full: float, shape: float, fixed_s: float) -> None:
        self.full, self.shape, self.fixed_s = full, shape, fixed_s

    async def planned(self, deadline_s: float) -> Plan:
        passes = math.floor(deadline_s - self.fixed_s + 1e-9)
        if passes < 1:
            raise InfeasibleError("too short")
        allocation = Allocation(samples=np.array([10]), steps=np.array([passes]))
        return Plan(allocation, np.array([self.fixed_s + passes]))

    def progress(self, passes: float) -> float:
        return passes / (1 + math.pow(passes / self.full, self.shape))

    def rate(self, passes: float) -> float:
        return self.progress(passes) / (self.fixed_s + passes)

    def chosen(self, cycles: int, seed: int = 0) -> list[float]:
        """Return the passes of each cycle."""
        rng, auto, loss = np.random.default_rng(seed), Auto(seed), math.log(2.3)
        state: Any = SimpleNamespace(evaluations=[], trained={})
        for cycle in range(1, cycles + 1):

            def steered(deadline_s: float, *, trained: float, **_: Any) -> None:
                state.trained[len(state.trained) + 1] = trained

            log: Any = SimpleNamespace(cycle=cycle, state=state, steered=steered)
            asyncio.run(auto.choose(log, Work(10, shard=17), self.planned))
            loss -= 0.05 * 0.97**cycle * self.progress(state.trained[cycle] / 170)
            noisy = math.exp(loss + 0.02 * rng.standard_normal())
            state.evaluations.append(SimpleNamespace(cycle=cycle, loss=noisy))
        return [trained / 170 for trained in state.trained.values()]


@pytest.mark.parametrize(
    ("full", "shape", "fixed_s"),
    [(4, 1, 1), (16, 1, 1), (4, 1, 10), (48, 1, 10), (8, 2, 10), (32, 2, 10)],
)
def test_it_comes_near_the_deadline_with_most_progress_a_second(
    full: float, shape: float, fixed_s: float
) -> None:
    curve = Curve(full, shape, fixed_s)
    best = max(curve.rate(x) for x in range(1, 200))
    late = curve.chosen(40)[-15:]
    assert np.mean([curve.rate(x) for x in late]) > 0.88 * best


def test_where_few_passes_are_best_it_learns_to_take_fewer() -> None:
    few, many = Curve(2, 2, 10).chosen(40), Curve(48, 1, 10).chosen(40)
    assert np.mean(few[-15:]) < np.mean(few[:5])
    assert np.mean(many[-15:]) > np.mean(many[:5])


def test_draws_depend_on_the_seed() -> None:
    curve = Curve(8, 1, 10)
    assert curve.chosen(8, seed=1) == curve.chosen(8, seed=1)
    assert curve.chosen(8, seed=1) != curve.chosen(8, seed=2)


@pytest.mark.parametrize("fixed_s", [1e-4, 0.3, 7.0, 4000.0])
def test_the_shortest_deadline_is_what_a_scan_finds(fixed_s: float) -> None:
    async def planned(deadline_s: float) -> Plan:
        if deadline_s < fixed_s:
            raise InfeasibleError("too short")
        one = Allocation(samples=np.array([1]), steps=np.array([1]))
        return Plan(one, np.array([fixed_s]))

    scan_s = next(s for s in np.geomspace(1e-5, 1e5, 100_000) if s >= fixed_s)
    shortest = asyncio.run(shortest_s(planned, Work(1)))
    assert scan_s <= shortest * 1.001
    assert shortest <= 1.025 * scan_s
    ways = asyncio.run(ways_of(planned, Work(1)))
    assert ways[0].deadline_s == shortest
    assert len(ways) == module.DOUBLINGS * module.TO_A_DOUBLING + 1


def test_where_no_deadline_is_long_enough_the_plan_says_why() -> None:
    async def planned(deadline_s: float) -> Plan:
        raise InfeasibleError("nobody is there")

    with pytest.raises(InfeasibleError, match="nobody is there"):
        asyncio.run(shortest_s(planned, Work(1)))


@pytest.mark.parametrize(
    ("slow_s", "shortest"), [(1.5, 1.5), (7.0, 7.0), (100.0, 1.0), (1e12, 1.0)]
)
def test_a_slow_minority_is_waited_for_within_reason(
    slow_s: float, shortest: float
) -> None:
    async def planned(deadline_s: float) -> Plan:
        if deadline_s < 1.0:
            raise InfeasibleError("too short")
        able = deadline_s >= slow_s
        given = Allocation(samples=np.array([9, able]), steps=np.array([1, able]))
        return Plan(given, np.array([1.0, slow_s if able else 0.0]))

    found = asyncio.run(shortest_s(planned, Work(10)))
    assert shortest <= found <= 1.025 * shortest


def test_work_that_is_not_done_by_the_deadline_is_no_progress() -> None:
    async def planned(deadline_s: float) -> Plan:
        given = Allocation(samples=np.array([5, 5]), steps=np.array([2, 1]))
        return Plan(given, np.array([1.0, 9.0]))

    way = asyncio.run(way_of(planned, Work(10), 2.0))
    assert (way.lasts_s, way.trained, way.share) == (2.0, 10.0, 0.5)


def test_data_on_slow_learners_is_waited_for_though_fewer_samples_would_do() -> None:
    # The fast one alone could train on the ten samples of a cycle, of its thirty.
    async def planned(deadline_s: float) -> Plan:
        able = deadline_s >= 4.0
        given = Allocation(samples=np.array([10 - able, able]), steps=np.array([1, 1]))
        return Plan(given, np.array([min(deadline_s, 1.0), 4.0 * able]))

    found = asyncio.run(shortest_s(planned, Work(10, own=[30, 30])))
    assert 4.0 <= found <= 1.025 * 4.0
    assert asyncio.run(shortest_s(planned, Work(10))) < 1.1


def test_a_deadline_leaves_time_for_two_batches_or_all_that_a_learner_has() -> None:
    # Both train on ten samples a second; the second one has but five.
    async def planned(deadline_s: float) -> Plan:
        fit = int(10 * deadline_s)
        given = Allocation(
            samples=np.array([min(fit, 100), min(fit, 5)]), steps=np.array([1, 1])
        )
        return Plan(given, np.array([deadline_s, deadline_s]))

    own = [100, 5]
    assert 3.2 <= asyncio.run(shortest_s(planned, Work(105, own, batch=16))) <= 3.4
    assert 0.5 <= asyncio.run(shortest_s(planned, Work(105, own, batch=2.5))) <= 0.6
    assert asyncio.run(shortest_s(planned, Work(105, own))) <= 0.11


@COARSE
@pytest.mark.parametrize("mode", Mode)
def test_a_simulated_learner_that_is_too_slow_for_a_chosen_deadline_sits_out(
    mode: Mode,
) -> None:
    slow = LearnersTable(
        name="slow", rate=SamplesPerSecond(500), bandwidth=BytesPerSecond(1e3)
    )
    twice = [msgspec.structs.replace(learner, count=2) for learner in JOB.learners]
    job = msgspec.structs.replace(JOB, mode=mode, cycles=2, learners=(*twice, slow))
    found = list[Record]()
    simulate(job, runs=None, watch=found.append)
    given = [r.samples for r in found if isinstance(r, Allocated)]
    assert given[4::5] == [0, 0]
    assert all(given[0::5])
    if mode == Mode.FEDERATED:  # all others' data has a part
        assert given.count(0) == 2


@pytest.mark.slow
@COARSE
@pytest.mark.parametrize(
    "changes",
    [
        {"late_at_most": 0.1, "noise": 0.3},
        {"late": "carry", "noise": 1.0},
        {"late": "carry", "late_at_most": 0.2, "noise": 0.5, "mode": "federated"},
    ],
    ids=["promised", "carried", "both"],
)
def test_a_deadline_is_chosen_with_promises_and_where_late_work_is_carried(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    found = list[Record]()
    job = small(deadline=AUTO, cycles=6, samples=800, shard=10, **changes)
    simulate(job, runs=None, watch=found.append)
    chosen = [r for r in found if isinstance(r, Steered)]
    assert [r.cycle for r in chosen] == [1, 2, 3, 4, 5, 6]
    assert all(0.01 < r.deadline_s < 60 for r in chosen)
    assert all(r.trained and r.trained >= 90 for r in chosen)
    whole, resumed = whole_and_resumed(job, tmp_path, after=3)
    assert whole == resumed


# Jobs


@pytest.mark.parametrize("written", ["inf", 0, -1.0, "soon", "0 s", "auto "])
def test_a_deadline_is_a_time_or_auto(written: object) -> None:
    with pytest.raises(ConfigError):
        Deadline.of(written)


@pytest.mark.parametrize(
    "job",
    [
        Job(scheme="dab", deadline=AUTO),
        Job(scheme="coded", deadline=AUTO),
        Job(scheme="fog", mode=Mode.FEDERATED, deadline=AUTO),
        Job(scheme="med", deadline=AUTO, tasks=(TaskTable(name="one"),)),
    ],
    ids=["dab", "coded", "fog", "tasks"],
)
def test_what_does_not_allocate_one_averaged_task_refuses_it(job: Job) -> None:
    with pytest.raises(ConfigError, match=r"deadline = 'auto' under .*: give a time"):
        family_of(job).checked(job)


def test_a_run_says_auto_again_in_its_configuration(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(dump(JOB))
    assert 'deadline = "auto"' in file.read_text()
    assert load(file) == JOB


# Runs


@COARSE
def test_every_cycle_has_a_deadline_a_reason_and_an_expectation() -> None:
    happened = list[Record]()
    simulate(JOB, runs=None, watch=happened.append)
    chosen, cycles = of(Steered, happened), of(Aggregated, happened)
    assert [r.cycle for r in chosen] == [r.cycle for r in cycles] == [1, 2, 3, 4, 5, 6]
    for steered, cycle in zip(chosen, cycles, strict=True):
        assert cycle.cycle_s <= steered.deadline_s * (1 + 1e-9)
        assert "samples of a learner" in steered.why
    assert chosen[0].expected is None  # nothing was tested before
    losses = [r.loss for r in of(Evaluated, happened)]
    for steered, before in zip(chosen[1:], losses, strict=False):
        assert 0 < steered.expected < before


@COARSE
@pytest.mark.parametrize("chosen", [None, 2])
def test_work_is_counted_by_those_who_take_part(chosen: int | None) -> None:
    learners = [msgspec.structs.replace(g, count=4) for g in JOB.learners]
    job = msgspec.structs.replace(
        JOB,
        mode=Mode.FEDERATED,
        learners=tuple(learners),
        participation=ParticipationTable(rule=TakesPart.RANDOM, learners=chosen)
        if chosen
        else ParticipationTable(),
    )
    happened = list[Record]()
    simulate(job, runs=None, watch=happened.append)
    for steered in of(Steered, happened):
        orders = [r for r in of(Allocated, happened) if r.cycle == steered.cycle]
        done = sum(order.samples * order.steps for order in orders)
        assert steered.trained == pytest.approx(done / (chosen or 8))


@pytest.mark.slow
@COARSE
@pytest.mark.parametrize("by_hand", [False, True])
def test_a_run_that_was_cut_short_goes_on_as_if_it_had_not_been(
    by_hand: bool, tmp_path: Path
) -> None:
    def run(name: str, *, stops: bool) -> Path:
        control = Control()

        def watch(record: Record) -> None:
            if isinstance(record, Evaluated) and record.cycle == 2 and by_hand:
                control.set_deadline(3.0)
            if isinstance(record, Evaluated) and record.cycle == 4 and stops:
                control.stop()

        done = simulate(JOB, runs=tmp_path / name, watch=watch, control=control)
        assert done.folder is not None
        return done.folder

    whole, part = run("whole", stops=False), run("part", stops=True)
    assert len((part / "records.jsonl").read_bytes()) < len(
        (whole / "records.jsonl").read_bytes()
    )
    resume(part)
    for name in ("records.jsonl", "model.safetensors"):
        assert (part / name).read_bytes() == (whole / name).read_bytes()
    chosen = of(Steered, read(part / "records.jsonl"))
    hand = [(r.cycle, r.deadline_s) for r in chosen if not r.why]
    assert hand == ([(3, 3.0)] if by_hand else [])
    assert chosen[-1].cycle == (3 if by_hand else 6)  # it holds from then on


def test_real_learners_are_given_deadlines_with_reasons(tmp_path: Path) -> None:
    job = changed(scheme="csa", deadline=AUTO, cycles=3)
    happened = live(job, tmp_path / "run", [Steady(name="a"), Steady(name="b")])
    chosen = of(Steered, happened)
    assert [r.cycle for r in chosen] == [1, 2, 3]
    assert all(r.why and r.trained >= 1 for r in chosen)
    assert len(of(Evaluated, happened)) == 3
