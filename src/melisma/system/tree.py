"""A cycle through a tree of aggregators: when the model is out, when the sum is back.

    orchestrator          hands out the model, merges partial sums
    ├── aggregator        the same for its own children, and sends up one sum
    │   ├── learner
    │   └── learner …
    └── aggregator …

Each child costs its node a time of CPU and a time on the link, in either direction.
CPU and both directions of the link are queues that serve in order of arrival: jobs
that arrive at A₁ ≤ A₂ ≤ … and take s each are done at

    Dᵢ = max(Aᵢ, Dᵢ₋₁) + s = i·s + max_{j ≤ i} (Aⱼ − (j−1)·s)              (queue)

A node forwards the model once it has all of it, and sends its sum up once all children
are in it. The CPU takes all hand-outs before the first merge, as they were there first.
A lone orchestrator is a tree of one level.

What it leaves out: nodes that fail, and other traffic. A child's own link counts as
part of the time that it is busy.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike

from melisma.errors import ConfigError
from melisma.maths.arrays import Floats, numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """The nodes at one distance from the root: how many children each, and their cost.

    Raises ConfigError unless there is a child and each time is finite and not negative.
    """

    children: int
    hand_out_s: float  #: CPU, to send one child the model
    merge_s: float  #: CPU, to take in one child's update
    send_s: float  #: link, the model to one child: its bytes / bytes per second
    receive_s: float  #: link, one child's update
    latency_s: float = 0.0  #: on the way to a child, and on the way back

    def __post_init__(self) -> None:
        if self.children < 1:
            raise ConfigError(f"a node has {self.children} children: give it 1 or more")
        for field in fields(self):
            numbers(field.name, getattr(self, field.name), shape=())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Passage:
    """A cycle that has passed through a tree, in seconds since it began."""

    started_s: Floats  #: when each learner had the model
    ended_s: float  #: when all updates were merged at the root


def cycle_through(levels: Sequence[Level], busy_s: ArrayLike) -> Passage:
    """Pass a cycle through a tree, the root's level first.

    ``busy_s`` is how long each learner takes from having the model to sending its
    update: one number for all, or one for each. Raises ConfigError if they are not as
    many as the tree has learners, or below 0.
    """
    learners = math.prod(level.children for level in levels)
    if not levels:
        raise ConfigError("a tree of 0 levels: give at least the root's")
    busy = numbers("busy_s", busy_s, shape=(learners,), endless=True, each="learner")
    arrived, nodes = np.zeros(1), []  # when each node of a level has the model
    for level in levels:
        nodes.append(arrived)
        place = np.arange(1, level.children + 1)
        handed = arrived[:, None] + place * level.hand_out_s
        arrived = (_served(handed, level.send_s) + level.latency_s).ravel()
    started, back = arrived, arrived + busy
    for level, began in zip(reversed(levels), reversed(nodes), strict=True):
        arriving = back.reshape(-1, level.children) + level.latency_s
        received = _served(np.sort(arriving, axis=1), level.receive_s)
        free = began + level.children * level.hand_out_s
        merged = _served(np.maximum(received, free[:, None]), level.merge_s)
        back = merged[:, -1]
    return Passage(started_s=started, ended_s=float(back[0]))


def _served(arrived_s: Floats, job_s: float) -> Floats:
    """When each job of a queue is done; each row is a queue, in order of arrival."""
    before = job_s * np.arange(arrived_s.shape[1], dtype=np.float64)
    begun: Floats = np.maximum.accumulate(arrived_s - before, axis=1)
    return begun + before + job_s
