"""Several tasks that share learners: what is to be split, and a split."""

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import ArrayLike

from melisma.errors import ConfigError
from melisma.maths.arrays import Floats, Ints, set_counts, set_numbers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MultiTaskProblem:
    """One cycle of several tasks, as their orchestrator sees it.

    Tasks i are rows, learners j columns. Learner j needs A + B·d seconds for d > 0
    shards of task i, and no time for none. Deadlines are one number for all tasks or
    one each; so are prices for learners.
    """

    shard_s: Floats  #: B_ij, seconds to receive a shard and train on it
    fixed_s: Floats  #: A_ij, seconds to receive the model and send it back
    shards: Ints  #: Dᵢ, shards of each task
    deadline_s: Floats  #: Tᵢ
    price: Floats  #: pⱼ, of one shard, whatever the task
    budget: float = inf  #: for all shards of all tasks
    least: int = 1  #: shards of a learner that serves a task
    every: bool = True  #: whether each learner serves one task, or one at most

    def __post_init__(self) -> None:
        B = set_numbers(self, "shard_s", above=0.0)
        if B.ndim != 2 or B.size == 0:
            raise ConfigError(
                f"shard_s has shape {B.shape}: give a row for each task with a number "
                "for each learner"
            )
        m, n = B.shape
        set_numbers(self, "fixed_s", shape=(m, n))
        set_numbers(self, "deadline_s", shape=(m,), above=0.0, each="task")
        set_numbers(self, "price", shape=(n,), each="learner")
        set_counts(self, "shards", shape=(m,), least=1, each="task")
        if not self.budget >= 0:
            raise ConfigError(f"budget of {self.budget}: give a number of at least 0")
        if self.least < 1:
            raise ConfigError(f"least is {self.least}: give at least 1 shard")

    @property
    def tasks(self) -> int:
        """How many tasks there are."""
        return int(self.shard_s.shape[0])

    @property
    def learners(self) -> int:
        """How many learners there are."""
        return int(self.shard_s.shape[1])

    @property
    def most(self) -> float:
        """The budget, and what rounding may add to a sum of prices."""
        return self.budget * (1.0 + 1e-9)

    def seconds(self, shards: ArrayLike) -> Floats:
        """A + B·d of each learner for each task, 0 where d = 0."""
        d = np.asarray(shards)
        return np.where(d > 0, self.fixed_s + self.shard_s * d, 0.0)

    def task_s(self, assignment: "Assignment") -> Floats:
        """zᵢ, seconds of each task: those of its slowest learner."""
        times: Floats = self.seconds(assignment.shards).max(axis=1)
        return times

    def objective_s(self, assignment: "Assignment") -> float:
        """Σ zᵢ."""
        return float(self.task_s(assignment).sum())

    def cost(self, assignment: "Assignment") -> float:
        """Σ pⱼ·d_ij."""
        return float(self.price @ assignment.shards.sum(axis=0))

    def within(self, task: int, seconds: ArrayLike) -> Ints:
        """u(z): the most shards that each learner can do in z seconds, up to D.

        0 where ``least`` do not fit. The last axis runs over learners, those before
        it over ``seconds``. Exact: u is the last whole number with A + B·u ≤ z as
        ``seconds`` rounds it.
        """
        A, B, D = self.fixed_s[task], self.shard_s[task], int(self.shards[task])
        z = np.asarray(seconds, dtype=np.float64)[..., None]
        with np.errstate(over="ignore"):
            u = np.clip(np.floor((z - A) / B), 0.0, D)
        u -= (u > 0) & (A + B * u > z)
        u += (u < D) & (A + B * (u + 1.0) <= z)
        caps: Ints = np.where(u >= self.least, u, 0.0).astype(np.int64)
        return caps

    def violations(self, assignment: "Assignment") -> list[str]:
        """Say in words which constraints an assignment breaks; none: an empty list."""
        d, z = assignment.shards, self.task_s(assignment)
        served = (d > 0).sum(axis=0)
        broken = {
            "shape": d.shape != (self.tasks, self.learners),
            "coverage": (d.sum(axis=1) != self.shards).any(),
            "deadline": (z > self.deadline_s).any(),
            "budget": self.cost(assignment) > self.most,
            "least": ((d != 0) & (d < self.least)).any(),
            "one task per learner": (served > 1).any(),
            "every learner serves": self.every and (served < 1).any(),
        }
        return [name for name, is_broken in broken.items() if is_broken]


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """Who trains what."""

    shards: Ints  #: d_ij, tasks × learners

    @property
    def association(self) -> Ints:
        """The task of each learner, −1 where it has none."""
        serves = self.shards > 0
        return np.where(serves.any(axis=0), serves.argmax(axis=0), -1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solved:
    """An assignment, and how far from the best one it can be at most."""

    assignment: Assignment
    objective_s: float  #: Σ zᵢ
    bound_s: float  #: no assignment has a smaller Σ zᵢ

    @property
    def gap(self) -> float:
        """(objective − bound) / objective; 0: proven optimal."""
        return (self.objective_s - self.bound_s) / self.objective_s
