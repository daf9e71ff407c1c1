"""Who is linked to whom, and what it costs."""

from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from melisma.errors import ConfigError
from melisma.fog import Links, Movement, move
from melisma.fog.mobility import Waypoint, in_range
from melisma.fog.profiles import LTE, WIFI, Profile
from melisma.fog.topologies import (
    from_file,
    from_networkx,
    full,
    hierarchical,
    intermittent,
    random_graph,
    scale_free,
    social,
)


def pairs(links: Links, slot: int = 0) -> set[tuple[int, int]]:
    some = links.between(slot, slot + 1)
    rows = zip(links.source[some], links.target[some], strict=True)
    return {(int(i), int(j)) for i, j in rows}


def test_everyone_is_linked_to_everyone_else() -> None:
    links = full(4, 3)
    assert len(links) == 4 * 3 * 3
    assert pairs(links, 2) == {(i, j) for i in range(4) for j in range(4) if i != j}


def test_a_random_graph_has_the_density_it_was_asked_for() -> None:
    links = random_graph(200, 1, 0.1, np.random.default_rng(0))
    # 39,800 links of probability 0.1: 3,980 ± 60.
    assert abs(len(links) - 3980) < 4 * 60
    assert len(random_graph(5, 2, 1.0, np.random.default_rng(0))) == len(full(5, 2))
    assert len(random_graph(5, 2, 0.0, np.random.default_rng(0))) == 0


def test_links_stay_or_are_drawn_anew() -> None:
    stays = random_graph(20, 2, 0.3, np.random.default_rng(1))
    changes = random_graph(20, 2, 0.3, np.random.default_rng(1), anew=True)
    assert pairs(stays, 0) == pairs(stays, 1)
    assert pairs(changes, 0) != pairs(changes, 1)


def test_the_same_seed_gives_the_same_links() -> None:
    for make in (social, scale_free):
        one = make(20, 1, np.random.default_rng(5))
        assert pairs(one) == pairs(make(20, 1, np.random.default_rng(5)))
        assert pairs(one) != pairs(make(20, 1, np.random.default_rng(6)))


def test_a_small_world_has_a_fifth_of_all_as_neighbours() -> None:
    links = social(50, 1, np.random.default_rng(0))
    assert len(links) == 50 * 10
    assert pairs(links) == {(j, i) for i, j in pairs(links)}


def test_a_scale_free_network_has_hubs() -> None:
    links = scale_free(300, 1, np.random.default_rng(0))
    degree = np.bincount(links.source)
    assert degree.max() > 8 * np.median(degree)


def test_the_cheapest_third_serves_two_each() -> None:
    cost = np.array([5.0, 1.0, 4.0, 2.0, 3.0, 6.0])
    links = hierarchical(cost, 2, np.random.default_rng(0))
    assert sorted(links.target[links.slot == 0].tolist()) == [1, 1, 3, 3]
    assert sorted(links.source[links.slot == 1].tolist()) == [0, 2, 4, 5]


def test_any_graph_will_do() -> None:
    graph = nx.DiGraph([("a", "b"), ("b", "c"), ("c", "c")])
    assert pairs(from_networkx(graph, 1)) == {(0, 1), (1, 2)}
    assert pairs(from_networkx(graph.to_undirected(), 1)) == {
        (0, 1),
        (1, 0),
        (1, 2),
        (2, 1),
    }
    assert len(from_networkx(nx.empty_graph(3), 2)) == 0


def test_links_come_and_go() -> None:
    always = full(20, 50)
    links = intermittent(always, 0.25, np.random.default_rng(0))
    # 19,000 entries: 4,750 ± 60.
    assert abs(len(links) - 4750) < 4 * 60
    assert pairs(links, 3) < pairs(always, 3)


@pytest.mark.parametrize(
    ("text", "slots"),
    [
        ("source,target\n0,1\n1,2\n", [{(0, 1), (1, 2)}, {(0, 1), (1, 2)}]),
        ("source,target,slot\n1,2,1\n0,1,0\n\n0,1,0\n", [{(0, 1)}, {(1, 2)}]),
        ("source,target,slot\n", [set(), set()]),
    ],
)
def test_a_file_says_what_is_linked_and_when(
    tmp_path: Path, text: str, slots: list[set[tuple[int, int]]]
) -> None:
    (tmp_path / "links.csv").write_text(text)
    links = from_file(tmp_path / "links.csv", 3, 2)
    assert [pairs(links, t) for t in range(2)] == slots


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: columns missing: give source,target"),
        ("from,to\n0,1\n", "line 1: columns from,to"),
        ("source,target\n0,1\n0\n", "line 3: 1 values: give 2"),
        ("source,target\n0,x\n", "line 2: target 'x': give a number from 0 to 2"),
        ("source,target\n-1,1\n", "line 2: source '-1'"),
        ("source,target\n0,3\n", "line 2: target '3'"),
        ("source,target,slot\n0,1,0\n\n0,1,2\n", "line 4: slot '2'.*from 0 to 1"),
        ("source,target\n1,1\n", "line 2: device 1 to itself"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "links.csv").write_text(text)
    with pytest.raises(ConfigError, match=message):
        from_file(tmp_path / "links.csv", 3, 2)


def test_walkers_keep_their_speed_and_stay_inside() -> None:
    walk = Waypoint(side_m=100.0, slow_mps=1.0, fast_mps=3.0, slot_s=20.0)
    places = walk.places_m(30, 40, np.random.default_rng(0))
    far = np.linalg.norm(np.diff(places, axis=0), axis=2)
    assert far.max() <= 3.0 * 20.0 + 1e-9
    assert far.min() > 0.0
    assert places.min() >= 0.0
    assert places.max() <= 100.0


def test_who_is_in_range_is_linked() -> None:
    places = np.array([[[0.0, 0.0], [3.0, 4.0], [9.0, 0.0]], [[0.0, 0.0]] * 3])
    links = in_range(places, 5.0)
    assert pairs(links, 0) == {(0, 1), (1, 0)}
    assert pairs(links, 1) == pairs(full(3, 1))


def test_links_change_as_devices_move() -> None:
    links = Waypoint().links(30, 30, np.random.default_rng(0))
    assert pairs(links, 0) & pairs(links, 1)
    assert pairs(links, 0) != pairs(links, 29)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"range_m": 0.0}, r"range_m is 0: give a finite number above 0"),
        ({"slow_mps": 20.0}, "give the slower first"),
    ],
)
def test_a_walk_that_cannot_be_is_refused(
    change: dict[str, float], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Waypoint(**change)


@pytest.mark.parametrize("up", [-0.1, 1.1, np.nan])
def test_a_part_is_from_0_to_1(up: float) -> None:
    with pytest.raises(ConfigError, match="give a number from 0 to 1"):
        intermittent(full(2, 1), up, np.random.default_rng(0))


def parts(profile: Profile, topology: str, seed: int) -> tuple[float, float]:
    """What processing and transfers cost in the best plan."""
    rng = np.random.default_rng(seed)
    process = profile.process_cost(30, 20, rng)
    links = {
        "full": lambda: full(30, 20),
        "social": lambda: social(30, 20, rng),
        "hierarchical": lambda: hierarchical(process.mean(axis=0), 20, rng),
    }[topology]()
    problem = Movement(
        data=np.round(rng.uniform(0.0, 60.0, (20, 30))),
        process_cost=process,
        links=links,
        link_cost=profile.link_cost(links, rng),
        discard_cost=np.array(1.0),
    )
    costs = move(problem).costs
    return costs.process, costs.transfer


@pytest.mark.parametrize("topology", ["full", "social", "hierarchical"])
def test_transfers_dominate_on_wifi_and_processing_on_lte(topology: str) -> None:
    wifi = np.array([parts(WIFI, topology, seed) for seed in range(3)]).sum(axis=0)
    lte = np.array([parts(LTE, topology, seed) for seed in range(3)]).sum(axis=0)
    assert wifi[1] > wifi[0]
    assert lte[0] > lte[1]
    assert wifi.sum() > lte.sum()
