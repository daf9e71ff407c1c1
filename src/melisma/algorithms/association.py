"""Who serves which task, for as long as the same tasks are there.

Association and split are made for all tasks at once. A task or a learner that comes or
goes makes them anew; a learner changes its task when its cycle is over, so that a task
may have to do with fewer for one cycle, and then splits its shards among those.
"""

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from melisma.errors import InfeasibleError
from melisma.maths.arrays import Floats, Ints
from melisma.system.multitask import MultiTaskProblem, Solved

log = logging.getLogger("melisma.orchestrator")

#: A problem, and which tasks and learners its rows and columns are.
Solve = Callable[[MultiTaskProblem, Ints, Ints], Solved]

#: Share of the tasks' time that must be won for learners to change their task: whoever
#: changes is missed for a cycle.
WORTH_IT = 0.1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Terms:
    """What all tasks ask for, and what they may cost."""

    names: Sequence[str]  #: of the tasks
    shards: Ints  #: Dᵢ, in a cycle
    deadline_s: Floats  #: Tᵢ
    budget: float  #: of all tasks, for a cycle of each
    least: int = 1  #: shards of a learner that serves a task


class Association:
    """The tasks that are there, and their learners.

    ``price`` is pⱼ, of one shard; ``known`` returns seconds per shard and fixed
    seconds, tasks × learners. Unless it ``reassigns``, learners that a finished task
    frees stay idle (as in the thesis).
    """

    def __init__(
        self,
        terms: Terms,
        price: Floats,
        known: Callable[[], tuple[Floats, Floats]],
        solve: Solve,
        *,
        reassigns: bool = True,
    ) -> None:
        self._terms, self._known, self._solve = terms, known, solve
        self._reassigns = reassigns
        self._tasks: list[int] = []
        self._price = price
        self._present = np.arange(len(price))
        self._shards = np.zeros((len(terms.names), len(price)), dtype=np.int64)
        self._holder = np.full(len(price), -1)

    def take_in(self, present: Ints, price: Floats) -> None:
        """Know who is there now; places only grow, and ``price`` with them."""
        new = len(price) - len(self._price)
        self._price = price
        self._shards = np.pad(self._shards, ((0, 0), (0, new)))
        self._holder = np.pad(self._holder, (0, new), constant_values=-1)
        if np.array_equal(present, self._present):
            return
        self._present = present
        self._make_do()

    def admit(self, task: int) -> None:
        """Let a task in; InfeasibleError if it and those there cannot all be done."""
        self._tasks.append(task)
        try:
            self._associate(self._tasks)
        except InfeasibleError:
            self._tasks.remove(task)
            raise

    def renew(self) -> None:
        """Associate by what is known now, if that is worth the change."""
        before = self._shards.copy()
        with contextlib.suppress(InfeasibleError):
            self._associate(self._tasks)
        if self._total_s(self._shards) > (1 - WORTH_IT) * self._total_s(before):
            self._shards = before

    def _total_s(self, shards: Ints) -> float:
        """Σ of the tasks' times with these learners, each split anew."""
        total_s = 0.0
        for task in self._tasks:
            members = self._present[shards[task, self._present] > 0]
            if not members.size:
                return np.inf
            seconds = self.seconds(task, members)
            d = self.split(task, members, seconds)
            total_s += float((seconds[1] + seconds[0] * d)[d > 0].max())
        return total_s

    def finish(self, task: int) -> None:
        """Give a task's learners to the others."""
        self._tasks.remove(task)
        self._holder[self._holder == task] = -1
        self._shards[task] = 0
        if self._reassigns:
            self._make_do()

    def _make_do(self) -> None:
        """Associate with those who are there, as well as it can be done.

        If the deadlines cannot be met any more, who is late will halt; if not even so
        (fewer learners than tasks), who came last waits.
        """
        for served in range(len(self._tasks), 0, -1):
            for in_time in (True, False):
                try:
                    return self._associate(self._tasks[:served], in_time=in_time)
                except InfeasibleError as error:
                    log.warning("tasks have to make do with less: %s", error)
        return None

    def busy(self, task: int) -> Ints:
        """Who works for other tasks."""
        return np.flatnonzero((self._holder != -1) & (self._holder != task))

    def members(self, task: int) -> Ints:
        """Who serves a task in its next cycle: its own, as far as they are free.

        Nobody, if all are still busy elsewhere.
        """
        self._holder[self._holder == task] = -1
        own = (self._shards[task] > 0) & (self._holder == -1)
        free: Ints = self._present[own[self._present]]
        self._holder[free] = task
        return free

    def split(
        self,
        task: int,
        members: Ints,
        seconds: tuple[Floats, Floats] | None = None,
    ) -> Ints:
        """Shards of each member, by ``seconds`` of theirs where more is known.

        What cannot be done by the deadline is split as evenly in time, and who is late
        halts; what cannot be paid for is left out. InfeasibleError if that is all.
        """
        everybody = np.flatnonzero(self._shards[task])
        if seconds is None and np.array_equal(members, everybody):
            whole: Ints = self._shards[task, members]
            return whole
        shard_s, fixed_s = seconds or self.seconds(task, members)
        problem = MultiTaskProblem(
            shard_s=shard_s[None],
            fixed_s=fixed_s[None],
            shards=self._terms.shards[[task]],
            deadline_s=self._terms.deadline_s[[task]],
            price=self._price[members],
            budget=self._share(task),
            least=self._terms.least,
            every=len(members) * self._terms.least <= self._terms.shards[task],
        )
        row = np.array([task])
        try:
            solved = self._solve(problem, row, members)
        except InfeasibleError:
            solved = self._solve(_eased(problem), row, members)
        some: Ints = solved.assignment.shards[0]
        return some

    def seconds(self, task: int, members: Ints) -> tuple[Floats, Floats]:
        """Seconds per shard and fixed seconds of members, as far as is known."""
        shard_s, fixed_s = self._known()
        return shard_s[task, members], fixed_s[task, members]

    def costs(self, members: Ints, shards: Ints) -> Floats:
        """What each member's part of a split costs."""
        return np.asarray(self._price[members] * shards)

    def _share(self, task: int) -> float:
        """What a task may cost: the budget without what the others are to cost."""
        others = np.delete(self._shards, task, axis=0).sum(axis=0)
        return self._terms.budget - float(self._price @ others)

    def _associate(self, tasks: Sequence[int], *, in_time: bool = True) -> None:
        """Give learners to tasks; with all the time in the world if not ``in_time``."""
        terms, learners = self._terms, self._present
        rows = np.array(sorted(tasks))
        shard_s, fixed_s = self._known()
        those = np.ix_(rows, learners)
        shards, deadline_s = terms.shards[rows], terms.deadline_s[rows]
        if not in_time:
            alone_s = fixed_s[those] + shard_s[those] * shards[:, None]
            deadline_s = np.maximum(deadline_s, alone_s.max(axis=1))
        solved = self._solve(
            MultiTaskProblem(
                shard_s=shard_s[those],
                fixed_s=fixed_s[those],
                shards=shards,
                deadline_s=deadline_s,
                price=self._price[learners],
                budget=terms.budget,
                least=terms.least,
                every=len(learners) * terms.least <= shards.sum(),
            ),
            rows,
            learners,
        )
        self._shards[:] = 0
        self._shards[those] = solved.assignment.shards


def _eased(problem: MultiTaskProblem) -> MultiTaskProblem:
    """The same for one task with time enough, and with no more than it can pay."""
    price, least = problem.price, problem.least
    rest = problem.budget - least * float(price.sum())
    most = problem.shards[0]
    if price.min() > 0 and np.isfinite(rest):
        most = min(most, least * len(price) + int(rest // price.min()))
    if most < least * len(price):
        raise InfeasibleError(
            f"{len(price)} learners cost {least * price.sum():.6g} for {least} shards "
            f"each, more than the {problem.budget:.6g} that are left: raise the budget"
        )
    ample_s = float((problem.fixed_s + problem.shard_s * most).max())
    return replace(
        problem,
        shards=np.array([most]),
        deadline_s=np.array([max(ample_s, float(problem.deadline_s[0]))]),
    )
