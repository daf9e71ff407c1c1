"""A fog whose costs were measured: each number is one of the trace's."""

import csv
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from melisma.errors import ConfigError
from melisma.fog import move, traces
from melisma.jobs.families import FAMILIES
from melisma.jobs.files import dump, load
from melisma.jobs.fog import environment_of
from melisma.jobs.fog_table import Costs, FogTable
from melisma.jobs.schema import Job, LearnersTable, TrainingTable
from melisma.launch.simulate import build
from melisma.runs.records import Moved, Record
from melisma.system.law import DelayLaw, Mode
from melisma.units import BytesPerSecond, Deadline, SamplesPerSecond

ROOT = Path(__file__).parents[2]
NAMES = ("pi1", "pi2", "pi3", "nano")  # of the example
DEVICES, PERIOD, CYCLES, MEASURED = 4, 5, 3, 7  # the trace is shorter than the run
SLOT_S, STEPS = 0.5, 2


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Devices that are slow by their number, and links that vary."""
    rng = np.random.default_rng(0)
    sample_s = 0.002 * np.exp(rng.normal(0.0, 1.0, (MEASURED, DEVICES, DEVICES)))
    for k in range(DEVICES):
        sample_s[:, k, k] = (0.005, 0.02, 0.04, 0.08)[k] * rng.uniform(
            0.8, 1.2, MEASURED
        )
    traces.write(tmp_path / "trace.csv", traces.Trace(sample_s=sample_s))
    return tmp_path / "trace.csv"


def job_of(trace: Path, learners: int = DEVICES, **fog: Any) -> Job:
    return Job(
        name="fog",
        scheme="fog",
        mode=Mode.FEDERATED,
        model="FogMLP",
        cycles=CYCLES,
        deadline=Deadline(PERIOD * SLOT_S),
        steps=STEPS,
        training=TrainingTable(rate=0.1, batch=10),
        learners=(
            LearnersTable(
                name="pi",
                count=learners,
                rate=SamplesPerSecond(1e6),  # a trace knows better
                bandwidth=BytesPerSecond(1e9),
            ),
        ),
        fog=FogTable(period=PERIOD, costs=str(trace), discard=20.0, **fog),
    )


def moved(happened: list[Record]) -> list[Moved]:
    return [record for record in happened if isinstance(record, Moved)]


def measured(trace: Path) -> dict[tuple[int, int, int], float]:
    """The seconds of a file, read by other means."""
    with trace.open(newline="") as file:
        return {
            (int(row["slot"]), int(row["source"]), int(row["target"])): float(
                row["sample_s"]
            )
            for row in csv.DictReader(file)
        }


@pytest.mark.parametrize("plan", ["alone", "windows", "rolling", "known"])
def test_costs_are_exactly_the_traces(trace: Path, plan: str) -> None:
    job = msgspec.structs.replace(job_of(trace), scheme=f"fog:{plan}")
    seconds, slots = measured(trace), CYCLES * PERIOD
    # A sample on the slowest device in its median slot costs 1.
    unit_s = max(
        np.median([STEPS * seconds[t % MEASURED, k, k] for t in range(slots)])
        for k in range(DEVICES)
    )
    rows = moved(build(job).run())
    for r in rows:
        t, k = (min(r.slot, slots) - 1) % MEASURED, int(r.learner[-1]) - 1
        processed = r.trained * STEPS * seconds[t, k, k] / unit_s
        sent = sum(
            samples * seconds[t, k, int(name[-1]) - 1] / unit_s
            for name, samples in r.sent.items()
        )
        assert r.process_cost == pytest.approx(processed, rel=1e-12)
        assert r.transfer_cost == pytest.approx(sent, rel=1e-12)
    assert any(r.sent for r in rows) == (plan != "alone")


def test_no_device_does_more_than_a_slot_has_time_for(trace: Path) -> None:
    seconds = measured(trace)
    rows = moved(build(job_of(trace)).run())
    for r in rows:
        t, k = (min(r.slot, CYCLES * PERIOD) - 1) % MEASURED, int(r.learner[-1]) - 1
        assert r.trained * STEPS * seconds[t, k, k] <= SLOT_S
        for name, samples in r.sent.items():
            assert samples * seconds[t, k, int(name[-1]) - 1] <= SLOT_S
    assert any(r.discarded for r in rows)


def test_data_goes_to_where_the_trace_is_fast(trace: Path) -> None:
    rows = moved(build(job_of(trace)).run())
    trained = [sum(r.trained for r in rows if r.learner == f"pi-{k}") for k in (1, 4)]
    arrived = sum(r.arrived for r in rows if r.learner == "pi-1")
    assert trained[0] > 2 * trained[1]
    assert arrived > 0


def test_the_known_plan_is_the_optimum_of_the_trace(trace: Path) -> None:
    simulation = build(job_of(trace, plan="known", capacities=False))
    happened = simulation.run()
    crew, fog = simulation.built.crew, simulation.built.algorithm
    problem = fog.settings.environment(crew.learners, crew.own_samples, crew._law)
    total = sum(
        r.process_cost + r.transfer_cost + r.error_cost for r in moved(happened)
    )
    assert total == pytest.approx(move(problem).costs.total, rel=1e-3)


def law_of(devices: int) -> DelayLaw:
    return DelayLaw(
        step_s=np.ones(devices), sample_s=np.ones(devices), fixed_s=np.zeros(devices)
    )


def test_learners_that_come_in_another_order_keep_their_costs(trace: Path) -> None:
    environment = environment_of(job_of(trace))
    names = ["pi-1", "pi-2", "pi-3", "pi-4"]
    there = environment(names, [100] * 4, law_of(4))
    turned = environment(names[::-1], [100] * 4, law_of(4))
    assert (turned.process_cost == there.process_cost[:, ::-1]).all()
    strangers = environment(list("dcba"), [100] * 4, law_of(4))
    assert (strangers.process_cost == there.process_cost).all()


def test_fewer_learners_have_the_first_devices_costs(trace: Path) -> None:
    problem = environment_of(job_of(trace, 2))(["pi-1", "pi-2"], [100] * 2, law_of(2))
    seconds = measured(trace)
    expected = seconds[0, 0, 0] / seconds[0, 1, 1]
    assert problem.process_cost[0, 0] / problem.process_cost[0, 1] == pytest.approx(
        expected
    )


def test_more_learners_than_were_measured_are_refused(trace: Path) -> None:
    with pytest.raises(ConfigError, match="a trace of 4 devices has no costs for 5"):
        build(job_of(trace, 5)).run()


@pytest.mark.parametrize("live", [False, True])
def test_a_bad_trace_is_told_before_anybody_joins(trace: Path, live: bool) -> None:
    trace.write_text(trace.read_text()[:-3])
    with pytest.raises(ConfigError, match=r"trace\.csv, line 113: cut off"):
        FAMILIES["fog"].checked(job_of(trace), live=live)
    with pytest.raises(ConfigError, match=r"none\.csv: No such file"):
        FAMILIES["fog"].checked(job_of(trace.with_name("none.csv")), live=live)


def test_a_job_file_may_name_a_trace_and_says_what_else_it_may(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text('[fog]\ncosts = "measured.csv"')
    assert load(file).fog.is_traced
    file.write_text(dump(load(file)))
    assert load(file).fog.costs == "measured.csv"
    file.write_text('[fog]\ncosts = "trace"')
    with pytest.raises(ConfigError, match=r"unknown costs 'trace'.*FILE\.csv.*rates"):
        load(file)
    assert [FogTable(costs=costs).is_traced for costs in Costs] == [False] * 4


@pytest.mark.slow
def test_the_example_moves_data_to_the_fastest_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    job = msgspec.structs.replace(load(ROOT / "examples/fog-trace.toml"), cycles=2)
    rows = moved(build(job).run())
    trained, arrived = (
        {n: sum(getattr(r, key) for r in rows if r.learner == n) for n in NAMES}
        for key in ("trained", "arrived")
    )
    assert max(trained, key=trained.__getitem__) == "nano"
    assert arrived["nano"] > arrived["pi1"]
