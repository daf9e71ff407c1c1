"""Live workers of coded training: real gradients over real connections."""

import asyncio
import time
from collections.abc import Sequence

import numpy as np

from melisma.coding import combine
from melisma.errors import RpcError
from melisma.fleets.judge import (
    LEAST_BATCH_S,
    refused,
    time_within,
    wrong_gradient,
)
from melisma.fleets.live import LiveCrew
from melisma.fleets.messages import Budget, Gradient, GradientRequest, Vector
from melisma.fleets.protocols import Lost
from melisma.fleets.roster import Roster
from melisma.fleets.served import ServedTask
from melisma.fleets.simulated_coded import NOBODY, Straggling
from melisma.fleets.sums import Answer, Energy, Work
from melisma.learning.parameters import Parameters
from melisma.maths.arrays import Floats
from melisma.system.streams import Stream


class LiveWorkers(LiveCrew):
    """One task's workers, of a roster."""

    def __init__(
        self,
        roster: Roster,
        served: ServedTask,
        *,
        seed: int,
        straggling: Straggling = NOBODY,
        began_s: float = 0.0,
    ) -> None:
        super().__init__(roster, served, began_s=began_s)
        self._straggling, self._slower = straggling, dict[int, float]()
        self._rng = np.random.default_rng([seed, Stream.STRAGGLERS])

    def session(self, parameters: Parameters, deadline_s: float) -> "LiveSession":
        """Begin a cycle, in which some workers may be told to be slow."""
        size = sum(tensor.numel() for tensor in parameters.values())
        slow = self._rng.permutation(len(self.learners))[: self._straggling.number]
        self._slower = dict.fromkeys(slow.tolist(), self._straggling.slower)
        began = self._begin(parameters)
        return LiveSession(self, self._served.cycle, began, deadline_s, size)

    async def gradient(self, work: Work, left_s: float) -> object:
        """Ask one worker for its part; RpcError without an answer."""
        served, store = self._served, self._served.store
        # Gigabytes take seconds to hash, once: the loop answers pings meanwhile.
        parts = await asyncio.to_thread(lambda: [store.keys(r) for r in work.parts])
        request = GradientRequest(
            task=served.task,
            cycle=served.cycle,
            parts=parts,
            coefficients=work.coefficients.tolist(),
            wide=not work.plain,
            slower=self._slower.get(work.worker, 1.0),
            budget=self.budget(work),
        )
        name = self.learners[work.worker]
        answer: object = await self._call(name, "gradient", request, within_s=left_s)
        return answer

    def budget(self, work: Work) -> Budget | None:
        """Return what a worker's battery is to know: these have none."""
        return None

    def wrong(self, work: Work, gradient: Gradient) -> str:
        """Judge what an answer has beside the gradient: nothing."""
        return ""

    def over(self, work: Work, cycle: int) -> None:
        """Nothing is held for work that is done, or will not be."""

    def energy(self) -> Sequence[Energy]:
        """Return nothing: what these workers spend is not known."""
        return ()


class LiveSession:
    """One cycle, on the real clock."""

    def __init__(
        self,
        workers: LiveWorkers,
        cycle: int,
        began: float,
        deadline_s: float,
        size: int,
    ) -> None:
        self.lost: list[Lost] = []
        self._workers, self._cycle, self._size = workers, cycle, size
        self._began, self._deadline_s = began, deadline_s
        self._waiting: set[asyncio.Task[Answer | Lost]] = set()
        self._done: list[asyncio.Task[Answer | Lost]] = []
        self._vectors: dict[Answer, Vector] = {}

    def give(self, works: Sequence[Work]) -> None:
        """Start work."""
        for work in works:
            self._waiting.add(asyncio.create_task(self._ask(work)))

    async def next(self, until_s: float) -> Answer | None:
        """Return the next answer; None if there is none until then, or will be."""
        while True:
            while self._done:
                outcome = self._done.pop(0).result()
                if isinstance(outcome, Answer):
                    return outcome
                self.lost.append(outcome)
            left_s = until_s - self._now_s()
            if not self._waiting or left_s <= 0:
                return None
            done, self._waiting = await asyncio.wait(
                self._waiting, timeout=left_s, return_when="FIRST_COMPLETED"
            )
            self._done += done
            if not done:
                return None

    async def _ask(self, work: Work) -> Answer | Lost:
        asked_s = self._now_s()
        left_s = max(0.001, self._deadline_s - asked_s)
        try:
            gradient = await self._workers.gradient(work, left_s)
        except RpcError as error:
            return self._workers.failed(work.worker, error, self._now_s())
        finally:
            self._workers.over(work, self._cycle)
        after_s, wide = self._now_s(), not work.plain
        weight = sum(
            abs(coefficient) * len(rows)
            for coefficient, rows in zip(
                work.coefficients.tolist(), work.parts, strict=True
            )
        )
        reason = wrong_gradient(
            gradient, self._cycle, self._size, wide=wide, weight=weight
        )
        if not reason and isinstance(gradient, Gradient):
            reason = self._workers.wrong(work, gradient)
        if reason or not isinstance(gradient, Gradient):
            return refused(work.worker, reason, after_s)
        # Loads follow from these times: nobody sums gradients faster than any device.
        least_s = LEAST_BATCH_S * len(work.parts)
        latest_s = max(asked_s, after_s - least_s)
        downloaded_s = time_within(asked_s, asked_s + gradient.downloaded_s, latest_s)
        answer = Answer(
            work=work,
            downloaded_s=downloaded_s,
            trained_s=time_within(
                downloaded_s + least_s, asked_s + gradient.trained_s, after_s
            ),
            after_s=after_s,
        )
        self._vectors[answer] = gradient.vector
        return answer

    async def total(self, answers: Sequence[Answer], weights: Floats) -> Floats:
        """Return Σ weight · answer."""
        rows = [np.asarray(self._vectors[answer], np.float64) for answer in answers]
        return np.asarray(combine(weights, rows))

    def energy(self) -> Sequence[Energy]:
        """Return the account of each worker that has a battery."""
        return self._workers.energy()

    def end(self) -> None:
        """Stop the workers that have not answered."""
        for task in self._waiting:
            task.cancel()

    def _now_s(self) -> float:
        return time.monotonic() - self._began
