"""Comparisons of fog schemes."""

import asyncio
import json
import re
from pathlib import Path

import msgspec
import pytest

from melisma.comparison import report
from melisma.comparison.outcomes import (
    Comparison,
    Outcome,
    cells,
    compare,
)
from melisma.errors import ConfigError
from melisma.jobs.families import cycles_of, family_of, fog_schemes
from melisma.jobs.fog_table import Costs, FogTable
from melisma.jobs.schema import Job, LearnersTable, TrainingTable
from melisma.launch.simulate import build
from melisma.runs.records import Moved, Record
from melisma.system.law import Mode
from melisma.units import BytesPerSecond, Deadline, SamplesPerSecond
from melisma.views.history import history
from melisma.views.plots import LOOKS

JOB = Job(
    name="tiny",
    scheme="fog",
    mode=Mode.FEDERATED,
    model="FogMLP",
    cycles=2,
    steps=1,
    samples=240,
    deadline=Deadline(3.0),
    training=TrainingTable(rate=0.05, batch=10),
    fog=FogTable(period=3, costs=Costs.UNIFORM, capacities=False),
    learners=(
        LearnersTable(
            name="d",
            count=4,
            rate=SamplesPerSecond(1000.0),
            bandwidth=BytesPerSecond(1e6),
        ),
    ),
)


def of(scheme: str) -> Job:
    return msgspec.structs.replace(JOB, scheme=scheme)


@pytest.fixture(scope="module")
def ran() -> dict[str, list[Record]]:
    schemes = ("fog:alone", "fog:known", "fog:federated", "fog:central")
    return {scheme: build(of(scheme)).run() for scheme in schemes}


def outcome(scheme: str, *runs: list[Record]) -> Outcome:
    return Outcome(scheme=scheme, histories=[history(run) for run in runs])


def table(of: Outcome) -> dict[str, float]:
    titles = of.titles()
    means = [figure.mean for figure in of.figures()]
    return dict(zip(titles, means, strict=True))


def test_alone_costs_what_processing_all_data_costs(
    ran: dict[str, list[Record]],
) -> None:
    simulation = build(of("fog:alone"))
    devices, fog = simulation.built.crew, simulation.built.algorithm
    law = asyncio.run(devices.law())
    movement = fog.settings.environment(devices.learners, devices.own_samples, law)
    unit = (movement.process_cost * movement.data).sum() / movement.data.sum()
    figures = table(outcome("fog:alone", ran["fog:alone"]))
    assert figures["unit cost"] == pytest.approx(float(unit))
    assert figures["process cost"] == figures["unit cost"]
    assert (figures["offloaded (%)"], figures["discarded (%)"]) == (0.0, 0.0)
    assert figures["trained (%)"] == 100.0


def test_figures_are_sums_over_records(ran: dict[str, list[Record]]) -> None:
    rows = [row for row in ran["fog:known"] if isinstance(row, Moved)]
    collected = sum(row.collected for row in rows)
    offloaded = sum(n for row in rows for n in row.sent.values())
    figures = table(outcome("fog:known", ran["fog:known"]))
    assert 0.0 < figures["offloaded (%)"] == pytest.approx(100 * offloaded / collected)
    parts = [
        row.process_cost + row.transfer_cost + row.error_cost for row in reversed(rows)
    ]
    assert figures["unit cost"] == pytest.approx(sum(parts) / collected)
    transfer = sum(row.transfer_cost for row in rows)
    assert figures["transfer cost"] == pytest.approx(transfer / collected)


def test_knowing_the_future_costs_no_more_than_working_alone(
    ran: dict[str, list[Record]],
) -> None:
    alone, known = (table(outcome(s, ran[s])) for s in ("fog:alone", "fog:known"))
    assert known["unit cost"] < alone["unit cost"]


def test_several_seeds_have_an_interval(ran: dict[str, list[Record]]) -> None:
    # Two runs whose unit costs differ by 2h: half a width of 12.706 · h.
    other = build(msgspec.structs.replace(of("fog:alone"), seed=1)).run()
    one, two = (table(outcome("fog:alone", run)) for run in (ran["fog:alone"], other))
    both = outcome("fog:alone", ran["fog:alone"], other).figures()[2]
    h = abs(one["unit cost"] - two["unit cost"]) / 2
    assert both.mean == pytest.approx((one["unit cost"] + two["unit cost"]) / 2)
    assert both.half == pytest.approx(12.7062 * h, rel=1e-4)


def test_the_yardstick_has_accuracy_and_no_costs(ran: dict[str, list[Record]]) -> None:
    accuracy, _, *costs, offloaded, discarded, trained = cells(
        outcome("fog:central", ran["fog:central"])
    )
    assert float(accuracy) > 10.0
    assert costs == ["–"] * 4
    assert (offloaded, discarded, trained) == ("0.0", "0.0", "100.0")


def test_the_page_holds_curves_costs_and_table(
    ran: dict[str, list[Record]], tmp_path: Path
) -> None:
    outcomes = [outcome(scheme, records) for scheme, records in ran.items()]
    titles = outcomes[0].titles()
    found = Comparison(job="tiny", seeds=[0], titles=titles, outcomes=outcomes)
    report.write(found, "", tmp_path)
    text = (tmp_path / "report.html").read_text("utf-8")
    (held,) = json.loads(re.findall(r'id="documents">(.*?)</script>', text, re.S)[0])
    shown = held["comparison"]
    assert {p.name for p in tmp_path.glob("*.png")} == {"comparison.png", "costs.png"}
    assert "fog:federated averages after every slot" in shown["notes"]
    assert "staleness" not in json.dumps(shown)
    rows = {name: cells for name, *cells in shown["rows"]}
    unit = table(outcomes[1])["unit cost"]
    assert rows["fog:known"][2] == f"{unit:,.3f}"
    costs = {row.pop("scheme"): sum(row.values()) for row in shown["costs"]}
    assert costs["fog:known"] == pytest.approx(unit)
    assert "fog:central" not in costs
    curve = next(c for c in shown["curves"] if c["scheme"] == "fog:known")
    assert curve["mean"] == [100 * a for a in outcomes[1].histories[0].metric]
    assert set(curve["half"]) == {None}  # one seed


def test_only_the_yardstick_has_no_picture_of_costs(
    ran: dict[str, list[Record]], tmp_path: Path
) -> None:
    outcomes = [outcome("fog:central", ran["fog:central"])]
    titles = outcomes[0].titles()
    found = Comparison(job="tiny", seeds=[0], titles=titles, outcomes=outcomes)
    report.write(found, "", tmp_path)
    assert {path.name for path in tmp_path.glob("*.png")} == {"comparison.png"}


@pytest.mark.parametrize(
    ("schemes", "says"),
    [
        (["fog:alone", "csa"], "the figures of csa are not those of fog:alone"),
        (["fog:alone", "fog:knwon"], "did you mean 'fog:known'"),
        (["fog:alone", "fgo:rolling"], "did you mean 'fog:rolling'"),
        (["fog:alone", "coded:cyclc"], "did you mean 'coded:cyclic'"),
    ],
)
def test_wrong_schemes_are_refused_before_any_run(
    tmp_path: Path, schemes: list[str], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        compare(JOB, schemes, 1, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_fog_needs_federated_mode(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give mode = 'federated'"):
        compare(Job(), ["fog:alone"], 1, tmp_path)


def test_every_scheme_has_its_look() -> None:
    assert set(fog_schemes()) <= set(LOOKS)
    assert set(family_of(JOB).usual) <= set(fog_schemes())
    assert family_of(Job()).usual == ("csa", "eta", "sync", "dab")


def test_averaging_after_every_slot_makes_more_cycles(
    ran: dict[str, list[Record]],
) -> None:
    ended = len(history(ran["fog:federated"]).metric)
    assert cycles_of(of("fog:federated")) == ended == 6
    assert cycles_of(of("fog:alone")) == 2
