"""What the times of past iterations say of the next: speeds, and who will straggle.

A worker is *fine* or *straggling*: slower than usual by a factor SLOW. Each is a chain
of two states, whose transitions are counted on top of a few that are made up (PRIOR).
Its usual speed is the exponential average over its fine iterations. How many will
straggle, P(N ≤ s), follows by convolving the workers' probabilities.

An iteration ends when the gradient is known, and whoever has not answered by then is
known only to be slower than that. Had it been fine, it would have answered with a
probability that follows from the spread of speeds: Bayes' rule says how likely it was
straggling, and the chain counts it as that much of each state. To leave such workers
out would be to never see a straggler, since coding is there not to wait for them.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from melisma.coding.loads import checked
from melisma.errors import ConfigError
from melisma.maths.arrays import Floats

SLOW = 1.5  #: a straggler is slower than usual by this factor or more
SLOWEST = 0.1  #: part of its usual speed that a straggler is credited with at least
RECENT = 0.2  #: weight of the newest speed in the average
#: Transitions counted beforehand: from fine and straggling (rows) to either.
PRIOR = np.array([[1.8, 0.2], [1.0, 1.0]])
SPREAD, SPREAD_SEEN = 0.05, 10.0  #: of log speed, before any is seen; counts as so many


class History:
    """Speeds and states of workers, from one iteration to the next.

    Speed is in parts of all the data per second. ``speeds``, if given, are the usual
    ones until others are seen.
    """

    def __init__(self, workers: int, speeds: ArrayLike | None = None) -> None:
        v = checked(workers, 0, speeds)
        self.usual: Floats = np.full(workers, np.nan) if speeds is None else v.copy()
        self._counts = np.tile(PRIOR, (workers, 1, 1))
        self._last = np.tile([1.0, 0.0], (workers, 1))  # P(was fine, straggling) last
        self._squares, self._seen = SPREAD_SEEN * SPREAD**2, SPREAD_SEEN
        self._below = np.full(workers, np.inf)  # speed of who has never answered
        self.slowdowns: list[float] = []  #: of stragglers; inf: no answer came

    def see(self, share: Floats, answered_s: Floats, elapsed_s: ArrayLike) -> None:
        """Take in an iteration that ended after ``elapsed_s``.

        ``share`` is the part of all data that each worker was given, ``answered_s``
        when it answered; what lies behind the end was not seen. Both times are from
        when it began, so that the end may be another for each. Of a worker without a
        share nothing is learned, but it may have changed its state.
        """
        ended_s = np.broadcast_to(elapsed_s, share.shape).tolist()
        for w, seconds in enumerate(answered_s.tolist()):
            if not share[w] > 0:
                self._last[w] = self._last[w] @ self._chances(w)
            elif seconds <= ended_s[w]:
                self._answered(w, float(share[w]) / seconds)
            elif not np.isnan(self.usual[w]):
                self._silent(w, ended_s[w] * float(self.usual[w] / share[w]))
            else:
                self._below[w] = min(self._below[w], share[w] / ended_s[w])

    def _answered(self, w: int, speed: float) -> None:
        usual = float(self.usual[w])
        if speed < usual / SLOW:
            self.slowdowns.append(usual / speed)
            self._enter(w, fine=0.0, late=1.0)
            return
        if not speed <= usual * SLOW:  # the first, or those before were a straggler's
            self.usual[w] = speed
        else:
            self._squares += math.log(speed / usual) ** 2
            self._seen += 1.0
            self.usual[w] += RECENT * (speed - usual)
        self._enter(w, fine=1.0, late=0.0)

    def _silent(self, w: int, times: float) -> None:
        """Count an iteration without an answer, ``times`` as long as is usual."""
        yet = 0.5 * math.erfc(math.log(times) / (self.spread * math.sqrt(2.0)))
        self._enter(w, fine=yet if times < SLOW else 0.0, late=1.0)
        if self._last[w, 1] > 0.5:
            self.slowdowns.append(math.inf)

    def _enter(self, w: int, *, fine: float, late: float) -> None:
        """Count a transition, given how likely what was seen is in either state."""
        joint = self._last[w][:, None] * self._chances(w) * np.array([fine, late])
        joint /= joint.sum()
        self._counts[w] += joint
        self._last[w] = joint.sum(axis=0)

    def _chances(self, w: int) -> Floats:
        """Probability of each transition."""
        return np.asarray(self._counts[w] / self._counts[w].sum(axis=1, keepdims=True))

    @property
    def straggling(self) -> Floats:
        """P(straggling in the next iteration) of each worker."""
        chances = self._counts[:, :, 1] / self._counts.sum(axis=2)
        return np.asarray((self._last * chances).sum(axis=1))

    @property
    def spread(self) -> float:
        """Standard deviation of the logarithm of a fine worker's speed."""
        return float(np.sqrt(self._squares / self._seen))

    @property
    def _fine(self) -> Floats:
        """Usual speed of each worker; if it never answered, the least it was below.

        ConfigError where a worker has never had work and was not described.
        """
        fine = np.where(np.isnan(self.usual), self._below, self.usual)
        if np.isinf(fine).any():
            unseen = np.flatnonzero(np.isinf(fine)).tolist()
            raise ConfigError(f"no speeds of workers {unseen}: give them, or wait")
        return fine

    @property
    def speeds(self) -> Floats:
        """Speed of each worker in its likelier state, to go by in the next iteration.

        Not the mean of both, which is too much for a straggler, too little for others.
        Stragglers get some work, or nobody would see them recover. ConfigError where a
        worker has never had work and was not described.
        """
        slow = max(float(np.mean(1.0 / np.array(self.slowdowns or [1.0]))), SLOWEST)
        return np.where(self.straggling > 0.5, slow * self._fine, self._fine)

    def stragglers(self, sure: float = 0.95) -> int:
        """The least s with P(at most s straggle in the next iteration) ≥ ``sure``."""
        return most_stragglers(self.straggling, sure)

    def scenarios(self, count: int, rng: np.random.Generator) -> Floats:
        """Seconds of each worker for all of the data in ``count`` iterations to come.

        Stragglers are slow by one of the factors seen, or dead if none was.
        """
        shape = (count, self.usual.size)
        seconds = np.exp(self.spread * rng.standard_normal(shape)) / self._fine
        late = rng.random(shape) < self.straggling
        factors = rng.choice(np.array(self.slowdowns or [math.inf]), shape)
        return np.where(late, seconds * factors, seconds)


def most_stragglers(probability: Floats, sure: float) -> int:
    """The least s with P(N ≤ s) ≥ ``sure``, N of independent workers straggling.

    >>> most_stragglers(np.array([0.5, 0.5]), 0.75)  # 1/4, 3/4, 1
    1
    """
    at = np.ones(1)
    for p in probability.tolist():
        at = np.convolve(at, [1.0 - p, p])
    # What rounding takes from a sum of probabilities does not count.
    return int(np.argmax(np.cumsum(at) >= sure - 1e-12))
