"""FedCompass: learners get as much work as lets a group of them arrive together.

    θ ← θ + Σ α·(1 + ageₖ)^−a · 1/m · (θₖ − θ⁰ₖ)      over a group, of m learners

The first update of a learner counts at once and shows how fast it is. From then on it
joins the group in whose remaining time it can do most, between ``least`` of its work
and all of it; or it opens one, for the time at which the groups that there are can meet
it once more. Who is early waits for its group. Who comes after λ times the group's
expected time counts with the next group that is complete.

Paper: Z. Li, P. Chaturvedi, S. He et al., "FedCompass: Efficient Cross-Silo Federated
Learning on Heterogeneous Client Devices Using a Computing Power-Aware Scheduler",
arXiv:2309.14675 (40 to 200 steps, λ = 1.2, α = 0.9, a = 0.5, equal weights).

Differences from the paper:
1. Each learner has a work of its own (all its samples), where the paper's have all the
   same, unless the job says so (``batches``).
2. A learner that comes late twice before any group is complete counts twice; in the
   authors' program its later update takes the place of the former.
"""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from melisma.algorithms.asynchronous.arrived import Arrived, AtOnce
from melisma.learning.parameters import Parameters, packed, unpacked

#: Before the number of an update in a checkpoint.
PREFIX = "waits:"
#: Weight of the last order in the estimate of a learner's speed.
MOMENTUM = 0.9
#: Of a batch, so that a plan which fits does not lose one to rounding.
ROUNDING = 1e-9


@dataclass(slots=True)
class Group:
    """Those who are to arrive together."""

    expected_s: float
    latest_s: float  #: minus infinity: it is complete, and who comes is late
    coming: set[str]
    came: list[str] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Waiting:
    """An update that is to count with a group's."""

    change: Parameters
    version: int  #: of the model that it started from
    group: int | None  #: None: with the next one that is complete


class FedCompass(AtOnce):
    """The groups, and updates that wait for theirs."""

    def __init__(
        self, mixing: float, exponent: float, least: float, latest: float
    ) -> None:
        self._mixing, self._exponent = mixing, exponent
        self._least, self._latest = least, latest
        self._there: set[str] = set()
        self._batch_s: dict[str, float] = {}  # how long each takes for a batch
        self._whole: dict[str, int] = {}  # batches of each
        self._groups: dict[int, Group] = {}
        self._group_of: dict[str, int] = {}
        self._next: dict[str, int] = {}  # batches of the next order
        self._freed: list[str] = []
        self._waiting: list[Waiting] = []
        self._version = self._opened = 0

    @property
    def due_s(self) -> float:
        """When the first of the groups is complete, whoever is missing."""
        latest = [g.latest_s for g in self._groups.values() if g.latest_s > -math.inf]
        return min(latest, default=math.inf)

    def begin(self, learners: Collection[str]) -> None:
        """Do without those who left."""
        self._there = set(learners)
        for name in [n for n in self._group_of if n not in self._there]:
            self._leave(name)

    def weight(self, age: int) -> float:
        """Return α·s/m."""
        scale = (1 + age) ** -self._exponent / max(1, len(self._there))
        return float(self._mixing * scale)

    def arrive(self, model: Parameters, update: Arrived) -> Parameters | None:
        """Take an update: at once, with its group, or with the next one."""
        name, now_s = update.learner, update.time_s
        self._measure(update)
        number = self._group_of.get(name)
        one = Waiting(update.change(), self._version - update.age, number)
        if number is None:
            moved = self._merged(model, [one])
            self._assign(name, now_s)
            return moved
        self._waiting.append(one)
        group = self._groups[number]
        if now_s > group.latest_s:
            one.group = None
            self._leave(name)
            self._assign(name, now_s)
            return None
        group.coming.discard(name)
        group.came.append(name)
        return None if group.coming else self._complete(model, number, now_s)

    def _measure(self, update: Arrived) -> None:
        """Learn how fast a learner is."""
        name, report = update.learner, update.report
        last_s = report.uploaded_s / max(1, report.batches)
        before_s = self._batch_s.get(name, last_s)
        self._batch_s[name] = (1 - MOMENTUM) * before_s + MOMENTUM * last_s
        self._whole[name] = update.whole

    def due(self, model: Parameters) -> Parameters | None:
        """Do without who is late for the first of the groups."""
        now_s = self.due_s
        number = min(n for n, g in self._groups.items() if g.latest_s == now_s)
        return self._complete(model, number, now_s)

    def _complete(
        self, model: Parameters, number: int, now_s: float
    ) -> Parameters | None:
        """Merge a group, with those who were late before; give all their next work."""
        group = self._groups[number]
        group.latest_s = group.expected_s = -math.inf
        came, group.came = group.came, []
        moved = None
        if came:
            with_it, others = list[Waiting](), list[Waiting]()
            for one in self._waiting:
                (with_it if one.group in (None, number) else others).append(one)
            self._waiting = others
            moved = self._merged(model, with_it)
        for name in sorted(came, key=lambda n: self._batch_s[n]):
            del self._group_of[name]
            self._assign(name, now_s)
            self._freed.append(name)
        if not group.coming:
            del self._groups[number]
        return moved

    def _merged(self, model: Parameters, some: Iterable[Waiting]) -> Parameters:
        """Return the model, moved along some changes."""
        moved = {n: t.clone() for n, t in model.items()}
        for one in some:
            scale = self.weight(self._version - one.version)
            for n, t in moved.items():
                t.add_(one.change[n], alpha=scale)
        self._version += 1
        return moved

    def _assign(self, name: str, now_s: float) -> None:
        """Have a learner join a group, or open one."""
        batch_s, whole = self._batch_s[name], self._whole[name]
        least = max(1, math.ceil(self._least * whole - ROUNDING))
        best, most = None, least - 1
        for number, group in self._groups.items():
            if group.expected_s == -math.inf:
                continue
            batches = math.floor((group.expected_s - now_s) / batch_s + ROUNDING)
            if most < batches <= whole:
                best, most = number, batches
        if best is None:
            best, most = self._opened, self._first_of(now_s, batch_s, least, whole)
            self._opened += 1
            takes_s = most * batch_s
            expected_s, latest_s = now_s + takes_s, now_s + takes_s * self._latest
            self._groups[best] = Group(expected_s, latest_s, set())
        self._groups[best].coming.add(name)
        self._group_of[name], self._next[name] = best, most

    def _first_of(self, now_s: float, batch_s: float, least: int, whole: int) -> int:
        """Return the batches of a learner that opens a group.

        It is to arrive when the fastest of another group has done all its work once
        more after that group's latest time: the groups can become one then.
        """
        batches = -1
        for group in self._groups.values():
            members = [*group.coming, *group.came]
            if now_s < group.latest_s and members:
                fastest_s = min(self._batch_s[n] * self._whole[n] for n in members)
                meets_s = group.latest_s + fastest_s
                fits = math.floor((meets_s - now_s) / batch_s + ROUNDING)
                batches = max(batches, fits if fits <= whole else -1)
        return whole if batches < 0 else max(least, batches)

    def _leave(self, name: str) -> None:
        """Take a learner out of its group."""
        number = self._group_of.pop(name)
        group = self._groups[number]
        group.coming.discard(name)
        group.came = [n for n in group.came if n != name]
        if not group.coming and not group.came:
            del self._groups[number]
            for one in self._waiting:
                one.group = None if one.group == number else one.group

    def lost(self, learner: str, time_s: float) -> None:
        """Do without who failed; its group may be complete now."""
        number = self._group_of.get(learner)
        if number is not None:
            self._leave(learner)
            group = self._groups.get(number)
            if group and not group.coming and group.came:
                group.latest_s = time_s

    def holds(self, learner: str) -> bool:
        """Return whether a learner waits for its group."""
        number = self._group_of.get(learner)
        return number is not None and learner in self._groups[number].came

    def freed(self) -> Iterable[str]:
        """Return those whose group is complete."""
        freed, self._freed = self._freed, []
        return freed

    def batches(self, learner: str, whole: int) -> int:
        """Return what lets a learner arrive with its group; all at first."""
        return self._next.pop(learner, whole)

    def state(self) -> Parameters:
        """Return the updates that wait."""
        return packed(
            PREFIX, {str(k): one.change for k, one in enumerate(self._waiting)}
        )

    def restore(self, saved: Parameters) -> None:
        """Restore them; where no replay knows their groups, with the next that is."""
        changes = {int(k): change for k, change in unpacked(PREFIX, saved).items()}
        if len(changes) != len(self._waiting):
            self._waiting = [Waiting({}, self._version, None) for _ in changes]
        for k, one in enumerate(self._waiting):
            one.change = changes[k]
