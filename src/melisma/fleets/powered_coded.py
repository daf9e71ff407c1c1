"""Simulated workers with batteries: the scheduler decides who computes and sends.

Time passes in slots, the first of which begins with the cycle. What a slot computes
can be sent in the next; an answer is there when the slot of its last bit has ended,
and the server has decoded what came before it. Receiving the model takes time and no
energy.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from melisma.fleets.simulated_coded import SimulatedWorkers, VirtualSession
from melisma.fleets.sums import Answer, Energy, Work
from melisma.learning.parameters import Parameters
from melisma.maths.arrays import Floats
from melisma.system.law import DelayLaw
from melisma.transmission.radios import Radios


class PoweredWorkers(SimulatedWorkers):
    """Workers whose batteries and queues last from cycle to cycle."""

    def __init__(
        self,
        names: Sequence[str],
        law: DelayLaw,
        *,
        radios: Radios,
        **options: Any,
    ) -> None:
        super().__init__(names, law, **options)
        self.radios = radios

    def session(self, parameters: Parameters, deadline_s: float) -> "PoweredSession":
        """Begin a cycle, and draw its stragglers."""
        sample_s, transfer_s = self._begin(parameters)
        return PoweredSession(self, self._law.step_s, sample_s, transfer_s, self.radios)

    def expel(self, name: str, reason: str) -> None:
        """Exclude a learner from the next cycle on."""
        if name in self.learners:
            self.radios.expel(self.learners.index(name))
        super().expel(name, reason)


class PoweredSession(VirtualSession):
    """One cycle, slot by slot."""

    def __init__(
        self,
        crew: SimulatedWorkers,
        full_speed_s: Floats,
        sample_s: Floats,
        transfer_s: Floats,
        radios: Radios,
    ) -> None:
        """``full_speed_s`` is what a sample takes whoever does not straggle."""
        super().__init__(crew, sample_s=sample_s, transfer_s=transfer_s, air=None)
        radios.begin()
        self._radios, self._full_speed_s, self._slots = radios, full_speed_s, 0
        self._coming: list[int] = []  # works whose worker has not got the model yet
        self._given_s: list[float] = []
        self._trained_s: dict[int, float] = {}
        self._arrived: list[tuple[float, int]] = []

    def give(self, works: Sequence[Work]) -> None:
        """Have work done, from the next slot on."""
        for work in works:
            self._coming.append(len(self._works))
            self._works.append(work)
            self._given_s.append(max(self._now_s, float(self._free_s[work.worker])))

    async def next(self, until_s: float) -> Answer | None:
        """Let slots pass until an answer is there; None if none comes until then."""
        slot_s = self._radios.setting.slot_s
        while True:
            first = min(self._arrived, default=(np.inf, -1))
            end_s = (self._slots + 1) * slot_s
            if first[0] <= min(until_s, end_s):
                self._arrived.remove(first)
                return self._answer(*first)
            if end_s > until_s:
                self._now_s = until_s
                return None
            self._slot(self._slots * slot_s, end_s)

    def _slot(self, begin_s: float, end_s: float) -> None:
        for i in [i for i in self._coming if self._given_s[i] <= begin_s]:
            self._coming.remove(i)
            work = self._works[i]
            seconds = work.samples * float(self._full_speed_s[work.worker])
            self._radios.give(work.worker, i, seconds)
        rate = 1.0 / np.maximum(self._transfer_s, 1e-9)
        passed = self._radios.slot(rate, self._full_speed_s / self._sample_s)
        self._trained_s |= dict.fromkeys(passed.computed, end_s)
        self._arrived += [(end_s + passed.server_s, i) for i in passed.sent]
        self._slots += 1

    def _answer(self, after_s: float, i: int) -> Answer:
        self._now_s = max(self._now_s, after_s)
        return Answer(
            work=self._works[i],
            downloaded_s=self._given_s[i],
            trained_s=self._trained_s[i],
            after_s=self._now_s,
        )

    def energy(self) -> list[Energy]:
        """Return each worker's account of the cycle."""
        account, queues = self._radios.account, self._radios.queues
        rows = {
            "battery_j": queues.battery_j,
            "lowest_j": account.lowest_j,
            "harvested_j": account.harvested_j,
            "stored_j": account.stored_j,
            "computing_j": account.computing_j,
            "sending_j": account.sending_j,
            "waited_s": account.waited_s,
            "waiting": account.most_waiting,
            "owed": account.most_owed,
        }
        return [
            Energy(worker=w, **{name: float(row[w]) for name, row in rows.items()})
            for w in range(queues.battery_j.size)
        ]

    def end(self) -> None:
        """End the cycle with the slot of the last answer."""
        slot_s = self._radios.setting.slot_s
        while (self._slots + 1) * slot_s <= self._now_s:
            self._slot(self._slots * slot_s, (self._slots + 1) * slot_s)
        self._crew.pass_s(self._now_s)
