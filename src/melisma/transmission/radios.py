"""Workers of coded training with batteries, on shared channels, slot by slot.

    maximise    Σₘ log₂(1 + λₘ c̄ₘ)              c̄: mean of whole answers sent per slot
    subject to  the channels, batteries and queues of ``rules``

An answer that is computed has to be sent, so nothing is refused admission. The virtual
queue H is served by what is *sent* in place of what is admitted, and the drift's bound
gives the weight of sending

    r(Q + H − ξR_s) + β(E − θ)p

of which ``uploads`` is the case with full batteries and an idle server. At most
`MOST_WAITING` answers of a worker wait, so Q + H stays below the Q_max of `Setting`, to
which θ belongs: who sends has the energy for its slot.

Q, R and H count what is begun in full until it is done, since half an answer is of no
use. Counted by what is left, the last of it would wait until the battery is full again,
and channels would go to whoever has most left, so that all are late; and parts of
answers, dropped as a cycle ends, would pay what is owed to a slow worker.

Paper: X. Wang et al., "Two-Stage Coded Federated Edge Learning: A Dynamic Partial
Gradient Coding Perspective", section 4.3.

Differences from the paper, beside those of ``rules``:
1. No admission; H is served by what is sent.
2. Q and H count whole answers, R whole pieces of work.
3. Work and answers of a cycle that has ended are dropped: nobody needs them.
"""

from collections import deque
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

from melisma.maths.arrays import Floats
from melisma.transmission.power import MOST_WAITING, Power
from melisma.transmission.queues import Decisions, Observed, Queues, Setting
from melisma.transmission.rules import (
    affordable,
    after,
    auxiliary,
    computing,
    storage,
    transmission,
    weight,
)

#: Less than this share of an answer is rounding.
NOTHING = 1e-9


def decide(
    setting: Setting, queues: Queues, left: Queues, observed: Observed, most: Floats
) -> Decisions:
    """All decisions of a slot in which a worker computes ``most`` Gcycles at most.

    ``queues`` weigh; ``left`` is what there is to compute and to send.
    """
    f = np.minimum(computing(setting, queues), affordable(setting, left))
    f = np.minimum(f, most)
    owed = replace(queues, data_mbit=queues.data_mbit + queues.fairness_mbit)
    gain = weight(setting, owed, observed)
    v = transmission(setting, left, observed, f, gain)
    sent = np.minimum(left.data_mbit, observed.rate_mbps * v)
    return Decisions(
        auxiliary_mbit=auxiliary(setting, queues),
        admitted_mbit=np.zeros_like(sent),  # H is served by whole answers
        stored_j=storage(setting, queues, observed),
        computed_gcycles=f,
        airtime_s=v,
        sent_mbit=sent,
    )


class Line:
    """Pieces of work or answers of one worker, one after the other."""

    def __init__(self) -> None:
        self._pieces: deque[tuple[int, float]] = deque()
        self._done = 0.0  # of the first

    def add(self, number: int, size: float) -> None:
        """Append a piece."""
        self._pieces.append((number, size))

    @property
    def whole(self) -> float:
        """The size of all pieces; the first counts in full until it is done."""
        return sum(size for _, size in self._pieces)

    @property
    def left(self) -> float:
        """What is still to be done."""
        return max(self.whole - self._done, 0.0)

    def pass_on(self, amount: float) -> list[int]:
        """Do so much; return the pieces that came to an end."""
        ended, self._done = [], self._done + amount
        while self._pieces and self._pieces[0][1] <= self._done * (1 + NOTHING):
            number, size = self._pieces.popleft()
            self._done = max(self._done - size, 0.0)
            ended.append(number)
        if not self._pieces:
            self._done = 0.0
        return ended


@dataclass(slots=True, kw_only=True, eq=False)
class Account:
    """Energy and queues of each worker since the cycle began."""

    battery_j: Floats  #: as it began
    harvested_j: Floats  #: what the slots brought
    stored_j: Floats  #: of that; the rest found the battery full enough
    computing_j: Floats  #: spent
    sending_j: Floats  #: spent
    waited_s: Floats  #: with an answer, and without a channel
    lowest_j: Floats  #: of the battery
    most_waiting: Floats  #: Q, answers
    most_owed: Floats  #: H, answers

    @classmethod
    def since(cls, queues: Queues) -> "Account":
        """Begin with what is in the queues."""
        none = {f.name: np.zeros_like(queues.battery_j) for f in fields(cls)}
        battery = {"battery_j": queues.battery_j, "lowest_j": queues.battery_j}
        return cls(**none | battery | {"most_owed": queues.fairness_mbit})

    def add(
        self, setting: Setting, observed: Observed, before: Queues, done: Decisions
    ) -> None:
        """Count the energy of a slot, and who waited in it."""
        computing_j = done.computed_gcycles * setting.compute_j_per_gcycle
        waits = (before.data_mbit > 0) & (done.airtime_s == 0)
        self.harvested_j = self.harvested_j + observed.harvest_j
        self.stored_j = self.stored_j + done.stored_j
        self.computing_j = self.computing_j + computing_j
        self.sending_j = self.sending_j + done.airtime_s * setting.power_w
        self.waited_s = self.waited_s + waits * setting.slot_s

    def see(self, queues: Queues) -> None:
        """Keep the extremes."""
        self.lowest_j = np.minimum(self.lowest_j, queues.battery_j)
        self.most_waiting = np.maximum(self.most_waiting, queues.data_mbit)
        self.most_owed = np.maximum(self.most_owed, queues.fairness_mbit)


class Passed(NamedTuple):
    """Which pieces of work a slot brought to an end."""

    computed: list[int]
    sent: list[int]
    server_s: float  #: until the server has dealt with all that it received


class Radios:
    """Batteries and queues that last from cycle to cycle."""

    def __init__(
        self, power: Power, setting: Setting, unit_s: Floats, rng: np.random.Generator
    ) -> None:
        """``unit_s`` is how long each worker computes a unit of work."""
        self.power, self.setting, self.unit_s = power, setting, unit_s
        self._rng = rng
        self.queues = replace(
            Queues.empty(setting.workers),
            battery_j=np.full(setting.workers, power.full_j),
        )
        self.begin()

    def begin(self) -> None:
        """Begin a cycle: what is left of the last one is dropped."""
        self._works = [Line() for _ in range(self.setting.workers)]
        self._answers = [Line() for _ in range(self.setting.workers)]
        self._held = [deque[int]() for _ in range(self.setting.workers)]
        self._count()
        self.account = Account.since(self.queues)

    def expel(self, worker: int) -> None:
        """Forget a worker, between two cycles."""

        def others(owner: Any) -> dict[str, Any]:
            values = {f.name: getattr(owner, f.name) for f in fields(owner)}
            return {
                name: np.delete(value, worker)
                for name, value in values.items()
                if np.shape(value) == self.unit_s.shape
            }

        self.queues = replace(self.queues, **others(self.queues))
        self.setting = replace(self.setting, **others(self.setting))
        self.unit_s = np.delete(self.unit_s, worker)
        self.begin()

    def give(self, worker: int, number: int, full_speed_s: float) -> None:
        """Have a worker compute for so long, if it can at full speed, and answer."""
        self._works[worker].add(number, full_speed_s / float(self.unit_s[worker]))
        self._count()

    def slot(self, rate: Floats, speed: Floats) -> Passed:
        """Let a slot pass: at these rates, in answers, and shares of full speed."""
        setting, before = self.setting, self.queues
        none, harvest_j = np.zeros(setting.workers), setting.harvest_j
        if not self.power.steady:
            harvest_j = harvest_j * self._rng.uniform(size=setting.workers)
        observed = Observed(
            rate_mbps=np.minimum(rate, setting.rate_mbps),
            arrival_mbit=none,
            harvest_j=harvest_j,
            work_gcycles=none,
        )
        most = speed * setting.slot_s / self.unit_s
        done = decide(setting, before, self._left(), observed, most)
        computed = _pass_on(self._works, done.computed_gcycles)
        sent = _pass_on(self._answers, done.sent_mbit)
        whole = np.bincount([w for w, _ in sent], minlength=setting.workers)
        done = replace(done, admitted_mbit=whole.astype(np.float64))
        self.queues = after(setting, before, observed, done)
        for worker, number in computed:
            self._held[worker].append(number)
        self._count()
        self.account.add(setting, observed, before, done)
        self.account.see(self.queues)
        behind_s = float(self.queues.server_gcycles[0])
        return Passed([n for _, n in computed], [n for _, n in sent], behind_s)

    def _left(self) -> Queues:
        return replace(
            self.queues,
            data_mbit=np.array([line.left for line in self._answers]),
            work_gcycles=np.array([line.left for line in self._works]),
        )

    def _count(self) -> None:
        """Let answers wait as far as there is room, and count what waits."""
        for held, answers in zip(self._held, self._answers, strict=True):
            while held and answers.whole + 1 <= MOST_WAITING:
                answers.add(held.popleft(), 1.0)
        self.queues = replace(
            self.queues,
            data_mbit=np.array([line.whole for line in self._answers]),
            work_gcycles=np.array([line.whole for line in self._works]),
        )


def _pass_on(lines: list[Line], amounts: Floats) -> list[tuple[int, int]]:
    """Do so much of each worker's line; return worker and number of what is done."""
    return [
        (worker, number)
        for worker, (line, amount) in enumerate(zip(lines, amounts, strict=True))
        for number in line.pass_on(float(amount))
    ]
