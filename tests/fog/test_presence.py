"""Devices that enter and leave: who is there, and what a plan makes of it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.fog.movements import optimum, pair, some

from melisma.errors import ConfigError
from melisma.fog import Flows, Links, Movement, averages, carried_out, check, cost, move
from melisma.fog.lp import move_lp
from melisma.fog.online import Alone, Known, Planner, Rolling, Windows
from melisma.fog.presence import drawn, from_file
from melisma.maths.arrays import Bools

PLANNERS = ("alone", "known", "windows", "rolling")


def churning(seed: int, *, gamma: bool = False) -> Movement:
    """`some` movement whose devices enter and leave."""
    problem, rng = some(seed, gamma=gamma), np.random.default_rng([seed, 3])
    there = rng.random(problem.data.shape) < rng.choice([0.3, 0.6, 0.9])
    return replace(problem, there=there)


def planner(name: str, problem: Movement) -> Planner:
    made: dict[str, Planner] = {
        "alone": Alone(),
        "known": Known(),
        "windows": Windows(min(2, problem.slots)),
        "rolling": Rolling(3, averages),
    }
    return made[name]


def by_hand(seed: int, there: Bools, *, gamma: bool) -> Movement:
    """The same from its parts, without those links and data that may not be used."""
    problem = some(seed, gamma=gamma)
    links = problem.links
    used = [
        e
        for e in range(len(links))
        if there[links.slot[e], links.source[e]]
        and there[links.slot[e], links.target[e]]
        and there[min(links.slot[e] + 1, problem.slots - 1), links.target[e]]
    ]
    return replace(
        problem,
        data=problem.data * there,
        gamma=problem.gamma * there,
        links=Links.of(
            problem.devices,
            problem.slots,
            links.slot[used],
            links.source[used],
            links.target[used],
        ),
        link_cost=problem.link_cost[used],
        link_capacity=problem.link_capacity[used],
    )


@pytest.mark.parametrize("gamma", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_the_best_plan_is_that_of_the_devices_that_are_there(
    seed: int, gamma: bool
) -> None:
    problem = churning(seed, gamma=gamma)
    least = optimum(by_hand(seed, problem.there, gamma=gamma))
    assert move(problem).costs.total == pytest.approx(least, rel=2e-6, abs=1e-6)
    if not gamma:
        assert move_lp(problem).costs.total == pytest.approx(least, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", PLANNERS)
@pytest.mark.parametrize("seed", range(40))
def test_nothing_goes_from_or_to_a_device_that_is_not_there(
    name: str, seed: int
) -> None:
    problem = churning(seed)
    flows = carried_out(problem, planner(name, problem))
    there, links = problem.there, problem.links
    both = there[links.slot, links.source] & there[links.slot, links.target]
    assert not flows.sent[~both].any()
    assert not flows.kept[~there].any()
    assert not flows.discarded[~there].any()
    assert check(problem, flows) == []
    if name == "known":
        assert not flows.sent[problem.loses()].any()


@pytest.mark.parametrize("name", ["windows", "rolling"])
@pytest.mark.parametrize("seed", range(20))
def test_a_plan_by_averages_does_not_know_who_will_leave(name: str, seed: int) -> None:
    one = churning(seed)
    t = one.slots // 2
    there = one.there.copy()
    there[t + 1 :] = ~there[t + 1 :]
    other = replace(some(seed), there=there)
    flows = [carried_out(p, planner(name, p)) for p in (one, other)]
    now = one.links.between(0, t + 1)
    assert np.array_equal(flows[0].sent[now], flows[1].sent[now])
    assert np.array_equal(flows[0].kept[: t + 1], flows[1].kept[: t + 1])


@pytest.mark.parametrize("seed", range(20))
def test_knowing_who_leaves_costs_least(seed: int) -> None:
    problem = churning(seed)
    costs = {
        name: cost(problem, carried_out(problem, planner(name, problem))).total
        for name in PLANNERS
    }
    assert costs["known"] <= min(costs.values()) + 1e-5 * (1.0 + costs["known"])


def test_what_is_lost_on_the_way_costs_what_discarding_it_would() -> None:
    problem = pair(there=np.array([[True, True], [True, False]]))
    flows = Flows(
        kept=np.array([[0.0, 10.0], [0.0, 0.0]]),
        sent=np.array([10.0, 0.0]),
        discarded=np.zeros((2, 2)),
    )
    costs = cost(problem, flows)
    # 10 kept at 1; 10 sent at 1, and lost at 3.
    assert (costs.process, costs.transfer, costs.error) == (10.0, 10.0, 30.0)


def test_a_device_that_is_away_has_no_error() -> None:
    problem = pair(gamma=np.array(8.0), there=np.array([[True, True], [False, False]]))
    idle = Flows(kept=np.zeros((2, 2)), sent=np.zeros(2), discarded=np.zeros((2, 2)))
    assert cost(problem, idle).error == 16.0  # of both in the first slot alone


def test_chances_decide_how_long_devices_are_there() -> None:
    rng = np.random.default_rng(0)
    there = drawn(50, 2000, 0.3, 0.1, rng)
    assert there[0].all()
    assert there.mean() == pytest.approx(0.75, abs=0.01)  # 0.3 / (0.3 + 0.1)
    left = (there[:-1] & ~there[1:]).sum() / there[:-1].sum()
    assert left == pytest.approx(0.1, abs=0.005)
    assert drawn(5, 9, 0.0, 0.0, rng).all()
    assert not drawn(5, 9, 0.0, 1.0, rng)[1:].any()


def test_a_trace_is_read(tmp_path: Path) -> None:
    path = tmp_path / "comings.csv"
    path.write_text("slot,device,change\n1,0,out\n2,2,in\n3,0,in\n")
    assert from_file(path, 3, 4).astype(int).tolist() == [
        [1, 1, 0],
        [0, 1, 0],
        [0, 1, 1],
        [1, 1, 1],
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "line 1: columns missing: give slot,device,change"),
        ("slot,device\n", "line 1: columns slot,device: give slot,device,change"),
        ("slot,device,change\n1,0\n", "line 2: 2 values"),
        ("slot,device,change\n4,0,in\n", "line 2: slot '4': give a number from 0 to 3"),
        ("slot,device,change\n1,-1,in\n", "device '-1': give a number from 0 to 2"),
        ("slot,device,change\n1,²,in\n", "device '²': give a number from 0 to 2"),
        ("slot,device,change\n1,0,gone\n", "change 'gone': give in or out"),
        ("slot,device,change\n1,0,in\n2,0,in\n", "line 3: device 0 goes in in slot 2"),
        ("slot,device,change\n2,0,in\n1,0,out\n", "give its changes in turn"),
        ("slot,device,change\n1,0,in\n1,0,out\n", "one a slot"),
        ("slot,device,change\n\0", "ot"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "comings.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=why):
        from_file(path, 3, 4)


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "comings.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not a table of text: give a CSV"):
        from_file(path, 3, 4)
