"""How far learners are believed that say how much they can do.

What a learner is given, and so its weight in the model, follows from its own claims: a
delay law, or a bid. The orchestrator measures nothing but when updates arrive, and that
is enough to hold claims against:

    newcomer     its claim is at most `NEWCOMER` times that of the median learner
    too slow     its law is scaled by the time that its work took over the time that the
                 law says of that work, if that is far more twice in a row
    halted       it bids for no more than it did, and `GROWTH` times that if it was done
    not there    from the second time in a row on, half as much each time

Who is given nothing shows nothing, so what is held against it fades.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from melisma.maths.arrays import Floats, Ints
from melisma.system.law import DelayLaw
from melisma.system.options import AS_NOW, Options

#: A laptop and a Raspberry Pi of the demo are thirteen apart.
NEWCOMER = 16
#: How much more than it did a learner may bid for in the next cycle.
GROWTH = 4
#: Times as long as claimed, and share of the deadline, from which work took too long.
FAR, LONG = 2.0, 0.5
#: Times in a row that count: from then on a learner has 2⁻⁸ of what it claims.
MOST_MISSED = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a learner did in its last cycle, and how long the orchestrator waited."""

    given: int  #: samples
    samples: int  #: of them, trained on
    passes: int  #: samples of all batches, each as often as it was trained on
    took_s: float
    option: int = 0  #: by which it took part


class Claims:
    """What the learners of one task did, held against what they claim.

    They claim a law of the first of the ``options``, whichever they took.
    """

    def __init__(self, options: Options = AS_NOW) -> None:
        self._options = options
        self._done: dict[str, Done] = {}  # last
        self._before: dict[str, Done] = {}  # the one before it
        self._missed: dict[str, int] = {}
        self._idle: set[str] = set()  # since the last claim

    def see(self, name: str, done: Done) -> None:
        """Take in work that arrived."""
        self._idle.discard(name)
        self._missed.pop(name, None)
        if name in self._done:
            self._before[name] = self._done[name]
        self._done[name] = done

    def miss(self, name: str) -> None:
        """Take in work that did not arrive by the deadline."""
        self._idle.discard(name)
        self._missed[name] = min(MOST_MISSED, self._missed.get(name, 0) + 1)

    def law(
        self, names: Sequence[str], claimed: DelayLaw, deadline_s: float
    ) -> DelayLaw:
        """Return a claimed law as far as it is believed."""
        self._fade(names)
        step_s = claimed.step_s.copy()
        least_s = float(np.median(step_s)) / NEWCOMER if len(names) else 0.0
        new = np.array([name not in self._done for name in names], dtype=bool)
        step_s[new] = np.maximum(step_s[new], least_s)
        slower = np.ones(len(names))
        for k, name in enumerate(names):
            twice = [
                self._slower(done.get(name), claimed, k, deadline_s)
                for done in (self._done, self._before)
            ]
            slower[k] = min(twice) * self._halved(name)
        return DelayLaw(
            step_s=step_s * slower,
            sample_s=claimed.sample_s * slower,
            fixed_s=claimed.fixed_s * slower,
        )

    def bids(self, names: Sequence[str], claimed: Ints, shard: int) -> Ints:
        """Return bids, in shards, as far as they are believed."""
        self._fade(names)
        takers = claimed[claimed > 0]
        fair = NEWCOMER * float(np.median(takers)) if takers.size else 0.0
        most: Floats = np.full(len(names), fair)
        for k, name in enumerate(names):
            if done := self._done.get(name):
                growth = 1 if done.samples < done.given else GROWTH
                most[k] = max(1, growth * done.samples // shard)
            most[k] = max(1.0, most[k] / self._halved(name))
        return np.minimum(claimed, np.floor(most).astype(np.int64))

    def _slower(
        self, done: Done | None, claimed: DelayLaw, k: int, deadline_s: float
    ) -> float:
        """How many times as long work took as it claims now; 1 if not far more."""
        if done is None or done.took_s <= LONG * deadline_s:
            return 1.0
        law = self._options.law(claimed.only(np.array([k])), np.array([done.option]))
        claimed_s = float(
            law.step_s[0] * done.passes + law.sample_s[0] * done.given + law.fixed_s[0]
        )
        slower = done.took_s / max(claimed_s, 1e-9)
        return slower if slower > FAR else 1.0

    def _halved(self, name: str) -> float:
        return 2.0 ** max(0, self._missed.get(name, 0) - 1)

    def _fade(self, names: Sequence[str]) -> None:
        for name in self._idle.intersection(names):
            if name in self._missed:
                self._missed[name] -= 1
            for done in (self._done, self._before):
                if name in done:
                    done[name] = replace(done[name], took_s=done[name].took_s / 2)
        self._idle.update(names)
