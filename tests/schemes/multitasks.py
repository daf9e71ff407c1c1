"""Multi-task problems that the tests share."""

import numpy as np

from melisma.system import MultiTaskProblem


def ladder(
    budget: float = np.inf, *, least: int = 1, every: bool = True
) -> MultiTaskProblem:
    """Tasks of 6 and 4 shards: learners 0 and 1 are good at the one, 2 at the other.

    A shard takes 1 s where a learner is good, else 3 s; learner 0 costs twice as much.
    """
    return MultiTaskProblem(
        shard_s=np.array([[1.0, 1.0, 3.0], [3.0, 3.0, 1.0]]),
        fixed_s=np.zeros((2, 3)),
        shards=np.array([6, 4]),
        deadline_s=np.array([8.0, 8.0]),
        price=np.array([2.0, 1.0, 1.0]),
        budget=budget,
        least=least,
        every=every,
    )


def alike(
    *, tasks: int, learners: int, shards: int, deadline_s: float
) -> MultiTaskProblem:
    """Learners and tasks that are all the same; a shard takes 1 s and costs 1."""
    return MultiTaskProblem(
        shard_s=np.ones((tasks, learners)),
        fixed_s=np.zeros((tasks, learners)),
        shards=np.full(tasks, shards),
        deadline_s=np.full(tasks, deadline_s),
        price=np.ones(learners),
    )


def small(
    seed: int, *, learners: int | None = None, tasks: int | None = None, most: int = 13
) -> MultiTaskProblem:
    """Up to 3 tasks, 6 learners and 13 shards, of every kind, some without answer."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, 4)) if tasks is None else tasks
    n = int(rng.integers(m, 7)) if learners is None else learners
    m = min(m, n)
    least = int(rng.integers(1, 4))
    shards = rng.integers(least, most + 1, m)
    return MultiTaskProblem(
        shard_s=rng.uniform(0.2, 3.0, (m, n)),
        fixed_s=rng.uniform(0.0, 2.0, (m, n)),
        shards=shards,
        deadline_s=rng.uniform(8.0, 40.0, m),
        price=rng.uniform(0.1, 1.5, n),
        budget=float(rng.uniform(0.45, 1.1)) * int(shards.sum()),
        least=least,
        every=bool(rng.integers(2)),
    )


def thesis(learners: int, tasks: int, seed: int = 0) -> MultiTaskProblem:
    """Delays like those of the thesis's testbed: three kinds of task, some slow states.

    About 16 shards a head.
    """
    rng = np.random.default_rng([seed, learners, tasks])
    kind = np.arange(tasks) % 3
    busy = rng.choice([0.1, 0.8], learners)  # how likely a learner trains for its owner
    idle_s = np.array([0.44, 0.32, 0.45])[kind, None] * rng.normal(
        1.0, 0.05, (tasks, learners)
    )
    busy_s = np.array([4.1, 2.1, 2.1])[kind, None]
    return MultiTaskProblem(
        shard_s=(1.0 - busy) * idle_s + busy * busy_s,
        fixed_s=np.array([0.23, 0.04, 0.83])[kind, None] * np.ones(learners),
        shards=np.round(np.array([60, 60, 20])[kind] * learners / tasks / 2.9),
        deadline_s=np.array([60.0, 45.0, 45.0])[kind],
        price=rng.normal(1.0, 0.5, learners).clip(0.1, 1.5),
    )
