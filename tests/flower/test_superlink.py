"""The example on a real SuperLink with real SuperNodes, on loopback."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from flwr.app import UserConfigValue
from tests.flower.federation import Federation, federation
from tests.flower.replay import farthest, replayed
from tests.flower.test_fleet import of

from melisma.jobs import files as config
from melisma.jobs.building import own_rows, task_of
from melisma.learning.parameters import Parameters, load
from melisma.runs import records
from melisma.runs.store import CONFIG, MODEL, RECORDS

pytestmark = pytest.mark.slow

#: Work that is done in no time: a cycle is as long as Flower's messages take.
SHORT: dict[str, UserConfigValue] = {
    "scheme": "dab",
    "steps": 1,
    "most": 20,
    "cycles": 2,
}


@pytest.fixture(scope="module")
def flower(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    with federation(tmp_path_factory.mktemp("flower")) as flower:
        rates = {"fast": "4000 samples/s", "slow": "1000 samples/s"}
        for part, (name, rate) in enumerate(rates.items()):
            flower.start_node(name=name, rate=rate, partition_id=part, num_partitions=2)
        yield flower


@pytest.fixture(scope="module")
def dab(flower: Federation) -> Path:
    flower.run(name="dab", deadline="90 s", mode="federated", **SHORT)
    return flower.runs / "dab"


@pytest.fixture(scope="module")
def deadline(dab: Path) -> str:
    """Time enough, however long messages take on this machine now."""
    first, second = of(records.Evaluated, records.read(dab / RECORDS))
    return f"{2 * (second.time_s - first.time_s)} s"


@pytest.mark.alone
def test_csa_on_shards(flower: Federation) -> None:
    # Flower's messages take 10 s of it, or 20 s on a busy machine.
    flower.run(name="csa", cycles=1, deadline="30 s", late="wait", samples=1000)
    folder = flower.runs / "csa"
    happened = records.read(folder / RECORDS)
    given = {r.learner: r.samples for r in of(records.Allocated, happened)}
    assert given["fast"] > given["slow"] > 0
    trained = {r.learner: r.samples for r in of(records.Trained, happened)}
    assert trained == given
    assert of(records.Aggregated, happened)[0].samples == 1000
    assert of(records.Evaluated, happened)[0].metrics["accuracy"] > 0.7
    assert farthest(load(folder / MODEL), again(folder)) < 1e-6
    assert (folder / "report.html").exists()


@pytest.mark.long
def test_csa_halts_in_time(flower: Federation, deadline: str) -> None:
    # CSA fills the time there is, and learners leave a margin: the last batches fall.
    # One cycle: thousands of batches in a second one would magnify its rounding.
    flower.run(name="halt", cycles=1, deadline=deadline, samples=500)
    folder = flower.runs / "halt"
    happened = records.read(folder / RECORDS)
    orders = {(r.cycle, r.learner): r for r in of(records.Allocated, happened)}
    halted = of(records.Halted, happened)
    assert halted
    for done in halted:
        order = orders[done.cycle, done.learner]
        assert 0 < done.batches < order.steps * -(-order.samples // 32)
    assert farthest(load(folder / MODEL), again(folder)) < 1e-6


@pytest.mark.long
def test_dab_on_data_of_the_nodes(dab: Path) -> None:
    happened = records.read(dab / RECORDS)
    assert {r.predicted_s for r in of(records.Allocated, happened)} == {None}
    assert [r.learners for r in of(records.Aggregated, happened)] == [2, 2]
    assert farthest(load(dab / MODEL), again(dab)) < 1e-6


@pytest.mark.long
def test_a_killed_node_costs_its_share(flower: Federation, deadline: str) -> None:
    doomed = flower.start_node(name="doomed")
    run = flower.begin(name="kill", nodes=3, deadline=deadline, **SHORT)
    path = flower.runs / "kill" / RECORDS
    wait_for_order(path)
    doomed.kill()
    flower.end(run)
    happened = records.read(path)
    (lost,) = of(records.Dropped, happened)
    assert (lost.cycle, lost.learner, lost.offence) == (1, "doomed", False)
    assert [r.learners for r in of(records.Aggregated, happened)] == [2, 2]
    assert [r.learner for r in of(records.Left, happened)] == ["doomed"]


def again(folder: Path) -> Parameters:
    """What the model must be, by the run's job and records."""
    job = config.load(folder / CONFIG)
    rows = own_rows(job, task_of(job).data, 2)
    own = dict(zip(("fast", "slow"), rows, strict=True)) if rows else None
    return replayed(job, records.read(folder / RECORDS), own)


def wait_for_order(path: Path, within_s: float = 90.0) -> None:
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if path.exists() and of(records.Allocated, records.read(path)):
            return
        time.sleep(0.2)
    raise TimeoutError(f"no order in {path} within {within_s} s")
