"""Ringleader ASGD: changes of all learners, each the mean of its own, lead together.

    θ ← θ + η · 1/n · Σᵢ Gᵢ/bᵢ

Gᵢ is the sum of the bᵢ changes of learner i in a table. A round first waits until
everybody has one there, which fast learners fill with several. Then the model moves,
and moves again with the next change of each of the others, which joins the table: n
times in all. What comes meanwhile of those who have had their turn begins the table of
the next round. So no work is lost, nobody waits, no learner's data weighs more than
another's, and no change is older than 2n − 2 versions. Since the model moves n times in
a round, η is 1/n unless given: a round then goes as far as one mean change.

Paper: A. Maranjyan, P. Richtárik, "Ringleader ASGD: The First Asynchronous SGD with
Optimal Time Complexity under Data Heterogeneity", arXiv:2509.22860.

Differences from the paper:
1. A change of several local steps in place of one gradient.
2. Learners come and go: the mean is over those who are there.
"""

from collections.abc import Collection

import numpy as np

from melisma.algorithms.asynchronous.arrived import Arrived, AtOnce
from melisma.learning.parameters import Parameters, from_arrays, packed, unpacked

#: Before the name of a learner in a checkpoint: this round's table, and the next one's.
PREFIXES = ("ring:", "next ring:")
#: In place of a parameter: how many changes, and whether the learner has its turn yet.
COUNT, TURN = "count", "turn"

#: By learner: the sum of its changes, and how many there are.
Table = dict[str, tuple[Parameters, int]]


class Ringleader(AtOnce):
    """The tables of a round and of the next."""

    def __init__(self, rate: float | None = None) -> None:
        self._rate = rate
        self._table: Table = {}
        self._next: Table = {}
        self._turns: set[str] = set()  # to come; none: the table is not full yet
        self._there: set[str] = set()

    def begin(self, learners: Collection[str]) -> None:
        """Do without those who left."""
        self._there = set(learners)
        self._turns &= self._there

    def weight(self, age: int) -> float:
        """Return η, whatever the age."""
        return 1 / max(1, len(self._there)) if self._rate is None else self._rate

    def arrive(self, model: Parameters, update: Arrived) -> Parameters | None:
        """Put a change into its table; move if it is its learner's turn."""
        name = update.learner
        filling = not self._turns
        if not filling and name not in self._turns:
            _add(self._next, name, update.change())
            return None
        _add(self._table, name, update.change())
        if filling and self._there - self._table.keys():
            return None
        self._turns = (self._there if filling else self._turns) - {name}
        moved = self._moved(model)
        if not self._turns:
            self._table, self._next = self._next, {}
        return moved

    def _moved(self, model: Parameters) -> Parameters:
        """Return the model, moved along the mean of all learners' means."""
        rows = [self._table[name] for name in sorted(self._there & self._table.keys())]
        scale = self.weight(0) / len(rows)
        moved = {n: t.clone() for n, t in model.items()}
        for total, count in rows:
            for n, t in moved.items():
                t.add_(total[n], alpha=scale / count)
        return moved

    def state(self) -> Parameters:
        """Return both tables."""
        saved: Parameters = {}
        for prefix, table in zip(PREFIXES, (self._table, self._next), strict=True):
            rows = {}
            for name, (total, count) in table.items():
                facts = {COUNT: np.array(count), TURN: np.array(name in self._turns)}
                rows[name] = from_arrays(facts) | total
            saved |= packed(prefix, rows)
        return saved

    def restore(self, saved: Parameters) -> None:
        """Restore them."""
        tables: list[Table] = []
        self._turns = set()
        for prefix in PREFIXES:
            tables.append({})
            for name, own in unpacked(prefix, saved).items():
                if own.pop(TURN):
                    self._turns.add(name)
                count = int(own.pop(COUNT))
                tables[-1][name] = ({n: t.clone() for n, t in own.items()}, count)
        self._table, self._next = tables


def _add(table: Table, name: str, change: Parameters) -> None:
    total, count = table.get(name, ({}, 0))
    table[name] = (
        {n: t + total[n] if count else t for n, t in change.items()},
        count + 1,
    )
