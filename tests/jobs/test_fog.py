"""From a job to fog training."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from melisma.errors import ConfigError
from melisma.fog import cost, move
from melisma.fog.movement import Flows
from melisma.jobs.families import FAMILIES
from melisma.jobs.files import load
from melisma.jobs.fog import environment_of, links_of, presence_of
from melisma.jobs.fog_table import Costs, FogTable, Moving
from melisma.jobs.schema import (
    DataTable,
    Job,
    LearnersTable,
    Split,
    TrainingTable,
    names_of,
)
from melisma.launch.simulate import build
from melisma.learning.settings import Hardware
from melisma.runs.records import Aggregated, Evaluated, Joined, Left, Moved, Record
from melisma.system.law import DelayLaw, Mode
from melisma.units import BytesPerSecond, Deadline, SamplesPerSecond


def device(name: str, rate: float, count: int) -> LearnersTable:
    return LearnersTable(
        name=name,
        count=count,
        rate=SamplesPerSecond(rate),
        bandwidth=BytesPerSecond(40_000.0),
    )


JOB = Job(
    name="fog",
    scheme="fog",
    mode=Mode.FEDERATED,
    model="FogMLP",
    cycles=3,
    deadline=Deadline(4.0),
    steps=1,
    training=TrainingTable(rate=0.1, batch=10),
    learners=(device("fast", 40.0, 2), device("slow", 10.0, 3)),
    fog=FogTable(period=4),
)
EXAMPLES = Path(__file__).parents[2] / "examples"


def changed(job: Job = JOB, fog: dict[str, Any] | None = None, **changes: Any) -> Job:
    table = msgspec.structs.replace(job.fog, **(fog or {}))
    return msgspec.structs.replace(job, fog=table, **changes)


def law() -> DelayLaw:
    return DelayLaw(
        step_s=np.array([1 / 40, 1 / 40, 0.1, 0.1, 0.1]),
        sample_s=np.array([0.1, 0.1, 0.1, 0.1, 0.2]),
        fixed_s=np.zeros(5),
    )


def moved(happened: list[Record]) -> list[Moved]:
    return [record for record in happened if isinstance(record, Moved)]


def total(happened: list[Record]) -> float:
    return sum(r.process_cost + r.transfer_cost + r.error_cost for r in moved(happened))


def test_costs_and_capacities_are_the_times_that_work_takes() -> None:
    problem = environment_of(JOB)(list("abcde"), [100] * 5, law())
    # In units of 0.1 s, what a sample takes the slowest; a slot has 1 s.
    assert problem.process_cost[0] == pytest.approx([0.25, 0.25, 1, 1, 1])
    assert problem.capacity[0] == pytest.approx([40, 40, 10, 10, 10])
    links = problem.links
    to_e = (links.slot == 0) & (links.source == 0) & (links.target == 4)
    assert problem.link_cost[to_e] == pytest.approx([2.0])
    assert problem.link_capacity[to_e] == pytest.approx([5.0])
    assert problem.discard_cost[3] == pytest.approx([1.0] * 5)  # 2/√4


def test_several_passes_take_longer() -> None:
    problem = environment_of(changed(steps=4))(list("abcde"), [100] * 5, law())
    assert problem.capacity[0].tolist() == [10, 10, 2, 2, 2]


@pytest.mark.parametrize("seed", range(5))
def test_devices_collect_half_of_what_they_have_and_nothing_twice(seed: int) -> None:
    job = changed(seed=seed, cycles=25, fog={"period": 10})
    own = [2500, 1000, 500, 250, 40]
    data = environment_of(job)(list("abcde"), own, law()).data
    assert (data == data.round()).all()
    assert (data.sum(axis=0) <= own).all()
    assert data.sum(axis=0)[:3] == pytest.approx(np.array(own[:3]) / 2, rel=0.2)


def test_samples_bound_what_is_collected_in_a_cycle() -> None:
    data = environment_of(changed(samples=40))(list("abcde"), [5000] * 5, law()).data
    assert data.max() <= 40 / 4 / 5


@pytest.mark.parametrize("churn", [{}, {"arrivals": 0.3, "departures": 0.2}])
def test_the_known_plan_is_the_optimum_in_whole_samples(churn: Any) -> None:
    settings = {"plan": Moving.KNOWN, "costs": Costs.UNIFORM, "capacities": False}
    job = changed(fog=settings | churn)
    simulation = build(job)
    happened = simulation.run()
    crew, fog = simulation.built.crew, simulation.built.algorithm
    own = crew.own_samples
    problem = fog.settings.environment(crew.learners, own, law())
    assert total(happened) == pytest.approx(move(problem).costs.total, rel=1e-3)


@pytest.mark.parametrize("churn", [{}, {"arrivals": 0.3, "departures": 0.2}])
def test_records_have_the_costs_of_the_movement(churn: Any) -> None:
    simulation = build(changed(fog={"gamma": 3.0} | churn))
    happened = simulation.run()
    crew, fog = simulation.built.crew, simulation.built.algorithm
    names = crew.learners
    problem = fog.settings.environment(names, crew.own_samples, crew._law)
    flows = Flows(
        kept=np.zeros_like(problem.data),
        sent=np.zeros(len(problem.links)),
        discarded=np.zeros_like(problem.data),
    )
    links = problem.links
    for r in moved(happened):
        if r.slot > problem.slots:
            continue
        t, i = r.slot - 1, names.index(r.learner)
        if not problem.there[t, i]:
            continue  # what was lost on the way is in the flows that were sent
        flows.kept[t, i] = r.trained - r.arrived
        flows.discarded[t, i] = r.discarded
        for name, samples in r.sent.items():
            at = (links.slot == t) & (links.source == i)
            flows.sent[at & (links.target == names.index(name))] = samples
    assert total(happened) == pytest.approx(cost(problem, flows).total)


CHURN = {"arrivals": 0.3, "departures": 0.2}


def slots_of(happened: list[Record], slots: int) -> dict[str, list[bool]]:
    """Where each device is there, by the records of who joined and left."""
    there, now = dict[str, list[bool]](), dict[str, bool]()
    for record in happened:
        if isinstance(record, Joined | Left):
            now[record.learner] = isinstance(record, Joined)
            past = there.setdefault(record.learner, [])
            slot = round(record.time_s)  # of a second each
            past += [not now[record.learner]] * (slot - len(past))
    for name, past in there.items():
        past += [now[name]] * (slots - len(past))
    return there


@pytest.mark.parametrize("plan", list(Moving))
@pytest.mark.parametrize("seed", range(3))
def test_data_go_to_devices_that_are_there_and_to_no_others(
    plan: Moving, seed: int
) -> None:
    job = changed(scheme=f"fog:{plan.value}", cycles=5, seed=seed, fog=CHURN)
    happened, V = build(job).run(), presence_of(job)
    names = names_of(job)
    there = {
        (t + 1, name): bool(V[min(t, 19), i])
        for t in range(21)
        for i, name in enumerate(names)
    }
    assert 0.3 < V.mean() < 0.9
    for r in moved(happened):
        if not there[r.slot, r.learner]:
            assert (r.collected, r.trained, r.sent) == (0, 0, {})
            assert r.arrived == r.discarded > 0  # it left with what was sent to it
            assert plan in (Moving.WINDOWS, Moving.ROLLING)
        assert all(there[r.slot, receiver] for receiver in r.sent)
    expected = {name: V[:, i].tolist() for i, name in enumerate(names)}
    assert slots_of(happened, 20) == {n: v for n, v in expected.items() if any(v)}


def test_only_a_plan_that_does_not_know_who_leaves_loses_data_on_the_way() -> None:
    job = changed(cycles=5, fog=CHURN)
    V, names = presence_of(job), names_of(job)
    lost = {
        plan: sum(
            r.discarded
            for r in moved(build(changed(job, scheme=f"fog:{plan}")).run())
            if not V[min(r.slot, 20) - 1, names.index(r.learner)]
        )
        for plan in ("known", "rolling")
    }
    assert lost["known"] == 0 < lost["rolling"]


def test_a_trace_says_who_is_there(tmp_path: Path) -> None:
    trace = tmp_path / "comings.csv"
    trace.write_text("slot,device,change\n3,0,out\n5,0,in\n2,4,in\n")
    job = changed(fog={"comings": str(trace)})
    there = slots_of(build(job).run(), 12)
    assert there["fast-1"] == [True] * 3 + [False] * 2 + [True] * 7
    assert there["slow-3"] == [False] * 2 + [True] * 10
    assert all(there[name] == [True] * 12 for name in ("fast-2", "slow-1", "slow-2"))


def test_central_learning_lacks_what_nobody_was_there_to_collect() -> None:
    sums = [
        sum(r.collected for r in moved(build(changed(scheme=s, fog=CHURN)).run()))
        for s in ("fog:central", "fog:federated", "fog:known")
    ]
    assert len(set(sums)) == 1
    assert sums[0] < sum(r.collected for r in moved(build(JOB).run()))


def test_a_fog_that_all_devices_leave_goes_on_when_one_is_back(tmp_path: Path) -> None:
    trace = tmp_path / "comings.csv"
    leave = "".join(f"3,{i},out\n" for i in range(5))
    trace.write_text(f"slot,device,change\n{leave}9,1,in\n")
    happened = build(changed(fog={"comings": str(trace)})).run()
    merged = [r.learners for r in happened if isinstance(r, Aggregated)]
    assert merged == [0, 0, 1]


@pytest.mark.parametrize("churn", [{}, CHURN])
@pytest.mark.parametrize("plan", list(Moving))
def test_all_that_is_collected_is_trained_on_or_discarded(
    plan: Moving, churn: dict[str, float]
) -> None:
    rows = moved(build(changed(scheme=f"fog:{plan.value}", fog=churn)).run())
    assert sum(r.collected for r in rows) > (300 if churn else 500)
    gone = sum(r.trained + r.discarded for r in rows)
    assert gone == sum(r.collected for r in rows)
    assert any(r.sent for r in rows) == (plan != Moving.ALONE)


def test_a_better_plan_costs_less() -> None:
    costs = {
        plan: total(build(changed(scheme=f"fog:{plan}", cycles=6)).run())
        for plan in ("alone", "rolling", "known")
    }
    assert costs["known"] < costs["rolling"] < costs["alone"]


def test_federated_learning_averages_after_every_slot() -> None:
    happened = build(changed(scheme="fog:federated")).run()
    assert len([r for r in happened if isinstance(r, Evaluated)]) == 12
    assert all(not r.sent and not r.discarded for r in moved(happened))


def test_central_learning_has_all_the_data_on_one_device() -> None:
    central = moved(build(changed(scheme="fog:central")).run())
    alone = moved(build(changed(scheme="fog:federated")).run())
    assert {r.learner for r in central} == {"central"}
    for slot in range(1, 13):
        both = (
            sum(r.collected for r in rows if r.slot == slot)
            for rows in (central, alone)
        )
        assert len(set(both)) == 1


def test_the_same_seed_gives_the_same_run_whatever_the_threads() -> None:
    one, two = (build(JOB, Hardware(threads=n)).run() for n in (1, 2))
    assert one == two
    assert one != build(changed(seed=1)).run()


def test_labels_may_be_unevenly_spread() -> None:
    job = changed(data=DataTable(split=Split.DIRICHLET, alpha=0.3))
    rows = moved(build(job).run())
    collected = [
        sum(r.collected for r in rows if r.learner == name)
        for name in {r.learner for r in rows}
    ]
    assert max(collected) > 2 * min(collected)


@pytest.mark.parametrize("name", ["fog", "fog-churn"])
def test_the_example_is_ready(name: str) -> None:
    assert build(load(EXAMPLES / f"{name}.toml"))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"mode": Mode.PARALLEL}, "mode = 'federated'"),
        ({"scheme": "fog:knwon"}, "fog:known"),
        ({"fog": FogTable(period=4, windows=13)}, "13 of 12 slots"),
        ({"fog": FogTable(links="socail")}, "social"),
        ({"fog": FogTable(links="nowhere.csv")}, "nowhere.csv.*No such file"),
        ({"fog": FogTable(links="random", density=2.0)}, "density of 2.0"),
        ({"fog": FogTable(comings="no.csv")}, "fog.comings = 'no.csv': No such file"),
    ],
)
def test_what_cannot_be_is_said(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        build(msgspec.structs.replace(JOB, **changes)).run()


def test_central_learning_is_simulated_only() -> None:
    with pytest.raises(ConfigError, match="simulated"):
        FAMILIES["fog"].checked(changed(scheme="fog:central"), live=True)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[fog]\nperiod = 0", "period = 0"),
        ("[fog]\ndiscard = -1", "discard = -1"),
        ('[fog]\nplan = "roling"', "rolling"),
        ("[fog]\narrivals = 1.5", "arrivals = 1.5: give a chance from 0 to 1"),
        ("[fog]\ndepartures = nan", "departures = nan: give a chance from 0 to 1"),
        ('[fog]\ncomings = "x.csv"\narrivals = 0.1', "give them, or arrivals"),
        ('[fog]\ncosts = "rate"', "rates"),
        ("[fog]\nperoid = 3", "period"),
    ],
)
def test_a_wrong_key_is_named(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "job.toml").write_text(text)
    with pytest.raises(ConfigError, match=why):
        load(tmp_path / "job.toml")


@pytest.mark.parametrize(
    "links", ["full", "random", "social", "hierarchical", "scale-free", "waypoint"]
)
def test_topologies_have_names(links: str) -> None:
    table = FogTable(links=links, up=0.5)
    made = links_of(table, 20, np.arange(12.0), np.random.default_rng(0))
    always = links_of(
        FogTable(links=links), 20, np.arange(12.0), np.random.default_rng(0)
    )
    assert 0 < len(made) < len(always)


def test_links_may_come_from_a_trace(tmp_path: Path) -> None:
    trace = tmp_path / "links.csv"
    trace.write_text("source,target,slot\n0,1,0\n1,2,3\n")
    made = links_of(
        FogTable(links=str(trace)), 4, np.arange(3.0), np.random.default_rng(0)
    )
    assert (made.slot.tolist(), made.target.tolist()) == ([0, 3], [1, 2])


def test_a_scheme_means_what_its_name_says() -> None:
    job = FAMILIES["fog"].checked(changed(scheme="fog:federated"))
    assert (job.cycles, job.fog.period, float(job.deadline)) == (12, 1, 1.0)
    assert FAMILIES["fog"].checked(changed(scheme="fog:known")).fog.plan == Moving.KNOWN
