"""Who of the live workers is given a channel."""

from typing import Any

import numpy as np
import pytest

from melisma.errors import ConfigError, InfeasibleError
from melisma.fleets.live_air import LEASE, LEASE_S, STALE_S, AirServer
from melisma.fleets.sums import Work
from melisma.system.law import DelayLaw
from melisma.transmission import Power

LAW = DelayLaw(
    step_s=np.full(3, 0.01), sample_s=np.zeros(3), fixed_s=np.array([2.0, 2.0, 4.0])
)
FULL = 50.0


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def work(worker: int, samples: int = 100) -> Work:
    return Work(worker=worker, parts=[np.arange(samples)], coefficients=np.ones(1))


def air(channels: int = 1, **power: Any) -> tuple[AirServer, Clock]:
    clock = Clock()
    server = AirServer("task", Power(**power), channels, clock)
    server.begin(1, "abc", LAW, 300)
    for worker in range(3):
        server.budget(work(worker), FULL)
    return server, clock


def ask(server: AirServer, name: str, level_j: float = FULL, cycle: int = 1) -> float:
    return server.granted(name, "task", cycle, level_j)


def test_a_channel_is_given_to_one_until_its_answer_is_there() -> None:
    server, _ = air()
    assert ask(server, "a") == 1.0  # half of what a model takes both ways
    assert ask(server, "a") == 1.0  # asked again, over a new connection
    assert ask(server, "b") == 0.0
    server.over("a", 1)
    assert ask(server, "b") == 1.0


def test_the_heaviest_of_those_who_ask_is_first() -> None:
    server, _ = air()
    assert ask(server, "a") == 1.0
    assert ask(server, "c") == ask(server, "b") == 0.0
    server.over("a", 1)
    assert ask(server, "c") == 0.0  # twice as slow, so b is heavier
    assert ask(server, "b") == 1.0


def test_who_vanishes_while_it_waits_keeps_nobody_waiting() -> None:
    server, clock = air()
    ask(server, "a")
    ask(server, "b")
    server.over("a", 1)
    clock.now_s = STALE_S + 0.1
    assert ask(server, "c") == 2.0


def test_a_lease_ends_and_its_holder_is_not_served_again() -> None:
    server, clock = air()
    ask(server, "a")
    clock.now_s = LEASE * 1.0 + LEASE_S + 0.1
    assert ask(server, "b") == 1.0
    with pytest.raises(ConfigError, match="a has nothing to send"):
        ask(server, "a")


def test_who_has_too_little_waits_and_others_do_not() -> None:
    server, _ = air()
    assert ask(server, "a", level_j=0.5) == 0.0
    assert ask(server, "b") == 1.0


def test_who_is_owed_much_comes_before_who_is_a_little_faster() -> None:
    server, _ = air()
    server.owed |= {"a": 0.0, "b": 2.0, "c": 0.0}
    other, _ = air()
    other.owed |= {"a": 2.0, "b": 0.0, "c": 0.0}
    for each, first, second in ((server, "b", "a"), (other, "a", "b")):
        ask(each, "c", level_j=0.0)
        each.turns[first].asked_s, each.turns[first].battery_j = 0.0, FULL
        assert ask(each, second) == 0.0
        assert ask(each, first) == 1.0


def test_what_is_owed_stays_below_its_bound_over_time() -> None:
    server, clock = air()
    for cycle in range(2, 30):
        clock.now_s += 100.0
        server.begin(cycle, "abc", LAW, 300)
    most = 0.02 * 100 / np.log(2) + 2
    assert 1.0 < max(server.owed.values()) <= most


@pytest.mark.parametrize(
    ("name", "cycle"), [("z", 1), ("a", 2), ("a", 0)], ids=["stranger", "later", "past"]
)
def test_nobody_sends_what_is_not_due(name: str, cycle: int) -> None:
    server, _ = air()
    with pytest.raises(ConfigError, match="nothing to send"):
        ask(server, name, cycle=cycle)


def test_an_old_answer_frees_no_channel_of_this_cycle() -> None:
    server, _ = air()
    server.begin(2, "abc", LAW, 300)
    server.budget(work(0), FULL)
    ask(server, "a", cycle=2)
    server.over("a", 1)
    assert server.turns["a"].until_s is not None


def test_work_begins_the_lower_the_more_of_it_there_is() -> None:
    server, _ = air()
    little, much = (server.budget(work(0, n), FULL).above_j for n in (10, 100))
    assert 0 <= much < little < FULL


def test_a_battery_too_small_for_a_share_is_named() -> None:
    server, _ = air()
    with pytest.raises(InfeasibleError, match="larger batteries or fewer samples"):
        server.begin(2, "abc", LAW, 10_000)
