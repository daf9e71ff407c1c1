"""Spot instances of a job: taken at work, paid until then, away, and back again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.algorithms.resuming import whole_and_resumed
from tests.jobs.powered import FRUGAL, powered, sums

from melisma.algorithms.state import RunState
from melisma.errors import ConfigError, InfeasibleError
from melisma.jobs.energy_table import PowerTable
from melisma.launch.simulate import simulate
from melisma.runs.records import (
    RECLAIMED,
    Aggregated,
    Allocated,
    Dropped,
    Evaluated,
    Joined,
    Left,
    Record,
    Uploaded,
    Waited,
)
from melisma.views.incidents import incidents

SPOT = FRUGAL | {"per_second": 0.1, "reclaim": "4 s", "returns": "2 s"}
OWN = FRUGAL | {"per_second": 0.1}


def reclaimed(records: list[Record]) -> list[Dropped]:
    dropped = [r for r in records if isinstance(r, Dropped)]
    return [r for r in dropped if r.reason == RECLAIMED]


def test_who_is_reclaimed_at_work_loses_it_and_is_away_until_it_returns() -> None:
    records = simulate(powered(SPOT, SPOT, SPOT, scheme="csa", cycles=8))
    taken = {(r.learner, r.cycle) for r in reclaimed(records)}
    there: set[str] = set()
    for record in records:
        match record:
            case Joined(learner=name):
                there.add(name)
            case Left(learner=name):
                there.remove(name)
            case Allocated(learner=name):
                assert name in there
            case Uploaded(learner=name, cycle=cycle):
                assert (name, cycle) not in taken
    assert taken
    counts = {r.cycle: r.learners for r in records if isinstance(r, Aggregated)}
    for cycle, learners in counts.items():
        orders = {
            r.learner
            for r in records
            if isinstance(r, Allocated) and r.samples and r.cycle == cycle
        }
        lost = {name for name, number in taken if number == cycle}
        assert lost <= orders
        assert learners == len(orders - lost)
    said = [found for found in incidents(records) if found.detail == RECLAIMED]
    assert len(said) == len(taken)


def test_a_plan_says_how_likely_each_is_to_be_reclaimed() -> None:
    records = simulate(powered(SPOT, OWN, OWN, scheme="csa", cycles=1))
    orders = [r for r in records if isinstance(r, Allocated)]
    assert {r.risk is None for r in orders if "laptop" not in r.learner} == {True}
    (first, *_) = [r for r in orders if "laptop" in r.learner]
    assert first.risk is not None
    assert first.predicted_s is not None
    assert first.risk == pytest.approx(1 - np.exp(-first.predicted_s / 4.0))


@pytest.mark.slow
def test_what_is_spent_until_then_counts_and_no_more() -> None:
    job = powered(SPOT, SPOT, SPOT, budget=1.5, per="run", cycles=12)
    records = simulate(job)
    spent = joules = 0.0
    orders: dict[str, Allocated] = {}
    for record in records:
        match record:
            case Allocated(learner=name):
                orders[name] = record
                spent += record.cost or 0.0
                joules += record.predicted_j or 0.0
            case Dropped(learner=name, reason=reason) if reason == RECLAIMED:
                order = orders[name]
                assert order.predicted_s
                share = (record.time_s - order.time_s) / order.predicted_s
                assert 0 < share < 1
                spent -= (1 - share) * (order.cost or 0.0)
                joules -= (1 - share) * (order.predicted_j or 0.0)
    state = RunState(records)
    assert state.cost == pytest.approx(spent)
    assert state.spent_j == pytest.approx(joules)
    assert 0 < spent <= 1.5
    assert reclaimed(records)
    # What is saved is left to later cycles: each plans with its share of all that is.
    costs = sums(records, "cost")
    assert sum(costs) > spent


@pytest.mark.slow
def test_a_cycle_in_which_all_are_reclaimed_is_not_the_end() -> None:
    often = SPOT | {"reclaim": "1 s", "returns": "1 s"}
    job = powered(often, often, often, scheme="csa", cycles=10, samples=40, steps=9)
    records = simulate(job)
    merged = [r.learners for r in records if isinstance(r, Aggregated)]
    assert len(merged) == 10
    assert 0 in merged
    assert sum(merged) > 0


@pytest.mark.parametrize(
    "changes",
    [
        {"scheme": "csa", "noise": 0.2},
        pytest.param(
            {"scheme": "energy-most", "budget": 2.0, "per": "run", "noise": 0.2},
            marks=pytest.mark.slow,
        ),
        pytest.param({"scheme": "fedavg", "late": "drop"}, marks=pytest.mark.slow),
        pytest.param(
            {"scheme": "dab-adaptive", "mode": "federated"}, marks=pytest.mark.slow
        ),
        pytest.param(
            {"scheme": "csa", "mode": "federated", "late_at_most": 0.2, "noise": 0.2},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_run_that_was_cut_short_meets_the_same_market(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    job = powered(SPOT, SPOT, OWN, cycles=8, **changes)
    whole, resumed = whole_and_resumed(job, tmp_path, after=4)
    assert resumed == whole
    assert any(RECLAIMED.encode() in lines for lines in whole.values())


def test_a_cycle_waits_for_those_without_whom_it_cannot_be_planned() -> None:
    # Ten learners do 400 samples in 0.3 s, and three of them do not.
    job = powered(SPOT, SPOT, OWN, scheme="energy-least", cycles=6, steps=4)
    records = simulate(job)
    waited = [r for r in records if isinstance(r, Waited)]
    assert waited
    assert "do not fit" in waited[0].reason
    assert sums(records, "samples") == [400] * 6
    assert len([r for r in records if isinstance(r, Evaluated)]) == 6
    said = [found for found in incidents(records) if found.what == "waited"]
    assert len(said) == len(waited)


def test_a_run_whose_learners_are_gone_for_good_says_so() -> None:
    gone = {"reclaim": "1 s"}
    with pytest.raises(InfeasibleError, match="every learner was reclaimed by"):
        simulate(powered(gone, gone, gone, scheme="csa", cycles=40, samples=20))


@pytest.mark.parametrize(
    ("power", "message"),
    [
        ({"reclaim": "0 s"}, "power.reclaim of 0.0 s: give a mean time of 1 s"),
        ({"reclaim": "-1 h"}, "power.reclaim is -3600.0: give a finite number"),
        ({"reclaim": float("inf")}, "power.reclaim is inf"),
        ({"reclaim": "2 W"}, "unknown unit 'W'"),
        ({"reclaim": "2 h", "returns": "1 ms"}, "power.returns of 0.001 s"),
        ({"returns": "1 h"}, "power.returns without power.reclaim"),
    ],
)
def test_what_cannot_be_is_refused(power: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PowerTable(**power)
