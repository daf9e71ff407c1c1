"""Workers on a virtual clock: times by the delay law, gradients are real.

A worker downloads the model at its own rate, and uploads its answer at that rate or
over shared channels. Sending data takes no time: workers keep the shards they have had.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from melisma.coding import combine
from melisma.errors import ConfigError
from melisma.fleets.protocols import Lost
from melisma.fleets.sums import Answer, Energy, Work
from melisma.fleets.virtual import VirtualCrew
from melisma.learning.gradients import gradient_sum, size_of
from melisma.learning.losses import Loss
from melisma.learning.parameters import Model, Parameters, put
from melisma.learning.samples import Part, Samples
from melisma.maths.arrays import Floats, Ints
from melisma.system.law import DelayLaw
from melisma.system.streams import Stream
from melisma.transmission.uploads import Schedule, Uploads


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggling:
    """Artificial stragglers."""

    number: int = 0  #: workers that straggle, drawn anew each cycle
    slower: float = 8.0  #: slowdown factor; inf: dead

    def __post_init__(self) -> None:
        if self.number < 0:
            raise ConfigError(f"{self.number} stragglers a cycle: give 0 or more")
        if not self.slower >= 1:
            raise ConfigError(f"stragglers {self.slower} times as slow: give 1 or more")


NOBODY = Straggling()


class SimulatedWorkers(VirtualCrew):
    """Workers that exist as numbers, on a clock that jumps."""

    def __init__(
        self,
        names: Sequence[str],
        law: DelayLaw,
        *,
        model: Model,
        samples: Samples,
        loss: Loss,
        seed: int,
        noise: float = 0.0,
        straggling: Straggling = NOBODY,
        channels: int | None = None,
    ) -> None:
        if straggling.number > len(names):
            raise ConfigError(
                f"{straggling.number} stragglers of {len(names)} workers: give fewer"
            )
        super().__init__(names, law)
        self._noise, self._straggling = noise, straggling
        self.model, self.samples, self.loss = model, samples, loss
        self._rng = np.random.default_rng([seed, Stream.STRAGGLERS])
        self._air = Uploads(workers=len(names), channels=channels) if channels else None

    def session(self, parameters: Parameters, deadline_s: float) -> "VirtualSession":
        """Begin a cycle."""
        sample_s, transfer_s = self._begin(parameters)
        return VirtualSession(
            self, sample_s=sample_s, transfer_s=transfer_s, air=self._air
        )

    def _begin(self, parameters: Parameters) -> tuple[Floats, Floats]:
        """Draw the stragglers of a cycle; return each worker's times."""
        M, sigma = len(self.learners), self._noise
        slower = np.exp(sigma * self._rng.standard_normal((2, M)))
        late = self._rng.permutation(M)[: self._straggling.number]
        slower[0, late] *= self._straggling.slower
        put(parameters, self.model)
        return self._law.step_s * slower[0], self._law.fixed_s / 2 * slower[1]

    def pass_s(self, seconds: float) -> None:
        """Advance the clock."""
        self._now_s += seconds


class VirtualSession:
    """One cycle of simulated workers.

    Uploads are scheduled anew when work is added, which does not change those that have
    ended by then.
    """

    def __init__(
        self,
        crew: SimulatedWorkers,
        *,
        sample_s: Floats,
        transfer_s: Floats,
        air: Uploads | None,
    ) -> None:
        self.lost: list[Lost] = []
        self._crew, self._air, self._now_s = crew, air, 0.0
        self._sample_s, self._transfer_s = sample_s, transfer_s
        self._free_s = transfer_s.copy()  # when each has the model, or is done with it
        self._works: list[Work] = []
        self._ready_s: list[float] = []
        self._answered: set[int] = set()

    def give(self, works: Sequence[Work]) -> None:
        """Have work done, from now on."""
        for work in works:
            w = work.worker
            begins_s = max(self._now_s, float(self._free_s[w]))
            self._free_s[w] = begins_s + work.samples * self._sample_s[w]
            self._works.append(work)
            self._ready_s.append(float(self._free_s[w]))

    async def next(self, until_s: float) -> Answer | None:
        """Return the next answer; None if none comes until then."""
        finish_s = self._finish_s()
        finish_s[list(self._answered)] = np.inf
        i = int(finish_s.argmin())
        if not finish_s[i] <= until_s:
            self._now_s = until_s
            return None
        self._now_s = float(finish_s[i])
        self._answered.add(i)
        work, ready_s = self._works[i], self._ready_s[i]
        busy_s = work.samples * float(self._sample_s[work.worker])
        return Answer(
            work=work,
            downloaded_s=ready_s - busy_s,
            trained_s=ready_s,
            after_s=self._now_s,
        )

    def _finish_s(self) -> Floats:
        if self._air is None:
            return np.array(self._ready_s) + self._transfer_s[self._workers()]
        return self._schedule(self._air).finish_s.copy()

    def _schedule(self, air: Uploads) -> Schedule:
        bits = 32.0 * size_of(self._crew.model)
        # A transfer that takes no time would have an infinite rate.
        seconds = np.maximum(self._transfer_s[self._workers()], 1e-9)
        return air.schedule(self._ready_s, bits, bits / seconds, self._workers())

    def _workers(self) -> Ints:
        return np.array([work.worker for work in self._works], dtype=np.int64)

    async def total(self, answers: Sequence[Answer], weights: Floats) -> Floats:
        """Σ weight · answer. Each part's gradient is computed once, for all."""
        model, samples = self._crew.model, self._crew.samples
        rows = np.zeros((len(answers), size_of(model)))
        if not self._crew.learning:
            return np.zeros(size_of(model))
        for part, holders in _by_part([answer.work for answer in answers]):
            vector, _ = gradient_sum(model, Part(samples, part), self._crew.loss)
            for i, coefficient in holders:
                rows[i] += coefficient * vector
        return np.asarray(combine(weights, list(rows)))

    def energy(self) -> Sequence[Energy]:
        """Return nothing: these workers have no batteries."""
        return ()

    def end(self) -> None:
        """End the cycle at the time of the last answer."""
        if self._air is not None:
            self._air.settle(self._schedule(self._air), self._now_s)
        self._crew.pass_s(self._now_s)


def _by_part(works: Sequence[Work]) -> list[tuple[Ints, list[tuple[int, float]]]]:
    """Parts of the data, each with the works that hold it and their coefficients.

    Parts that the same works hold with the same coefficients are joined, so that their
    gradient is computed once.
    """
    holders: dict[int, list[tuple[int, float]]] = {}
    rows: dict[int, Ints] = {}
    for i, work in enumerate(works):
        for part, coefficient in zip(work.parts, work.coefficients, strict=True):
            key = int(part[0]) if len(part) else -1
            rows[key] = part
            holders.setdefault(key, []).append((i, float(coefficient)))
    joined: dict[tuple[tuple[int, float], ...], list[Ints]] = {}
    for key, pairs in holders.items():
        joined.setdefault(tuple(pairs), []).append(rows[key])
    return [(np.concatenate(parts), list(pairs)) for pairs, parts in joined.items()]
