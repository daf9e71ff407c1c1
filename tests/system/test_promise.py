"""Margins: lateness is measured here, from times that the promises do not see."""

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
import pytest

from melisma.errors import ConfigError
from melisma.maths.arrays import Floats
from melisma.system.promise import (
    BEGUN,
    COMPUTE,
    FASTEST,
    LINK,
    NEWS,
    PACE,
    UNSEEN,
    WINDOW,
    Promises,
    Took,
)

DEADLINE_S, LINK_S = 10.0, 1.0


def names(count: int) -> list[str]:
    return [f"learner-{k}" for k in range(count)]


def lived(promises: Promises, factors: Floats) -> tuple[Floats, Floats]:
    """Plan each cycle to end at the deadline; return lateness and work, by cycle.

    ``factors`` are cycles × (compute, link) × learners.
    """
    everybody, late, work = names(factors.shape[2]), [], []
    for factor in factors:
        compute, link = promises.margins(everybody).planned
        compute_s = np.maximum(DEADLINE_S - link * LINK_S, 0.0) / compute
        took_s = factor[COMPUTE] * compute_s + factor[LINK] * LINK_S
        is_late = took_s > DEADLINE_S * (1 + 1e-9)
        promises.see(everybody, Took(ratio=factor, late=is_late))
        late.append(is_late)
        work.append(compute_s)
    return np.array(late), np.array(work)


def one(promises: Promises, ratio: tuple[float, float], late: bool = False) -> None:
    took = Took(ratio=np.array(ratio)[:, None], late=np.array([late]))
    promises.margins(["a"])
    promises.see(["a"], took)


def lognormal(rng: np.random.Generator, shape: tuple[int, int, int]) -> Floats:
    return np.exp(0.3 * rng.standard_normal(shape))


def spikes(rng: np.random.Generator, shape: tuple[int, int, int]) -> Floats:
    small = np.exp(0.05 * rng.standard_normal(shape))
    small[:, COMPUTE] *= np.where(rng.random((shape[0], shape[2])) < 0.1, 3.0, 1.0)
    return small


def owner(rng: np.random.Generator, shape: tuple[int, int, int]) -> Floats:
    factors, busy = np.exp(0.05 * rng.standard_normal(shape)), np.zeros(shape[2], bool)
    for factor in factors:
        busy ^= rng.random(shape[2]) < np.where(busy, 0.2, 0.1)
        factor[COMPUTE, busy] *= 2.5
    return factors


def heating(rng: np.random.Generator, shape: tuple[int, int, int]) -> Floats:
    warmer = 1.01 ** np.arange(shape[0])[:, None, None]
    return np.asarray(warmer * np.exp(0.1 * rng.standard_normal(shape)))


def gamma(rng: np.random.Generator, shape: tuple[int, int, int]) -> Floats:
    return rng.gamma(4.0, 0.25, shape)


Law = Callable[[np.random.Generator, tuple[int, int, int]], Floats]


@pytest.mark.slow
@pytest.mark.parametrize("late_at_most", [0.01, 0.05, 0.1])
@pytest.mark.parametrize("law", [lognormal, spikes, owner, heating, gamma])
def test_lateness_is_within_a_point_of_what_was_promised(
    law: Law, late_at_most: float
) -> None:
    factors = law(np.random.default_rng(1), (200, 2, 100))
    late, work = lived(Promises(late_at_most), factors)
    assert abs(late.mean() - late_at_most) <= 0.01
    assert work.mean() > 0.3  # of 9 s: not by refusing to work


def test_every_single_learner_is_about_as_often_late_as_promised() -> None:
    factors = lognormal(np.random.default_rng(2), (400, 2, 100))
    late, _ = lived(Promises(0.05), factors)
    # ACI's own bound on each: (1 + γ)/(γ·T) = 1.1/40 = 0.0275.
    assert abs(late.mean(axis=0) - 0.05).max() <= 0.0275


def test_who_heats_up_is_planned_by_how_it_is_now() -> None:
    promises = Promises(0.05)
    for cycle in range(100):
        one(promises, (1.01**cycle, 1.0))
    margins = promises.margins(["a"])
    assert margins.expected[COMPUTE, 0] == pytest.approx(1.01**99, rel=0.06)
    assert 1.01**99 < margins.planned[COMPUTE, 0] < 1.3 * 1.01**99
    assert margins.planned[LINK, 0] < 1.2


def test_a_quantile_is_that_of_the_last_hundred_residuals() -> None:
    """Against a list that is kept and ranked by hand."""
    rng = np.random.default_rng(3)
    promises, alpha, mean = Promises(0.1), 0.1, 0.0
    past = [UNSEEN * NormalDist().inv_cdf((i + 0.5) / BEGUN) for i in range(BEGUN)]
    for ratio in np.exp(0.2 * rng.standard_normal(250)):
        rank = math.ceil((1 - alpha) * (min(len(past), WINDOW) + 1))
        kept = sorted(past[-WINDOW:])
        expected = math.exp(mean + kept[rank - 1]) if rank <= len(kept) else None
        planned = float(promises.margins(["a"]).planned[COMPUTE, 0])
        if expected is not None and alpha > 0:
            assert planned == pytest.approx(expected)
        one(promises, (float(ratio), math.nan), late=bool(ratio > planned))
        alpha = min(0.5, alpha + PACE * (0.1 - (ratio > planned)))
        past.append(math.log(ratio) - mean)
        mean += NEWS * past[-1]


def test_being_late_again_and_again_leads_beyond_all_that_was_seen() -> None:
    promises = Promises(0.05)
    for _ in range(60):
        one(promises, (1.0, 1.0), late=True)
    assert float(promises.margins(["a"]).planned[COMPUTE, 0]) > 5


def test_work_that_is_lost_counts_as_longer_than_planned() -> None:
    lost, seen = Promises(0.05), Promises(0.05)
    for _ in range(5):
        one(lost, (math.nan, math.nan), late=True)
        one(seen, (1.0, 1.0))
    for kind in (COMPUTE, LINK):
        longer = lost.margins(["a"]).planned[kind, 0]
        assert longer > 1.5 * seen.margins(["a"]).planned[kind, 0]


def test_who_has_time_to_spare_is_given_more_until_it_is_late_as_often() -> None:
    """Plans end at 80 % of the deadline here, as where shards are large."""
    factors = lognormal(np.random.default_rng(5), (300, 2, 50))
    promises, late = Promises(0.1), []
    for factor in factors:
        compute, link = promises.margins(names(50)).planned
        compute_s = np.maximum(0.8 * DEADLINE_S - link * LINK_S, 0.0) / compute
        late.append(factor[COMPUTE] * compute_s + factor[LINK] * LINK_S > DEADLINE_S)
        promises.see(names(50), Took(ratio=factor, late=late[-1]))
    assert np.mean(late[100:]) == pytest.approx(0.1, abs=0.01)


def test_asking_for_margins_changes_nothing() -> None:
    promises = Promises(0.05)
    one(promises, (2.0, 1.5))
    first = promises.margins(["a"]).planned
    for _ in range(5):
        assert np.array_equal(promises.margins(["a"]).planned, first)


def test_who_has_no_work_is_given_another_chance() -> None:
    promises, new = Promises(0.05), Promises(0.05)
    for _ in range(10):
        one(promises, (4.0, 1.0), late=True)
    slow = promises.margins(["a"]).planned[COMPUTE, 0]
    assert slow > 4
    seen = []
    for _ in range(30):
        promises.skip()
        seen.append(promises.margins(["a"]).planned[COMPUTE, 0])
    assert np.all(np.diff([slow, *seen]) < 0)
    assert promises.margins(["a"]).expected[COMPUTE, 0] == pytest.approx(1, abs=0.01)
    assert seen[-1] < 1.5
    # Others work meanwhile: the same.
    for _ in range(10):
        one(new, (4.0, 1.0), late=True)
    for _ in range(30):
        new.see(["b"], Took(ratio=np.ones((2, 1)), late=np.zeros(1, bool)))
    assert np.allclose(new.margins(["a"]).planned, promises.margins(["a"]).planned)


def test_a_newcomer_begins_by_the_spread_of_its_benchmark() -> None:
    promises = Promises(0.05)
    spread = np.array([[0.0, 0.5], [0.3, 0.0]])
    (compute, link) = promises.margins(["steady", "shaky"], spread).planned
    assert compute[1] > 1.5 * compute[0]
    assert link[0] > 1.2 * link[1]
    # What is known of it afterwards is its own.
    again = promises.margins(["steady", "shaky"], np.zeros((2, 2))).planned
    assert np.array_equal(again, [compute, link])


def test_learners_do_not_answer_for_one_another() -> None:
    promises = Promises(0.05)
    before = promises.margins(["a", "b"]).planned[:, 1]
    for _ in range(10):
        took = Took(
            ratio=np.array([[3.0, 1.0], [1.0, 1.0]]),
            late=np.array([True, False]),
        )
        promises.margins(["a", "b"])
        promises.see(["a", "b"], took)
    planned = promises.margins(["a", "b"]).planned
    assert planned[COMPUTE, 0] > 3 > 1.5 > planned[COMPUTE, 1]
    assert planned[LINK, 1] <= before[LINK] * 1.05


def test_what_is_kept_in_a_checkpoint_is_all_there_is() -> None:
    rng = np.random.default_rng(4)
    first = Promises(0.05)
    lived(first, lognormal(rng, (30, 2, 5)))
    first.skip()
    second = Promises(0.05)
    second.restore(first.state())
    rest = lognormal(rng, (30, 2, 5))
    assert np.array_equal(lived(first, rest)[0], lived(second, rest)[0])
    one_, two = (p.margins(names(5)).planned for p in (first, second))
    assert np.allclose(one_, two)


@pytest.mark.parametrize("share", [0.0, -0.1, 0.5, 1.0, math.nan, math.inf])
def test_a_share_that_cannot_be_kept_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match="late_at_most"):
        Promises(share)


@pytest.mark.parametrize("ratio", [1e-300, 1e-9, 0.0, -1.0, math.nan, math.inf, 1e300])
def test_whatever_a_learner_reports_its_margins_stay_within_bounds(
    ratio: float,
) -> None:
    """What it took is its word: it must not have all work, nor end the run."""
    promises = Promises(0.05)
    for _ in range(60):
        one(promises, (ratio, ratio))
    margins = promises.margins(["a"])
    assert np.all(margins.planned >= FASTEST)
    assert np.all(np.isfinite(margins.planned))
    assert np.all(margins.expected > 0.99 * FASTEST)
