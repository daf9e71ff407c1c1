"""The answers of one coded cycle, until they suffice to decode the gradient."""

from collections.abc import Sequence

import numpy as np

from melisma.coding import Arrivals, Code, TwoStage
from melisma.errors import InfeasibleError
from melisma.fleets.sums import Answer, Session, Work
from melisma.maths.arrays import Floats, Ints

#: If no worker is done when stage two should begin, stage two begins at this many times
#: the time of the first answer: by then others are likely to be done too, and can help.
AS_FAST = 1.25


class Decoding:
    """Hands out the work of a cycle, and collects the answers."""

    def __init__(
        self, code: Code, parts: Sequence[Ints], session: Session, deadline_s: float
    ) -> None:
        self.code, self.session = code, session
        self.first: dict[int, Answer] = {}  #: answers by worker, until stage two begins
        self.second: dict[int, Answer] = {}  #: from then on
        self.own: dict[int, Answer] = {}  #: to what each was given first, late or not
        self.error = 0.0  #: ‖aB − 1‖ / √K of what was decoded
        self.ended_s = 0.0
        self._parts, self._deadline_s = parts, deadline_s
        self._used: list[tuple[Answer, float]] = []

    async def finish(self, t_comp_s: float | None) -> None:
        """Wait for the earliest answers that decode, at most until the deadline."""
        code, busy = self.code, np.flatnonzero(self.code.loads).tolist()
        self.session.give([self._work(w, code.work(w), code.row(w)) for w in busy])
        if isinstance(code, TwoStage):
            assert t_comp_s is not None
            await self._in_stages(code, min(t_comp_s, self._deadline_s))
            return
        weights = await self._enough(code, self.first)
        self._use(self.first, weights)

    async def _in_stages(self, code: TwoStage, t_comp_s: float) -> None:
        busy = int((code.loads > 0).sum())
        while len(self.first) < busy:
            # Stage two needs a helper: an idle worker, or one that has answered.
            helped = bool(self.first) or busy < code.workers
            until_s = t_comp_s if helped else self._deadline_s
            if (answer := await self.session.next(until_s)) is None:
                break
            if not helped and answer.after_s > t_comp_s:  # too early for all of them
                t_comp_s = min(AS_FAST * answer.after_s, self._deadline_s)
            self._accept(self.first, answer)
        self._use(self.first, np.ones(code.workers))
        if len(self.first) == busy:
            return
        rest = code.rest(sorted(self.first))
        helpers = [w for w in rest.helpers.tolist() if rest.loads[w]]
        self.session.give([self._work(w, rest.work(w), rest.row(w)) for w in helpers])
        weights = await self._enough(rest.code, self.second)
        self._use(self.second, weights)
        self.error *= (rest.partitions / code.partitions) ** 0.5

    async def _enough(self, code: Code, answers: dict[int, Answer]) -> Floats:
        arrivals = Arrivals(code)
        while not arrivals.decodable:
            if (answer := await self.session.next(self._deadline_s)) is None:
                weights, self.error = code.best_effort(arrivals.alive)
                self.ended_s = self._deadline_s
                return weights
            self._accept(answers, answer)
            arrivals.add(answer.work.worker)
        return arrivals.weights

    def _accept(self, answers: dict[int, Answer], answer: Answer) -> None:
        answers[answer.work.worker] = answer
        self.own.setdefault(answer.work.worker, answer)
        self.ended_s = answer.after_s

    def _use(self, answers: dict[int, Answer], weights: Floats) -> None:
        for w, answer in answers.items():
            if weights[w]:
                self._used.append((answer, float(weights[w])))

    def _work(self, w: int, partitions: Ints, coefficients: Floats) -> Work:
        return Work(
            worker=w,
            parts=[self._parts[k] for k in partitions.tolist()],
            coefficients=coefficients,
        )

    @property
    def used(self) -> dict[int, list[Answer]]:
        """Answers that the gradient is made of, by worker, in order of arrival."""
        used: dict[int, list[Answer]] = {}
        for answer, _ in self._used:
            used.setdefault(answer.work.worker, []).append(answer)
        return used

    def nobody(self) -> InfeasibleError:
        """Return the error to raise when no worker answered."""
        return InfeasibleError(
            f"none of {self.code.workers} workers answered by the deadline of "
            f"{self._deadline_s:.6g} s: extend it, or use fewer samples"
        )

    async def gradient(self) -> Floats:
        """Return the decoded sum of all samples' gradients."""
        answers, weights = zip(*self._used, strict=True)
        return await self.session.total(answers, np.array(weights))
