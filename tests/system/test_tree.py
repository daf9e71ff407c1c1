"""A cycle through a tree, against closed forms and against a simulation by events."""

import heapq
import math
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from melisma.errors import ConfigError
from melisma.system.tree import Level, cycle_through

FREE = Level(children=1, hand_out_s=0.0, merge_s=0.0, send_s=0.0, receive_s=0.0)


# Closed forms


def test_a_lone_server_of_a_slow_link_takes_every_byte_in_turn() -> None:
    # 100 learners; 2 s a model down, 3 s an update up; all updates leave together,
    # when the last model is out: K·(s_down + s_up) = 100·(2 + 3).
    server = replace(FREE, children=100, send_s=2.0, receive_s=3.0)
    busy_s = 200.0 - cycle_through([server], 0.0).started_s
    assert cycle_through([server], busy_s).ended_s == 500.0


def test_a_lone_server_of_a_slow_cpu_takes_every_job_in_turn() -> None:
    # K·(c_down + c_up), however early learners are back: hand-outs come first.
    server = replace(FREE, children=100, hand_out_s=0.25, merge_s=0.5)
    assert cycle_through([server], 0.0).ended_s == 75.0


def test_cpu_and_link_work_at_the_same_time() -> None:
    # Two queues in a row: the first child passes both, the others wait for the slower.
    # Model: 1 + 4 + 3·4 = 17 s. Updates are 30 s apart from it, and pass 2 and 5 s.
    server = replace(
        FREE, children=4, hand_out_s=1.0, send_s=4.0, receive_s=2.0, merge_s=5.0
    )
    passage = cycle_through([server], 0.0)
    assert passage.started_s.tolist() == [5.0, 9.0, 13.0, 17.0]
    busy_s = 30.0 - passage.started_s
    assert cycle_through([server], busy_s).ended_s == 30.0 + 2 + 4 * 5


def test_a_chain_adds_up_its_hops() -> None:
    hop = Level(
        children=1,
        hand_out_s=1.0,
        send_s=2.0,
        receive_s=4.0,
        merge_s=8.0,
        latency_s=0.5,
    )
    assert cycle_through([hop] * 3, 100.0).ended_s == 3 * (1 + 2 + 4 + 8 + 1) + 100


def test_two_levels_of_a_thousand_take_a_fraction_of_one_of_a_million() -> None:
    # Each of the two hops serves 1,000 in place of 1,000,000.
    alone = replace(FREE, children=1_000_000, send_s=0.001, receive_s=0.001)
    half = replace(alone, children=1_000)
    assert cycle_through([alone], 0.0).ended_s == pytest.approx(1000.001)
    assert cycle_through([half, half], 0.0).ended_s == pytest.approx(2.002)


# Against events


class Queue:
    """Serves one job at a time, in order of arrival."""

    def __init__(self, events: "Events") -> None:
        self._events, self._free_s = events, 0.0

    def put(self, job_s: float, then: Callable[[], None]) -> None:
        self._free_s = max(self._free_s, self._events.now_s) + job_s
        self._events.at(self._free_s, then)


class Events:
    """What happens next, one thing after the other."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = count()

    def at(self, time_s: float, then: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (time_s, next(self._serial), then))

    def run(self) -> None:
        while self._heap:
            self.now_s, _, then = heapq.heappop(self._heap)
            then()


class Tree:
    """Nodes that send the model on, message by message."""

    def __init__(self, levels: list[Level], busy_s: list[float]) -> None:
        self.events, self._levels = Events(), levels
        self._busy_s = iter(busy_s)
        self.started_s: dict[int, float] = {}
        self.ended_s = math.nan
        root = self._node(0, self._end)
        self.events.at(0.0, root)
        self.events.run()

    def _end(self) -> None:
        self.ended_s = self.events.now_s

    def _node(self, depth: int, answer: Callable[[], None]) -> Callable[[], None]:
        """Return what happens when a node at ``depth`` has the model."""
        if depth == len(self._levels):
            return self._learner(answer)
        level, events = self._levels[depth], self.events
        cpu, sending, receiving = Queue(events), Queue(events), Queue(events)
        left = level.children

        def merged() -> None:
            nonlocal left
            left -= 1
            if not left:
                answer()

        def comes_back() -> None:
            receiving.put(level.receive_s, lambda: cpu.put(level.merge_s, merged))

        def later(then: Callable[[], None]) -> Callable[[], None]:
            return lambda: events.at(events.now_s + level.latency_s, then)

        def serve(child: Callable[[], None]) -> None:
            cpu.put(level.hand_out_s, lambda: sending.put(level.send_s, later(child)))

        children = [
            self._node(depth + 1, later(comes_back)) for _ in range(level.children)
        ]

        def has_the_model() -> None:
            for child in children:
                serve(child)

        return has_the_model

    def _learner(self, answer: Callable[[], None]) -> Callable[[], None]:
        number, busy_s = len(self.started_s), next(self._busy_s)
        self.started_s[number] = math.nan

        def has_the_model() -> None:
            self.started_s[number] = self.events.now_s
            self.events.at(self.events.now_s + busy_s, answer)

        return has_the_model


TIMES = st.floats(0.0, 10.0)
LEVELS = st.lists(
    st.builds(
        Level,
        children=st.integers(1, 4),
        hand_out_s=TIMES,
        merge_s=TIMES,
        send_s=TIMES,
        receive_s=TIMES,
        latency_s=TIMES,
    ),
    min_size=1,
    max_size=3,
)


@settings(deadline=None)  # no clock decides here
@given(LEVELS, st.randoms(use_true_random=False))
def test_it_is_what_a_simulation_by_events_gives(
    levels: list[Level], chance: Random
) -> None:
    learners = math.prod(level.children for level in levels)
    busy_s = [chance.uniform(0.0, 50.0) for _ in range(learners)]
    passage, tree = cycle_through(levels, busy_s), Tree(levels, busy_s)
    assert passage.started_s == pytest.approx(list(tree.started_s.values()))
    assert passage.ended_s == pytest.approx(tree.ended_s)


# Bad input


def test_a_node_without_children_is_refused() -> None:
    with pytest.raises(ConfigError, match="0 children: give it 1 or more"):
        replace(FREE, children=0)


@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan])
def test_a_cost_that_cannot_be_is_named(value: float) -> None:
    with pytest.raises(ConfigError, match="merge_s is"):
        replace(FREE, merge_s=value)


@pytest.mark.parametrize("busy_s", [[1.0, 2.0], -1.0, np.nan, [[1.0]]])
def test_times_that_do_not_fit_the_tree_are_refused(busy_s: object) -> None:
    with pytest.raises(
        ConfigError, match=r"busy_s.* give (one number or .3,|numbers of at least 0)"
    ):
        cycle_through([replace(FREE, children=3)], busy_s)  # type: ignore[arg-type]


def test_a_tree_without_levels_is_refused() -> None:
    with pytest.raises(ConfigError, match="0 levels"):
        cycle_through([], 0.0)
