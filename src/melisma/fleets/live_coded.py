"""Workers that dialled in: real gradients over real connections."""

import asyncio
import time
from collections.abc import Sequence

import numpy as np

from melisma.coding import combine
from melisma.errors import RpcError
from melisma.fleets.live import LiveLearners, ServedTask, is_wrong
from melisma.fleets.messages import Gradient, GradientRequest, Vector
from melisma.fleets.protocols import Lost
from melisma.fleets.roster import Roster
from melisma.fleets.simulated_coded import NOBODY, Straggling
from melisma.fleets.sums import Answer, Work
from melisma.learning.parameters import Parameters
from melisma.maths.arrays import Floats
from melisma.system.streams import Stream


class LiveWorkers(LiveLearners):
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
        """Begin a cycle, in which some may be told to be slow."""
        size = sum(tensor.numel() for tensor in parameters.values())
        late = self._rng.permutation(len(self.learners))[: self._straggling.number]
        self._slower = dict.fromkeys(late.tolist(), self._straggling.slower)
        return LiveSession(self, self.begin(parameters), deadline_s, size)

    async def gradient(self, work: Work, deadline_s: float, began: float) -> Gradient:
        """Have one worker do its part; RpcError if it does not."""
        served = self._served
        request = GradientRequest(
            task=served.task,
            cycle=served.cycle,
            parts=[served.shelf.keys(rows) for rows in work.parts],
            coefficients=work.coefficients.tolist(),
            wide=not work.plain,
            slower=self._slower.get(work.worker, 1.0),
        )
        peer = self._roster.server.peers[self.learners[work.worker]]
        left_s = max(0.001, deadline_s - (time.monotonic() - began))
        answer: Gradient = await peer.gradient.within(left_s)(request)
        return answer


class LiveSession:
    """One cycle, on the real clock."""

    def __init__(
        self, fleet: LiveWorkers, began: float, deadline_s: float, size: int
    ) -> None:
        self.lost: list[Lost] = []
        self._fleet, self._began, self._deadline_s = fleet, began, deadline_s
        self._size = size
        self._waiting: set[asyncio.Task[Answer | Lost]] = set()
        self._done: list[asyncio.Task[Answer | Lost]] = []
        self._vectors: dict[Answer, Vector] = {}

    def give(self, works: Sequence[Work]) -> None:
        """Have work done, from now on."""
        for work in works:
            self._waiting.add(asyncio.create_task(self._ask(work)))

    async def next(self, until_s: float) -> Answer | None:
        """Return the next answer; None if there is none until then, or will be."""
        while True:
            while self._done:
                came = self._done.pop(0).result()
                if isinstance(came, Answer):
                    return came
                self.lost.append(came)
            left_s = self._began + until_s - time.monotonic()
            if not self._waiting or left_s <= 0:
                return None
            done, self._waiting = await asyncio.wait(
                self._waiting, timeout=left_s, return_when="FIRST_COMPLETED"
            )
            self._done += done
            if not done:
                return None

    async def _ask(self, work: Work) -> Answer | Lost:
        began = time.monotonic() - self._began
        try:
            told = await self._fleet.gradient(work, self._deadline_s, self._began)
        except RpcError as error:
            after_s = time.monotonic() - self._began
            wrong = is_wrong(error)
            why = f"{'failed' if wrong else 'lost'}: {error}"
            return Lost(learner=work.worker, reason=why, after_s=after_s, offence=wrong)
        after_s = time.monotonic() - self._began
        if reason := self._wrong_with(told, work):
            return Lost(
                learner=work.worker, reason=reason, after_s=after_s, offence=True
            )
        answer = Answer(
            work=work,
            downloaded_s=_between(began, began + told.downloaded_s, after_s),
            trained_s=_between(began, began + told.trained_s, after_s),
            after_s=after_s,
        )
        self._vectors[answer] = told.vector
        return answer

    def _wrong_with(self, told: object, work: Work) -> str:
        """Return why an answer cannot be what was asked for, or nothing."""
        if not isinstance(told, Gradient):
            return "not a gradient"
        if told.cycle != self._fleet.cycle:
            return f"a gradient of cycle {told.cycle}"
        kind = np.float32 if work.plain else np.float64
        if told.vector.shape != (self._size,) or told.vector.dtype != kind:
            return "a gradient of another model"
        if not np.isfinite(told.vector).all():
            return "a gradient that is not finite"
        return ""

    async def total(self, answers: Sequence[Answer], weights: Floats) -> Floats:
        """Σ weight · answer."""
        rows = [np.asarray(self._vectors[answer], np.float64) for answer in answers]
        return np.asarray(combine(weights, rows))

    def end(self) -> None:
        """Need no more answers: whoever is still at it is told to stop."""
        for task in self._waiting:
            task.cancel()


def _between(low: float, told: float, high: float) -> float:
    """When something happened: as told, if that can be."""
    return told if low <= told <= high else high
