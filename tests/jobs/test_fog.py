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
from melisma.jobs.fog import environment_of, links_of
from melisma.jobs.fog_table import Costs, FogTable, Moving
from melisma.jobs.schema import DataTable, Job, LearnersTable, Split, TrainingTable
from melisma.launch.simulate import build
from melisma.learning.settings import Hardware
from melisma.runs.records import Evaluated, Moved, Record
from melisma.system.law import DelayLaw, Mode
from melisma.units import BytesPerSecond, SamplesPerSecond, Seconds


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
    deadline=Seconds(4.0),
    steps=1,
    training=TrainingTable(rate=0.1, batch=10),
    learners=(device("fast", 40.0, 2), device("slow", 10.0, 3)),
    fog=FogTable(period=4),
)
EXAMPLE = Path(__file__).parents[2] / "examples" / "fog.toml"


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


def test_the_known_plan_is_the_optimum_in_whole_samples() -> None:
    job = changed(
        fog={"plan": Moving.KNOWN, "costs": Costs.UNIFORM, "capacities": False}
    )
    simulation = build(job)
    happened = simulation.run()
    crew, fog = simulation.built.crew, simulation.built.algorithm
    own = crew.own_samples
    problem = fog.settings.environment(crew.learners, own, law())
    assert total(happened) == pytest.approx(move(problem).costs.total, rel=1e-3)


def test_records_have_the_costs_of_the_movement() -> None:
    simulation = build(changed(fog={"gamma": 3.0}))
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
        flows.kept[t, i] = r.trained - r.arrived
        flows.discarded[t, i] = r.discarded
        for name, samples in r.sent.items():
            at = (links.slot == t) & (links.source == i)
            flows.sent[at & (links.target == names.index(name))] = samples
    assert total(happened) == pytest.approx(cost(problem, flows).total)


@pytest.mark.parametrize("plan", list(Moving))
def test_all_that_is_collected_is_trained_on_or_discarded(plan: Moving) -> None:
    rows = moved(build(changed(scheme=f"fog:{plan.value}")).run())
    assert sum(r.collected for r in rows) > 500
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


def test_the_example_is_ready() -> None:
    assert build(load(EXAMPLE))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"mode": Mode.PARALLEL}, "mode = 'federated'"),
        ({"scheme": "fog:knwon"}, "fog:known"),
        ({"fog": FogTable(period=4, windows=13)}, "13 of 12 slots"),
        ({"fog": FogTable(links="socail")}, "social"),
        ({"fog": FogTable(links="nowhere.csv")}, "nowhere.csv.*No such file"),
        ({"fog": FogTable(links="random", density=2.0)}, "density of 2.0"),
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
