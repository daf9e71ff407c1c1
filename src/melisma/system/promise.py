"""Margins by which a learner is late in no more than a share ε of its cycles.

    t  =  mᶜ·C²τd + mˡ·(C¹d + C⁰)  ≤  T                             (planned in time)
    m  =  exp(c + q)           c: smoothed mean of log(took / predicted)
                               q: quantile 1 − α of the last residuals from c
    α  ←  α + γ·(ε − late)     after each of its cycles

Compute and link have a c and a q each, and one α. The share of late cycles goes to ε
whatever the delays' distribution: if there are too many, α falls until there are not,
and if there are fewer, since plans have time to spare, α rises and more is planned.
Solvers see a law whose coefficients are multiplied by the margins, and stay as they
are.

Paper: I. Gibbs, E. Candès, "Adaptive Conformal Inference Under Distribution Shift",
NeurIPS 2021, Eq. 2.

Differences from the paper:
1. Residuals are from a mean that follows the device, so that one which heats up is not
   held to its past: under drift, more work is kept at the same ε.
2. α may be below 0, where the paper plans for infinity: the margin is then the largest
   residual, and e⁻ᵅ times that. A device that was slower than ever must not sit out.
3. α stays below ½: nobody is planned to be late more often than not, and who had time
   to spare for long is careful again after few late cycles.
4. Where α is too small for a quantile of so few residuals (α·(n + 1) < 1), Gaussian
   tails count as well, √(2 ln 1/2α) deviations: a newcomer has shown little yet.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from melisma.errors import ConfigError
from melisma.maths.arrays import Bools, Floats, Ints
from melisma.system.law import DelayLaw

#: γ: how far α moves in a cycle.
PACE = 0.1
#: Residuals that a quantile is of, and how many a newcomer begins with.
WINDOW, BEGUN = 100, 10
#: Weight of the latest cycle in the mean.
NEWS = 0.2
#: Spread (σ of the logarithm) of a newcomer of whose benchmark nothing else is known.
UNSEEN = 0.1
#: Bounds of α, and the smallest whose Gaussian tail counts.
LEAST, MOST = -3.0, 0.5
LEAST_TAIL = 0.005

#: Times as long as known that a learner is believed to take: what it took is its own
#: word, and who could be a hundred times as fast would be given all there is.
FASTEST, SLOWEST = 0.5, 1e4

#: Rows of what there are two of.
COMPUTE, LINK = 0, 1


@dataclass(frozen=True, slots=True, eq=False)
class Margins:
    """Of some learners: how much longer than predicted they take, and may take."""

    expected: Floats  #: compute and link × learners
    planned: Floats  #: the same, with care

    def expect(self, law: DelayLaw) -> DelayLaw:
        """Return the law as it is expected to be."""
        return law.slowed(compute=self.expected[COMPUTE], network=self.expected[LINK])

    def plan(self, law: DelayLaw) -> DelayLaw:
        """Return the law to plan by."""
        return law.slowed(compute=self.planned[COMPUTE], network=self.planned[LINK])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Took:
    """What some learners' cycles took; two rows are of compute and of link."""

    ratio: Floats  #: took / predicted, of what was done; NaN where that is not known
    late: Bools  #: if so, and no ratio is known: it took longer than planned


class Promises:
    """Margins of learners, by name, kept so that a share ε of cycles is late."""

    def __init__(self, late_at_most: float) -> None:
        if not 0 < late_at_most < MOST:
            raise ConfigError(
                f"late_at_most = {late_at_most}: give a share above 0 and below {MOST}"
            )
        self.late_at_most = late_at_most
        self._rows: dict[str, int] = {}
        self._alpha: Floats = np.zeros(0)
        self._mean: Floats = np.zeros((2, 0))
        self._planned: Floats = np.zeros((2, 0))  # logarithm, as of the last plan
        self._cycles = 0
        self._last: Ints = np.zeros(0, dtype=np.int64)  # cycle in which it had work
        self._seen: Ints = np.zeros((2, 0), dtype=np.int64)
        self._residuals: Floats = np.zeros((2, 0, WINDOW))

    def margins(self, names: Sequence[str], spread: Floats | float = UNSEEN) -> Margins:
        """Return the margins of these learners for their next cycle.

        ``spread`` is σ of the logarithm of each one's benchmark, by which a newcomer
        begins: compute and link × learners, or one for all.
        """
        rows = self._of(names, spread)
        alpha, mean, residuals = self._remembered(rows)
        there = np.minimum(self._seen[:, rows], WINDOW)
        quantile = _quantiles(residuals, there, alpha)
        planned = mean + quantile + np.maximum(0.0, -alpha)
        planned = np.maximum(planned, np.log(FASTEST))
        self._planned[:, rows] = planned
        return Margins(np.exp(mean), np.exp(planned))

    def see(self, names: Sequence[str], took: Took) -> None:
        """Observe a cycle of those learners that had work in it."""
        rows = self._of(names)
        alpha, mean, residuals = self._remembered(rows)
        self._mean[:, rows], self._residuals[:, rows] = mean, residuals
        self._cycles += 1
        self._last[rows] = self._cycles
        with np.errstate(invalid="ignore"):
            logs = np.log(np.where(took.ratio > 0, took.ratio, np.nan))
        logs = np.clip(logs, *np.log([FASTEST, SLOWEST]))
        lost = took.late & ~np.isfinite(logs).any(axis=0)
        logs = np.where(lost, self._planned[:, rows], logs)
        known = np.isfinite(logs)
        alpha = alpha + PACE * (self.late_at_most - took.late)
        self._alpha[rows] = np.clip(alpha, LEAST, MOST)
        residual = logs - mean
        for kind in (COMPUTE, LINK):
            at = known[kind]
            which, new = rows[at], residual[kind, at]
            place = self._seen[kind, which] % WINDOW
            self._residuals[kind, which, place] = new
            self._seen[kind, which] += 1
            self._mean[kind, which] += NEWS * new

    def skip(self) -> None:
        """Let a cycle pass in which nobody had work."""
        self._cycles += 1

    def _remembered(self, rows: Ints) -> tuple[Floats, Floats, Floats]:
        """α, means and residuals of learners; who had no work has forgotten some.

        Without work they show nothing new, and would be thought too slow for ever. In
        the end they are newcomers again.
        """
        left = (1 - NEWS) ** (self._cycles - self._last[rows])
        alpha = self.late_at_most + left * (self._alpha[rows] - self.late_at_most)
        residuals = self._residuals[:, rows]
        usual = UNSEEN / np.maximum(_deviation(residuals), UNSEEN)
        residuals *= np.maximum(left, usual)[..., None]
        return alpha, left * self._mean[:, rows], residuals

    def state(self) -> dict[str, NDArray[np.float64]]:
        """Return all that is known of each learner, for a checkpoint."""
        return {
            name: np.concatenate(
                [
                    [self._cycles - self._last[row], self._alpha[row]],
                    self._mean[:, row],
                    self._seen[:, row],
                    self._residuals[:, row].ravel(),
                ]
            )
            for name, row in self._rows.items()
        }

    def restore(self, saved: Mapping[str, NDArray[np.float64]]) -> None:
        """Go on with what a checkpoint knows."""
        rows = self._of(list(saved))
        for row, values in zip(rows.tolist(), saved.values(), strict=True):
            self._last[row] = self._cycles - int(values[0])
            self._alpha[row] = values[1]
            self._mean[:, row] = values[2:4]
            self._seen[:, row] = values[4:6]
            self._residuals[:, row] = values[6:].reshape(2, WINDOW)

    def _of(self, names: Sequence[str], spread: Floats | float = UNSEEN) -> Ints:
        """Return the rows of learners, with new ones for newcomers."""
        new = [k for k, name in enumerate(names) if name not in self._rows]
        if new:
            spread = np.broadcast_to(spread, (2, len(names)))[:, new]
            self._take_in([names[k] for k in new], np.maximum(spread, UNSEEN))
        return np.array([self._rows[name] for name in names], dtype=np.int64)

    def _take_in(self, names: Sequence[str], spread: Floats) -> None:
        n = len(names)
        for name in names:
            self._rows[name] = len(self._rows)
        usual = [NormalDist().inv_cdf((i + 0.5) / BEGUN) for i in range(BEGUN)]
        residuals = np.full((2, n, WINDOW), np.nan)
        residuals[..., :BEGUN] = spread[..., None] * usual
        self._alpha = np.r_[self._alpha, np.full(n, self.late_at_most)]
        self._last = np.r_[self._last, np.full(n, self._cycles)]
        self._mean = np.c_[self._mean, np.zeros((2, n))]
        self._planned = np.c_[self._planned, np.zeros((2, n))]
        self._seen = np.c_[self._seen, np.full((2, n), BEGUN)]
        self._residuals = np.concatenate([self._residuals, residuals], axis=1)


def _quantiles(residuals: Floats, there: Ints, alpha: Floats) -> Floats:
    """Quantile 1 − α of each row's residuals, as many as are there.

    >>> few = np.array([[[0.1, -0.2, 0.3, np.nan]]])
    >>> _quantiles(few, np.array([[3]]), np.array([0.25]))
    array([[0.3]])
    >>> _quantiles(few, np.array([[3]]), np.array([0.02])).round(3)
    array([[0.548]])
    """
    ranked = np.sort(residuals, axis=-1)  # NaN, which is not there yet, comes last
    place = np.ceil((1 - alpha) * (there + 1) - 1e-9).astype(np.int64) - 1
    known = np.clip(place, 0, there - 1)
    found = np.take_along_axis(ranked, known[..., None], axis=-1)[..., 0]
    tail = np.sqrt(2 * np.log(0.5 / np.clip(alpha, LEAST_TAIL, MOST)))
    return np.where(
        place < there, found, np.maximum(found, tail * _deviation(residuals))
    )


def _deviation(residuals: Floats) -> Floats:
    """Return each row's root mean square, of what is there."""
    return np.asarray(np.sqrt(np.nanmean(residuals**2, axis=-1)))
