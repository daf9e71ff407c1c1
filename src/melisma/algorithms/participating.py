"""Who takes part in the cycles of a run, by a rule of `schemes.participation`."""

import numpy as np

from melisma.algorithms.log import CycleLog
from melisma.fleets.protocols import Trains
from melisma.maths.arrays import Bools
from melisma.schemes import DECENTRALISED
from melisma.schemes.participation import Candidates, TakesPart, asked, choose, enough
from melisma.system.streams import Stream


class Participation:
    """Chooses, before each cycle, by what the records say of learners.

    Besides these, a draw depends on the seed and the cycle alone, so that a resumed run
    goes on with those it would have had.
    """

    def __init__(
        self, rule: TakesPart, learners: int, *, over: float, seed: int
    ) -> None:
        self._rule, self._seed = rule, seed
        self._asked = asked(rule, learners, over)
        self.enough = enough(rule, learners)  #: updates that end a cycle, if any do

    async def who(self, log: CycleLog, crew: Trains) -> Bools:
        """Return who is asked in this cycle."""
        seconds = np.ones(len(crew.learners))
        if log.task.scheme not in DECENTRALISED:  # where nobody says how fast it is
            like = np.full(len(seconds), _mean(log, crew))
            seconds = (await crew.law()).seconds(like, np.ones_like(like))
        return choose(
            self._rule,
            Candidates(
                cycle=log.cycle,
                wanted=self._asked,
                names=crew.learners,
                seconds=seconds,
                deadline_s=log.task.deadline_s,
                seen=log.state.seen,
                rng=np.random.default_rng(
                    [self._seed, Stream.PARTICIPATION, log.cycle]
                ),
            ),
        )


def _mean(log: CycleLog, crew: Trains) -> int:
    """Samples of a learner, on average."""
    samples = log.task.cycle_samples(crew.own_samples)
    return max(1, samples // max(1, len(crew.learners)))
