"""Who has come before a cycle begins, and what each of them does meanwhile.

The roster notes it, and whoever shows a run reads it: the command line, the dashboard.
"""

import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

#: Longest that a learner's word counts on how long its benchmark takes yet.
LONGEST_S = 86_400.0
#: Learners that are named in a line; of more there is the number.
NAMED = 4


class Stage(StrEnum):
    """What a learner does before it takes part."""

    PREPARING = "prepares"  #: builds the model, loads its data
    QUEUED = "waits to benchmark itself"
    BENCHMARKING = "benchmarks itself"
    READY = "is ready"
    REFUSED = "does not take part"


#: What a line tells, in this order: of a benchmark also how long it takes yet.
_TOLD = (Stage.REFUSED, Stage.PREPARING, Stage.QUEUED, Stage.BENCHMARKING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """What a learner does, and since when."""

    stage: Stage
    since_s: float  #: on the monotonic clock
    task: str = ""  #: that it benchmarks itself for
    ends_s: float | None = None  #: when its benchmark is over, by its own word
    why: str = ""  #: it does not take part


class Gathering:
    """Learners that come; ``notice`` is called with each that does something new."""

    def __init__(
        self,
        notice: Callable[["Gathering", str], None] = lambda gathering, name: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.least = 1  #: that the run waits for
        self.waiting = False  #: for learners: no cycle is under way
        self._notice, self._clock = notice, clock
        self._doing: dict[str, Doing] = {}
        self.begun = False  #: there was a cycle
        self.lost: set[str] = set()  #: who will not come, or come back

    @property
    def learners(self) -> dict[str, Doing]:
        """What each learner does, in the order of coming."""
        return dict(self._doing)

    @property
    def missing(self) -> int:
        """How many learners have yet to come before the run can begin."""
        return max(0, self.least - len(self.lost) - len(self._taking_part))

    @property
    def _taking_part(self) -> dict[str, Doing]:
        everybody = self.learners.items()
        return {name: own for name, own in everybody if own.stage != Stage.REFUSED}

    # For the roster

    def comes(self, name: str) -> None:
        """Note that a learner prepares, unless it does so again and was refused."""
        doing = self._doing.get(name)
        if doing is None or doing.stage != Stage.REFUSED:
            self.note(name, Stage.PREPARING)

    def note(self, name: str, stage: Stage, *, task: str = "", why: str = "") -> None:
        """Note what a learner does from now on; who is lost does nothing more."""
        if name not in self.lost:
            self._do(name, stage, task, why)

    def lose(self, name: str, why: str) -> None:
        """Note that a learner will not come, or come back."""
        self.lost.add(name)
        self._do(name, Stage.REFUSED, "", why)

    def _do(self, name: str, stage: Stage, task: str, why: str) -> None:
        self._doing[name] = Doing(
            stage=stage, since_s=self._clock(), task=task, why=why
        )
        self._notice(self, name)

    def keep(self, names: Collection[str]) -> None:
        """Forget all but these learners, and those that are lost: they are gone."""
        for name in self._doing.keys() - set(names) - self.lost:
            del self._doing[name]

    def wait(self, least: int) -> None:
        """A run waits for so many learners."""
        self.least, self.waiting = least, True

    def begin(self) -> None:
        """A cycle begins."""
        self.waiting, self.begun = False, True

    # For learners

    def takes(self, name: str, left_s: float) -> None:
        """Believe a learner that its benchmark takes so long yet, within reason."""
        doing = self._doing.get(name)
        if doing and doing.stage == Stage.BENCHMARKING and math.isfinite(left_s):
            left_s = min(max(0.0, left_s), LONGEST_S)
            self._doing[name] = replace(doing, ends_s=self._clock() + left_s)

    # For who shows it

    def line(self) -> str:
        """Say in a line who is there, who does what, and who is missing."""
        everybody, there = self.learners.items(), len(self._taking_part)
        of = max(self.least, there)
        words = [f"{there} of {of} learner{'s' * (of > 1)}"]
        for stage in _TOLD:
            if names := [name for name, doing in everybody if doing.stage == stage]:
                words.append(f"{_named(names)} {_many(stage, len(names))}")
        if left_s := self.left_s():
            words[-1] += f", about {left_s:.0f} s more"
        if self.missing:
            number = "one" if self.missing == 1 else str(self.missing)
            words.append(f"waiting for {number} more")
        return f"{words[0]}: {'; '.join(words[1:])}" if words[1:] else words[0]

    def left_s(self) -> float | None:
        """Seconds until the last benchmark that is under way ends, where known."""
        ends_s = [doing.ends_s for doing in self.learners.values()]
        known = [end_s for end_s in ends_s if end_s is not None]
        return max(0.0, max(known) - self._clock()) if known else None

    def status(self) -> dict[str, Any]:
        """Return all this as JSON has it."""
        now_s = self._clock()
        return {
            "needed": self.least,
            "learners": {
                name: {
                    "stage": doing.stage.name.lower(),
                    "for_s": round(now_s - doing.since_s, 1),
                    "left_s": None
                    if doing.ends_s is None
                    else round(max(0.0, doing.ends_s - now_s), 1),
                    "task": doing.task,
                    "why": doing.why,
                }
                for name, doing in self.learners.items()
            },
        }


def _named(names: list[str]) -> str:
    """Name a few learners, or say how many they are."""
    return ", ".join(names) if len(names) <= NAMED else f"{len(names)}"


def _many(stage: Stage, learners: int) -> str:
    """Say what so many learners do."""
    if learners == 1:
        return stage.value
    return {
        Stage.REFUSED: "do not take part",
        Stage.PREPARING: "prepare",
        Stage.QUEUED: "wait to benchmark themselves",
        Stage.BENCHMARKING: "benchmark themselves",
    }[stage]
