"""Learners whose speed depends on what their owners do.

In state k learner j needs, for d shards of task i (thesis, Eqs. 4.2 and 4.3, with the
passes μ that they leave out),

    A + B·d,    A = C⁰ᵢⱼₖ = 2Ωᵢ / bⱼₖ,    B = C¹ᵢⱼₖ + μᵢ·C²ᵢⱼₖ = αᵢ / bⱼₖ + μᵢ / cᵢⱼₖ

seconds by its delay law, and is in it with probability γⱼₖ.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from melisma.errors import ConfigError
from melisma.maths.arrays import Floats, Ints, set_numbers
from melisma.system.law import DelayLaw
from melisma.system.streams import Stream


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class States:
    """What every learner needs for every task in each of its states."""

    probability: Floats  #: γ, learners × states
    shard_s: Floats  #: B, tasks × learners × states
    fixed_s: Floats  #: A, tasks × learners × states

    def __post_init__(self) -> None:
        gamma = set_numbers(self, "probability", each="learner")
        check_probability(gamma)
        tasks = len(self.shard_s)
        for name in ("shard_s", "fixed_s"):
            set_numbers(self, name, shape=(tasks, *gamma.shape), each="task")

    @classmethod
    def of(
        cls,
        laws: Sequence[DelayLaw],
        probability: ArrayLike,
        *,
        shard: Sequence[int],
        steps: Sequence[int],
    ) -> "States":
        """Return them from one delay law a task, whose arrays are learners × states.

        ``shard`` and ``steps`` are each task's samples in a shard and passes over them.
        """
        counted = [law.per_shard(size) for law, size in zip(laws, shard, strict=True)]
        return cls(
            probability=np.asarray(probability, dtype=np.float64),
            shard_s=np.stack(
                [
                    law.sample_s + mu * law.step_s
                    for law, mu in zip(counted, steps, strict=True)
                ]
            ),
            fixed_s=np.stack([law.fixed_s for law in counted]),
        )

    def only(self, tasks: Ints, learners: Ints) -> "States":
        """Return those of some tasks and learners."""
        pairs = np.ix_(tasks, learners)
        return States(
            probability=self.probability[learners],
            shard_s=self.shard_s[pairs],
            fixed_s=self.fixed_s[pairs],
        )

    def expected(self) -> tuple[Floats, Floats]:
        """B and A, tasks × learners, as they are on average (MED)."""
        gamma = self.probability
        return (gamma * self.shard_s).sum(axis=-1), (gamma * self.fixed_s).sum(axis=-1)

    def at(self, states: Ints) -> tuple[Floats, Floats]:
        """B and A, tasks × learners, in the state that each learner is in (MMTT)."""
        j = np.arange(len(self.probability))
        return self.shard_s[:, j, states], self.fixed_s[:, j, states]

    def draw(self, rng: np.random.Generator) -> Ints:
        """A state for each learner."""
        gamma = self.probability
        passed = rng.random((len(gamma), 1)) > gamma.cumsum(axis=1)[:, :-1]
        drawn: Ints = passed.sum(axis=1, dtype=np.int64)
        return drawn


def owner_generator(seed: int, name: str, cycle: int) -> np.random.Generator:
    """Return what decides a cycle of an emulated owner: of any task, by any scheme."""
    who = zlib.crc32(name.encode())
    return np.random.default_rng([seed, Stream.OWNER, who, cycle])


def owner_state(probability: Sequence[float], seed: int, name: str, cycle: int) -> int:
    """Return the state that an emulated owner has a device in when a cycle begins.

    Cycle 0 is the benchmark. The device draws it, and whoever knows the seed.
    """
    rng = owner_generator(seed, name, cycle)
    return int(rng.choice(len(probability), p=probability))


def heated(likely: ArrayLike, states: int, heat: float) -> Floats:
    """softmax(one-hot / heat): the likely state of each learner, less so with heat.

    >>> heated([0, 2], 3, 0.5).round(3).tolist()
    [[0.787, 0.107, 0.107], [0.107, 0.107, 0.787]]
    """
    if not heat > 0:
        raise ConfigError(f"a heat of {heat}: give a number above 0")
    one_hot = np.asarray(likely)[:, None] == np.arange(states)
    # Of the likely state against another: exp(1/heat), which overflows below 1/709.
    others = np.exp(-1.0 / heat)
    weights = np.where(one_hot, 1.0, others)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def check_probability(gamma: Floats) -> None:
    """Raise ConfigError unless each row is a distribution."""
    if gamma.ndim != 2 or (gamma < 0).any() or not np.allclose(gamma.sum(axis=-1), 1):
        raise ConfigError(
            f"state probabilities {gamma.tolist()} must be at least 0 and sum to 1 "
            "for each learner"
        )
