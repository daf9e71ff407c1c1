"""Who of the live workers may send, by the fair rule of `transmission.radios`.

A worker that has computed asks for leave again and again, with what its battery holds,
until it is given a channel for as long as an answer should take it. Nothing waits for
a worker: one that stops asking is out of the running, and a channel that was given is
free again when the answer is there, when the worker is gone, or when its lease is over.
Then its turn in this cycle is over too, so that a liar holds a channel once.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from melisma import rpc
from melisma.errors import ConfigError, InfeasibleError
from melisma.fleets.judge import is_level
from melisma.fleets.messages import Budget
from melisma.fleets.sums import Work
from melisma.maths.arrays import Floats
from melisma.system.law import DelayLaw
from melisma.transmission.power import MOST_WAITING, Power
from melisma.transmission.queues import Observed, Queues
from melisma.transmission.rules import asked, weight

#: A lease lasts so many times as long as the answer should take, and so much longer.
LEASE, LEASE_S = 3.0, 2.0
#: Who has not asked for so long does not compete: many times the pause between two.
STALE_S = 2.0
#: Slots of waiting that are counted at most at a time.
MOST_SLOTS = 1000


@dataclass(slots=True)
class Turn:
    """One worker in a cycle."""

    due: int = 0  #: answers that it may send
    asked_s: float = -np.inf  #: when it asked last
    first_s: float | None = None  #: when it asked first, until it was given a channel
    until_s: float | None = None  #: when its lease is over, if it sends
    battery_j: float = 0.0
    waited_s: float = 0.0


@dataclass
class AirServer:
    """Gives channels to workers that ask for them."""

    task: str
    power: Power
    channels: int | None
    clock: Callable[[], float] = time.monotonic
    owed: dict[str, float] = field(default_factory=dict)  #: H, by name
    cycle: int = 0
    turns: dict[str, Turn] = field(default_factory=dict)
    _names: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _last_s: float | None = None

    def begin(
        self, cycle: int, names: Sequence[str], law: DelayLaw, samples: int
    ) -> None:
        """Begin a cycle of so many samples; InfeasibleError for too small a battery."""
        answer_s, step_s = np.maximum(law.fixed_s / 2, 1e-6), law.step_s
        share_s = step_s * samples / len(names)
        most_j = float((self.power.computing_w * share_s).max())
        if most_j > self.power.battery_j:
            raise InfeasibleError(
                f"an even share of the work takes {most_j:.3g} J, and a battery holds "
                f"{self.power.battery_j:.3g} J: give larger batteries or fewer samples"
            )
        with self._lock:
            self._setting = self.power.setting(
                answer_s=answer_s,
                share_s=share_s,
                channels=self.channels or len(names),
            )
            self._answer_s, self._step_s = answer_s, step_s
            self._unit_s = self.power.unit_s(answer_s, share_s)
            self.cycle, self._names = cycle, list(names)
            self.turns = {name: Turn() for name in names}
            self._pass()

    def budget(self, work: Work, start_j: float) -> Budget:
        """Let a worker send one answer more; return what its battery is to know."""
        with self._lock:
            self.turns[self._names[work.worker]].due += 1
        w, power = work.worker, self.power
        units = work.samples * self._step_s[w] / self._unit_s[w]
        # R > β(θ − E)δ, where R counts the work in full until it is done.
        price = self._setting.energy_weight[w] * power.computing_w * self._unit_s[w]
        above_j = self._setting.target_j[w] - units / price
        return Budget(
            battery_j=power.battery_j,
            start_j=start_j,
            harvest_w=power.harvest_w,
            steady=power.steady,
            slot_s=power.slot_s,
            sample_j=float(power.computing_w * self._step_s[w]),
            sending_w=power.sending_w,
            above_j=max(float(above_j), 0.0),
        )

    @rpc.expose(idempotent=True)
    def leave(self, task: str, cycle: int, battery_j: float) -> float:
        """Return for how long the caller may send; 0: it is to ask again."""
        if not is_level(battery_j, self.power.battery_j):
            raise ConfigError("a battery that holds what none can")
        return self.granted(rpc.current().caller, task, cycle, battery_j)

    def granted(self, name: str, task: str, cycle: int, battery_j: float) -> float:
        """Return for how long a worker may send; ConfigError if nothing is due."""
        with self._lock:
            turn = self.turns.get(name)
            if task != self.task or cycle != self.cycle or turn is None or not turn.due:
                raise ConfigError(f"{name} has nothing to send in cycle {cycle}")
            now_s, place = self._pass(), self._names.index(name)
            if not turn.due:
                raise ConfigError(f"the lease of {name} is over")
            airtime_s = float(self._answer_s[place])
            if turn.until_s is not None:
                return airtime_s
            turn.asked_s, turn.battery_j = now_s, battery_j
            turn.first_s = now_s if turn.first_s is None else turn.first_s
            if name not in self._chosen(now_s):
                return 0.0
            turn.until_s = now_s + LEASE * airtime_s + LEASE_S
            turn.waited_s += now_s - turn.first_s
            turn.first_s = None
            self.owed[name] = max(self.owed[name] - 1.0, 0.0)
            return airtime_s

    def over(self, name: str, cycle: int) -> None:
        """An answer is there, or will not come: its channel is free."""
        with self._lock:
            if cycle == self.cycle and name in self.turns:
                self._end(self.turns[name])

    def _end(self, turn: Turn) -> None:
        turn.due, turn.until_s, turn.first_s = max(turn.due - 1, 0), None, None

    def _chosen(self, now_s: float) -> list[str]:
        """Those with the largest weights, as many as there are channels free."""
        asking = [n for n, turn in self.turns.items() if self._competes(turn, now_s)]
        sending = sum(turn.until_s is not None for turn in self.turns.values())
        gain = dict(zip(self._names, self._weights().tolist(), strict=True))
        enough = dict(
            zip(self._names, self.power.sending_w * self._answer_s, strict=True)
        )
        able = [
            name
            for name in asking
            if gain[name] > 0 and self.turns[name].battery_j >= enough[name]
        ]
        free = max(self._setting.channels - sending, 0)
        return sorted(able, key=lambda name: (-gain[name], name))[:free]

    def _competes(self, turn: Turn, now_s: float) -> bool:
        is_fresh = now_s < turn.asked_s + STALE_S
        return bool(turn.due) and turn.until_s is None and is_fresh

    def _weights(self) -> Floats:
        """r(Q + H) + β(E − θ)p of everybody, with one answer each."""
        none = np.zeros(len(self._names))
        owed = np.array([self.owed[name] for name in self._names])
        battery = np.array([self.turns[name].battery_j for name in self._names])
        # Beyond θ + E^H_max the rules would have stored nothing.
        battery = np.minimum(battery, self._setting.most_battery_j)
        queues = replace(
            Queues.empty(len(self._names)), data_mbit=1.0 + owed, battery_j=battery
        )
        observed = Observed(
            rate_mbps=self._setting.rate_mbps,
            arrival_mbit=none,
            harvest_j=none,
            work_gcycles=none,
        )
        return weight(self._setting, queues, observed)

    def _pass(self) -> float:
        """Let time pass: leases end, and H grows slot by slot."""
        now_s = self.clock()
        for turn in self.turns.values():
            if turn.until_s is not None and turn.until_s < now_s:
                self._end(turn)
        last_s = now_s if self._last_s is None else self._last_s
        slots = int((now_s - last_s) / self.power.slot_s)
        if self._last_s is None or slots:
            self._last_s = now_s
        V, lam = self.power.utility_weight, self.power.fairness
        owed = np.array([self.owed.get(name, 0.0) for name in self._names])
        for _ in range(min(slots, MOST_SLOTS)):
            owed = owed + asked(V, lam, owed, MOST_WAITING)
        self.owed |= dict(zip(self._names, owed.tolist(), strict=True))
        return now_s
