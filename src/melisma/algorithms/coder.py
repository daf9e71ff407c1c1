"""Chooses the code of each cycle, by the speeds and stragglers of past cycles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from melisma.algorithms.task import Plan, ScheduledTask
from melisma.coding import CODES, Code, History, foreseen
from melisma.coding.two_stage import First, Helpers
from melisma.errors import InfeasibleError
from melisma.fleets.sums import Answer
from melisma.maths.arrays import Floats, Ints
from melisma.system.law import DelayLaw
from melisma.system.problem import Allocation
from melisma.system.streams import Stream

ANEW = 10  #: cycles until it is chosen anew when stage two begins
#: Relative change of a speed from which loads are computed anew.
CHANGED = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Coding:
    """How gradients are coded."""

    code: str = "two-stage"  #: a name in CODES
    stragglers: int | None = None  #: that may be missing; None: as history predicts
    helpers: Helpers = "finished"
    first: First = "chosen"  #: who starts, where helpers wait


class Coder:
    """Makes codes for the workers present, by the history of their answers."""

    def __init__(self, coding: Coding, task: ScheduledTask) -> None:
        self._coding, self._task = coding, task
        self._shards = task.cycle_samples(None) // task.shard
        self._names: list[str] = []
        self._rng = np.random.default_rng([task.seed, Stream.CODES])
        self._since = 0

    def code(
        self, names: Sequence[str], law: DelayLaw, cycle: int
    ) -> tuple[Code, float | None]:
        """Return the code of a cycle, the next, and when its second stage begins."""
        s = self._coding.stragglers
        if s is not None and len(names) <= s:
            raise InfeasibleError(
                f"{len(names)} workers are there, and {s} stragglers are to be "
                "tolerated: wait for more workers, or lower stragglers"
            )
        if list(names) != self._names:
            self._names = list(names)
            samples = self._task.cycle_samples(None)
            self._history = History(len(names), 1.0 / (samples * law.step_s))
            self._made: tuple[Code, float | None] | None = None
        self._upload_s = law.fixed_s / 2
        speeds, s = self._history.speeds, self._tolerated(len(names))
        if self._made is None or self._is_old(speeds, s):
            self._speeds, self._s, self._since = speeds, s, 0
            self._made = self._make(len(names), cycle)
        self._since += 1
        return self._made

    def _tolerated(self, workers: int) -> int:
        s = self._coding.stragglers
        return min(self._history.stragglers() if s is None else s, workers - 1)

    def _is_old(self, speeds: Floats, s: int) -> bool:
        moved = np.abs(speeds / self._speeds - 1.0).max() > CHANGED
        if self._coding.code == "two-stage":
            since = ANEW if self._coding.first == "chosen" else 1
            return bool(moved) or s != self._s or self._since >= since
        return s != self._s or (bool(moved) and self._coding.code == "hetero")

    def _first(self, workers: int, cycle: int) -> list[int] | None:
        """Draw who starts, as the paper has it; None where that is chosen.

        The draw depends on seed and cycle alone: a run that is resumed draws the same.
        """
        coding = self._coding
        if coding.first == "chosen":
            return None
        spare = max(coding.stragglers or 0, 1)  # fewer helpers would not tolerate them
        first = (
            max(min(2 * workers // 3, workers - max(self._s, 1)), 1)
            if coding.first == "random"
            else coding.first
        )
        if first > workers - spare:
            raise InfeasibleError(
                f"{workers} workers are there, {first} of them are to start, and "
                f"{spare} to help: wait for more workers, or lower first"
            )
        rng = np.random.default_rng([self._task.seed, Stream.RING, cycle])
        return sorted(rng.permutation(workers)[:first].tolist())

    def _make(self, workers: int, cycle: int) -> tuple[Code, float | None]:
        name, seed = self._coding.code, self._task.seed
        options: dict[str, Any] = {"workers": workers, "stragglers": self._s}
        if name != "cyclic":
            options["speeds"] = self._speeds
        code = CODES[name](seed=seed, **options)
        partitions = None
        if code.partitions > self._shards:
            partitions = self._shards
            code = self._coarser(name, options)
        if name == "two-stage":
            plan = foreseen(
                self._history,
                self._rng,
                stragglers=self._coding.stragglers,
                seed=seed,
                helpers=self._coding.helpers,
                first=self._first(workers, cycle),
                partitions=partitions,
                upload_s=self._upload_s,
            )
            # The plan's clock begins when workers have the model.
            return plan.scheme, plan.t_comp_s + float(self._upload_s.mean())
        return code, None

    def _coarser(self, name: str, options: dict[str, Any]) -> Code:
        """The code with one shard a partition; InfeasibleError if there is none."""
        if name == "cyclic":
            raise InfeasibleError(
                f"{options['workers']} workers and {self._shards} shards in a cycle: a "
                "cyclic code needs a shard for each; use smaller shards or more samples"
            )
        return CODES[name](seed=self._task.seed, partitions=self._shards, **options)

    def plan(self, code: Code, parts: Sequence[Ints]) -> Plan:
        """Each worker's shards and predicted time, as they are recorded."""
        sizes = np.array([len(rows) // self._task.shard for rows in parts])
        shards = np.array([sizes[code.work(w)].sum() for w in range(code.workers)])
        busy_s = code.loads / code.partitions / self._speeds
        return Plan(
            Allocation(samples=shards, steps=(shards > 0).astype(np.int64)),
            predicted_s=np.where(shards > 0, busy_s + 2 * self._upload_s, 0.0),
        )

    def see(self, code: Code, own: Mapping[int, Answer], ended_s: float) -> None:
        """Update the history by each worker's first answer of a cycle, if any."""
        answered_s = np.full(code.workers, np.inf)
        for w, answer in own.items():
            answered_s[w] = max(answer.trained_s - answer.downloaded_s, 1e-9)
        elapsed_s = ended_s - 2 * float(self._upload_s.min())
        self._history.see(
            code.loads / code.partitions, answered_s, max(elapsed_s, 1e-9)
        )
