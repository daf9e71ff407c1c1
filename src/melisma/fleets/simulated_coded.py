"""Workers on a virtual clock: time is priced, gradients are real.

Models come and answers go at the worker's own rate, or over shared channels. Data is
taken to be where it is needed: shards lie on a worker once it has had them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from melisma.coding import combine
from melisma.errors import ConfigError
from melisma.fleets.protocols import Lost
from melisma.fleets.sums import Answer, Work
from melisma.learning.data import Dataset
from melisma.learning.gradients import gradient_sum, size_of
from melisma.learning.parameters import Model, Parameters, put
from melisma.maths.arrays import Floats, Ints
from melisma.system.law import DelayLaw
from melisma.system.streams import Stream
from melisma.transmission.uploads import Schedule, Uploads


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggling:
    """Who is slow in a cycle: so many workers, drawn anew for each."""

    number: int = 0
    slower: float = 8.0  #: how many times; inf: dead

    def __post_init__(self) -> None:
        if self.number < 0:
            raise ConfigError(f"{self.number} stragglers a cycle: give 0 or more")
        if not self.slower >= 1:
            raise ConfigError(f"stragglers {self.slower} times as slow: give 1 or more")


NOBODY = Straggling()


class SimulatedWorkers:
    """Workers that exist as numbers, on a clock that jumps."""

    own_samples: Sequence[int] | None = None

    def __init__(
        self,
        names: Sequence[str],
        law: DelayLaw,
        *,
        model: Model,
        data: Dataset,
        seed: int,
        noise: float = 0.0,
        straggling: Straggling = NOBODY,
        channels: int | None = None,
    ) -> None:
        if straggling.number > len(names):
            raise ConfigError(
                f"{straggling.number} stragglers of {len(names)} workers: give fewer"
            )
        self.learners = list(names)
        self._law, self._noise, self._straggling = law, noise, straggling
        self.model, self.data = model, data
        self._rng = np.random.default_rng([seed, Stream.STRAGGLERS])
        self._air = Uploads(workers=len(names), channels=channels) if channels else None
        #: Compute gradients; else time passes and models stay as they are.
        self.learning = True
        self._now_s = 0.0

    def now_s(self) -> float:
        """Virtual seconds since the run began."""
        return self._now_s

    async def ready(self) -> None:
        """Everybody is there who was not expelled."""

    async def law(self) -> DelayLaw:
        """Return the law of workers that do not straggle."""
        return self._law

    def expel(self, name: str, reason: str) -> None:
        """Let a worker take no part from the next cycle on."""
        if name not in self.learners:
            return
        k = self.learners.index(name)
        del self.learners[k]
        self._law = self._law.only(np.delete(np.arange(len(self._law.step_s)), k))

    def session(self, parameters: Parameters, deadline_s: float) -> "VirtualSession":
        """Begin a cycle, in which some straggle."""
        M, sigma = len(self.learners), self._noise
        slower = np.exp(sigma * self._rng.standard_normal((2, M)))
        late = self._rng.permutation(M)[: self._straggling.number]
        slower[0, late] *= self._straggling.slower
        put(parameters, self.model)
        return VirtualSession(
            self,
            sample_s=self._law.step_s * slower[0],
            transfer_s=self._law.fixed_s / 2 * slower[1],
            air=self._air,
        )

    def pass_s(self, seconds: float) -> None:
        """Let time pass."""
        self._now_s += seconds


class VirtualSession:
    """One cycle. Uploads are planned anew with each that is given, which changes
    nothing that has happened by then.
    """

    def __init__(
        self,
        fleet: SimulatedWorkers,
        *,
        sample_s: Floats,
        transfer_s: Floats,
        air: Uploads | None,
    ) -> None:
        self.lost: list[Lost] = []
        self._fleet, self._air, self._now_s = fleet, air, 0.0
        self._sample_s, self._transfer_s = sample_s, transfer_s
        self._free_s = transfer_s.copy()  # when each has the model, or is done with it
        self._works: list[Work] = []
        self._ready_s: list[float] = []
        self._told: set[int] = set()

    def give(self, works: Sequence[Work]) -> None:
        """Have work done, from now on."""
        for work in works:
            w = work.worker
            begins_s = max(self._now_s, float(self._free_s[w]))
            self._free_s[w] = begins_s + work.samples * self._sample_s[w]
            self._works.append(work)
            self._ready_s.append(float(self._free_s[w]))

    async def next(self, until_s: float) -> Answer | None:
        """Return the next answer; None if there is none until then."""
        finish_s = self._finish_s()
        finish_s[list(self._told)] = np.inf
        i = int(finish_s.argmin())
        if not finish_s[i] <= until_s:
            self._now_s = until_s
            return None
        self._now_s = float(finish_s[i])
        self._told.add(i)
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
            return np.array(self._ready_s) + self._transfer_s[self._who()]
        return self._schedule(self._air).finish_s.copy()

    def _schedule(self, air: Uploads) -> Schedule:
        bits = 32.0 * size_of(self._fleet.model)
        # A transfer that takes no time would have an infinite rate.
        seconds = np.maximum(self._transfer_s[self._who()], 1e-9)
        return air.schedule(self._ready_s, bits, bits / seconds, self._who())

    def _who(self) -> Ints:
        return np.array([work.worker for work in self._works], dtype=np.int64)

    async def total(self, answers: Sequence[Answer], weights: Floats) -> Floats:
        """Σ weight · answer. Each part's gradient is computed once, for all."""
        model, data = self._fleet.model, self._fleet.data
        rows = np.zeros((len(answers), size_of(model)))
        if not self._fleet.learning:
            return np.zeros(size_of(model))
        for part, holders in _by_part([answer.work for answer in answers]):
            vector, _ = gradient_sum(model, data.train_x[part], data.train_y[part])
            for i, coefficient in holders:
                rows[i] += coefficient * vector
        return np.asarray(combine(weights, list(rows)))

    def end(self) -> None:
        """Need no more answers."""
        if self._air is not None:
            self._air.settle(self._schedule(self._air), self._now_s)
        self._fleet.pass_s(self._now_s)


def _by_part(works: Sequence[Work]) -> list[tuple[Ints, list[tuple[int, float]]]]:
    """Parts of the data, and who takes each with which coefficient.

    Parts that the same workers take with the same coefficients are joined.
    """
    holders: dict[int, list[tuple[int, float]]] = {}
    rows: dict[int, Ints] = {}
    for i, work in enumerate(works):
        for part, coefficient in zip(work.parts, work.coefficients, strict=True):
            key = int(part[0]) if len(part) else -1
            rows[key] = part
            holders.setdefault(key, []).append((i, float(coefficient)))
    joined: dict[tuple[tuple[int, float], ...], list[Ints]] = {}
    for key, who in holders.items():
        joined.setdefault(tuple(who), []).append(rows[key])
    return [(np.concatenate(parts), list(who)) for who, parts in joined.items()]
