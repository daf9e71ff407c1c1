"""Which learner serves which task, solved again when a task or a learner comes or goes.

Association and split are solved for all tasks at once. A learner moves to its new task
when its cycle is over; until then that task has fewer learners for a cycle, and splits
its shards among them.
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

#: Solves a problem, given the tasks of its rows and the learners of its columns.
Solve = Callable[[MultiTaskProblem, Ints, Ints], Solved]

#: Share of the tasks' time that a new association must save before learners move to
#: other tasks: a learner that moves is missing for a cycle.
WORTH_IT = 0.1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Terms:
    """The demands of all tasks, and their common budget."""

    names: Sequence[str]  #: of the tasks
    shards: Ints  #: Dᵢ, in a cycle
    deadline_s: Floats  #: Tᵢ
    budget: float  #: of all tasks, for a cycle of each
    least: int = 1  #: shards of a learner that serves a task


class Association:
    """The tasks under way, and the learners that serve each.

    ``price`` is pⱼ, of one shard; ``known`` returns the estimated seconds per shard and
    fixed seconds, tasks × learners. Without ``reassigns``, learners of a finished task
    stay idle (as in the thesis). One that ``keeps`` deadlines leaves shards out that do
    not fit; else they are split all the same, and late learners halt.
    """

    def __init__(
        self,
        terms: Terms,
        price: Floats,
        known: Callable[[], tuple[Floats, Floats]],
        solve: Solve,
        *,
        reassigns: bool = True,
        keeps: bool = False,
    ) -> None:
        self._terms, self._known, self._solve = terms, known, solve
        self._reassigns, self._keeps = reassigns, keeps
        self._tasks: list[int] = []
        self._price = price
        self._present = np.arange(len(price))
        self._shards = np.zeros((len(terms.names), len(price)), dtype=np.int64)
        self._holder = np.full(len(price), -1)

    def take_in(self, present: Ints, price: Floats) -> None:
        """Set the learners that are present, and associate anew if they changed.

        ``price`` is of all learners so far: new ones are appended, none is removed.
        """
        new = len(price) - len(self._price)
        self._price = price
        self._shards = np.pad(self._shards, ((0, 0), (0, new)))
        self._holder = np.pad(self._holder, (0, new), constant_values=-1)
        if np.array_equal(present, self._present):
            return
        self._present = present
        self._make_do()

    def admit(self, task: int, *, begun: bool = False) -> None:
        """Add a task; InfeasibleError if not all tasks can be done with it.

        One that has ``begun``, in a run that is resumed, is never refused.
        """
        self._tasks.append(task)
        if begun:
            return self._make_do()
        try:
            self._associate(self._tasks)
        except InfeasibleError:
            self._tasks.remove(task)
            raise

    def renew(self) -> None:
        """Associate by current estimates, unless that saves less than `WORTH_IT`."""
        before = self._shards.copy()
        with contextlib.suppress(InfeasibleError):
            self._associate(self._tasks)
        if self._total_s(self._shards) > (1 - WORTH_IT) * self._total_s(before):
            self._shards = before

    def _total_s(self, shards: Ints) -> float:
        """Σ of the tasks' cycle times with these learners, each split anew."""
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
        """Remove a task, and give its learners to the others."""
        self._tasks.remove(task)
        self._holder[self._holder == task] = -1
        self._shards[task] = 0
        if self._reassigns:
            self._make_do()

    def _make_do(self) -> None:
        """Associate the learners that are present, for as many tasks as possible.

        If the deadlines cannot be met any more they are ignored here, and late learners
        will halt. If that fails too (fewer learners than tasks), the tasks that arrived
        last wait.
        """
        for served in range(len(self._tasks), 0, -1):
            for in_time in (True, False):
                try:
                    return self._associate(self._tasks[:served], in_time=in_time)
                except InfeasibleError as error:
                    log.warning("too few learners for all tasks: %s", error)
        return None

    def busy(self, task: int) -> Ints:
        """Learners that work for other tasks now."""
        return np.flatnonzero((self._holder != -1) & (self._holder != task))

    def members(self, task: int) -> Ints:
        """Learners that serve a task in its next cycle: its own that are free.

        Empty if all are still busy for other tasks.
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
        """Shards of each member, by ``seconds`` if given, else by `seconds`.

        If the deadline cannot be met, the shards are split so that all end at about the
        same time, and late learners halt; one that keeps deadlines leaves some out.
        Shards beyond the budget are left out; InfeasibleError if that leaves none.
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
            easier = _in_time(problem) if self._keeps else _eased(problem)
            solved = self._solve(easier, row, members)
        shards: Ints = solved.assignment.shards[0]
        return shards

    def seconds(self, task: int, members: Ints) -> tuple[Floats, Floats]:
        """Estimated seconds per shard and fixed seconds of each member."""
        shard_s, fixed_s = self._known()
        return shard_s[task, members], fixed_s[task, members]

    def costs(self, members: Ints, shards: Ints) -> Floats:
        """What each member's part of a split costs."""
        return np.asarray(self._price[members] * shards)

    def _share(self, task: int) -> float:
        """The budget of a task: the common one less what the others' shards cost."""
        others = np.delete(self._shards, task, axis=0).sum(axis=0)
        return self._terms.budget - float(self._price @ others)

    def _associate(self, tasks: Sequence[int], *, in_time: bool = True) -> None:
        """Assign learners to tasks; the deadlines count only if ``in_time``."""
        terms, learners = self._terms, self._present
        rows = np.array(sorted(tasks))
        shard_s, fixed_s = self._known()
        block = np.ix_(rows, learners)
        shards, deadline_s = terms.shards[rows], terms.deadline_s[rows]
        if not in_time:
            alone_s = fixed_s[block] + shard_s[block] * shards[:, None]
            deadline_s = np.maximum(deadline_s, alone_s.max(axis=1))
        problem = MultiTaskProblem(
            shard_s=shard_s[block],
            fixed_s=fixed_s[block],
            shards=shards,
            deadline_s=deadline_s,
            price=self._price[learners],
            budget=terms.budget,
            least=terms.least,
            every=len(learners) * terms.least <= shards.sum(),
        )
        try:
            solved = self._solve(problem, rows, learners)
        except InfeasibleError:
            if not problem.every:
                raise
            # Some are too dear, or too slow: it may do without them.
            solved = self._solve(replace(problem, every=False), rows, learners)
            idle = int((solved.assignment.shards.sum(axis=0) == 0).sum())
            log.warning("%d of %d learners are left out", idle, len(learners))
        self._shards[:] = 0
        self._shards[block] = solved.assignment.shards


def _in_time(problem: MultiTaskProblem) -> MultiTaskProblem:
    """The problem of one task with only the shards that fit; eased, if none does."""
    room_s = problem.deadline_s[0] - problem.fixed_s[0]
    fits = np.floor(np.maximum(room_s, 0.0) / problem.shard_s[0] * (1 - 1e-12))
    total = int(fits[fits >= problem.least].sum())
    if not 0 < total < problem.shards[0]:
        return _eased(problem)
    return replace(problem, shards=np.array([total]), every=False)


def _eased(problem: MultiTaskProblem) -> MultiTaskProblem:
    """The problem of one task with a later deadline, and only the shards it can pay."""
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
