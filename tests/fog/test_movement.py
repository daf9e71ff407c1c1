"""The problem, what flows cost, and what they may not do."""

from dataclasses import replace

import numpy as np
import pytest
from tests.fog.movements import pair, some

from melisma.errors import ConfigError
from melisma.fog import Flows, Links, Movement, alone, check, cost, processed


def flows(
    kept: list[list[float]], sent: list[float], discarded: list[list[float]]
) -> Flows:
    return Flows(
        kept=np.array(kept), sent=np.array(sent), discarded=np.array(discarded)
    )


def test_each_sample_pays_for_its_way() -> None:
    # Device 0 keeps 2 (5 each), sends 5 (1 + 1 each), discards 3 (3 each); device 1
    # keeps 10 (1 each): 10 + 10 + 5 to process, 5 to send, 9 to discard.
    parts = cost(pair(), flows([[2, 10], [0, 0]], [5, 0], [[3, 0], [0, 0]]))
    assert (parts.process, parts.transfer, parts.error) == (25.0, 5.0, 9.0)
    assert parts.total == 39.0


def test_data_arrives_a_slot_later_and_after_the_last_in_a_slot_of_its_own() -> None:
    problem = pair(data=np.full((2, 2), 10.0))
    G = processed(problem, flows([[4, 0], [3, 0]], [6, 7], [[0, 10], [0, 10]]))
    assert G.tolist() == [[4, 0], [3, 6], [0, 7]]


def test_a_device_that_processes_nothing_has_a_finite_error() -> None:
    # g₀ = 4 samples: γ/√4 for each device and slot, 4 of them; nothing after the last.
    problem = pair(gamma=np.array(6.0), idle_samples=np.array(4.0))
    nothing = flows([[0, 0], [0, 0]], [0, 0], [[10, 10], [0, 0]])
    assert cost(problem, nothing).error == pytest.approx(20 * 3.0 + 4 * 3.0)


@pytest.mark.parametrize(
    ("wrong", "broken"),
    [
        (flows([[2, 10], [0, 0]], [5, 0], [[3, 0], [0, 0]]), []),
        (flows([[2, 10], [0, 0]], [5, 0], [[2, 0], [0, 0]]), ["all data"]),
        (flows([[5, 10], [0, 0]], [2, 0], [[3, 0], [0, 0]]), ["devices"]),
        (flows([[0, 10], [0, 0]], [9, 0], [[1, 0], [0, 0]]), ["devices", "links"]),
        (
            flows([[-1, 10], [0, 0]], [5, 0], [[6, 0], [0, 0]]),
            ["no less than nothing"],
        ),
        (flows([[2, np.nan], [0, 0]], [5, 0], [[3, 0], [0, 0]]), None),
        (flows([[2, 10]], [5, 0], [[3, 0]]), ["shape"]),
    ],
)
def test_what_is_broken_is_named(wrong: Flows, broken: list[str] | None) -> None:
    capacity = np.array([[4.0, 10.0], [4.0, 5.0]])
    problem = pair(capacity=capacity, link_capacity=np.array(8.0))
    found = check(problem, wrong)
    assert found if broken is None else found == broken


@pytest.mark.parametrize("seed", range(20))
def test_working_alone_is_feasible(seed: int) -> None:
    problem = some(seed)
    assert check(problem, alone(problem)) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": np.full((2, 2), -1.0)}, r"data\[0, 0\] is -1: give finite numbers"),
        ({"data": np.ones(3)}, r"data has shape \(3,\): give one number or \(2, 2\)"),
        ({"link_cost": np.ones(5)}, r"link_cost has shape \(5,\).*\(2,\)"),
        ({"process_cost": np.array(np.nan)}, "process_cost is nan"),
        ({"discard_cost": np.array(np.inf)}, "discard_cost is inf: give finite"),
        ({"capacity": np.array(-1.0)}, r"capacity is -1: give numbers"),
        ({"gamma": np.array(1.0), "idle_samples": np.array(0.0)}, "idle_samples of 0"),
    ],
)
def test_what_is_no_movement_is_refused(
    changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        pair(**changes)


def test_nobody_changes_a_movement_behind_its_back() -> None:
    data = np.full((2, 2), 10.0)
    problem = pair(data=data)
    data[0, 0] = 7.0
    assert problem.data[0, 0] == 10.0
    with pytest.raises(ValueError, match="read-only"):
        problem.data[0, 0] = 7.0


@pytest.mark.parametrize(
    ("slot", "source", "target", "message"),
    [
        ([0, 0], [1, 0], [0, 1], "not in order"),
        ([0, 0], [0, 0], [1, 1], "there twice"),
        ([0], [1], [1], "device 1 has a link to itself"),
        ([0], [0], [2], "target of link 0 is 2: give whole numbers from 0 to 1"),
        ([3], [0], [1], "slot of link 0 is 3: give whole numbers from 0 to 2"),
        ([0, 1], [0], [1], r"source has shape \(1,\): give one number or \(2,\)"),
        ([0.5], [0], [1], "whole numbers"),
    ],
)
def test_links_that_cannot_be_are_refused(
    slot: list[int], source: list[int], target: list[int], message: str
) -> None:
    columns = (np.array(column) for column in (slot, source, target))
    t, i, j = columns
    with pytest.raises(ConfigError, match=message):
        Links(devices=2, slots=3, slot=t, source=i, target=j)


def test_links_in_any_order_are_sorted_and_told_once() -> None:
    links = Links.of(3, 2, [1, 0, 0, 1], [0, 2, 1, 0], [1, 0, 0, 1])
    rows = zip(links.slot, links.source, links.target, strict=True)
    assert [tuple(map(int, row)) for row in rows] == [(0, 1, 0), (0, 2, 0), (1, 0, 1)]


def test_a_part_of_a_movement_has_its_slots_alone() -> None:
    problem = replace(some(4), gamma=np.array(2.0))
    part: Movement = problem.between(1, problem.slots)
    assert (part.data == problem.data[1:]).all()
    assert len(part.links) == int((problem.links.slot >= 1).sum())
    assert part.link_cost.tolist() == problem.link_cost[-len(part.links) :].tolist()
