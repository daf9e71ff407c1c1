"""Who is asked: how many, how often, and by which use."""

import math
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest

from melisma.maths.arrays import Floats
from melisma.schemes.participation import (
    Candidates,
    Seen,
    TakesPart,
    asked,
    choose,
    enough,
)
from melisma.schemes.participation.oort import utilities
from melisma.schemes.participation.tiers import TIERS


def candidates(
    learners: int = 20,
    wanted: int = 4,
    *,
    cycle: int = 1,
    seed: int = 0,
    seconds: Floats | None = None,
    seen: Mapping[str, Seen] | None = None,
) -> Candidates:
    return Candidates(
        cycle=cycle,
        wanted=wanted,
        names=[f"l{k}" for k in range(learners)],
        seconds=np.arange(1.0, learners + 1) if seconds is None else seconds,
        deadline_s=10.0,
        seen=seen or {},
        rng=np.random.default_rng([seed, cycle]),
    )


def shown(
    loss: float, *, samples: int = 10, last: int = 1, seconds: float = 1.0
) -> Seen:
    return Seen(cycles=1, last=last, samples=samples, loss=loss, seconds=seconds)


@pytest.mark.parametrize("rule", TakesPart)
@pytest.mark.parametrize(("learners", "wanted"), [(20, 4), (3, 5), (1, 1), (7, 7)])
def test_no_more_are_asked_than_wanted_and_somebody_is(
    rule: TakesPart, learners: int, wanted: int
) -> None:
    seen = {f"l{k}": shown(float(k)) for k in range(0, learners, 2)}
    for cycle in range(1, 6):
        who = choose(rule, candidates(learners, wanted, cycle=cycle, seen=seen))
        assert who.shape == (learners,)
        if rule in (TakesPart.ALL, TakesPart.FIRST):
            assert who.all()
        else:
            assert 1 <= who.sum() <= wanted


def test_draws_are_even() -> None:
    times = Counter[int]()
    for seed in range(2000):
        who = choose(TakesPart.RANDOM, candidates(seed=seed))
        assert who.sum() == 4
        times.update(np.flatnonzero(who).tolist())
    # 400 each, with a deviation of √(2000·0.2·0.8) = 18.
    assert all(abs(n - 400) < 5 * 18 for n in times.values())
    assert len(times) == 20


@pytest.mark.parametrize(
    ("over", "learners", "number"), [(1.3, 10, 13), (1.1, 10, 11), (1.0, 7, 7)]
)
def test_some_more_are_asked_and_the_first_count(
    over: float, learners: int, number: int
) -> None:
    assert asked(TakesPart.OVER_COMMIT, learners, over) == number
    assert enough(TakesPart.OVER_COMMIT, learners) == learners
    assert enough(TakesPart.FIRST, learners) == learners
    assert enough(TakesPart.RANDOM, learners) is None
    assert asked(TakesPart.RANDOM, learners, over) == learners


def test_those_of_one_tier_are_about_as_fast() -> None:
    seconds = np.random.default_rng(1).permutation(np.arange(1.0, 21.0))
    for seed in range(50):
        who = choose(TakesPart.TIERS, candidates(seed=seed, seconds=seconds))
        assert who.sum() == 4  # a tier has four
        assert len({int((s - 1) // 4) for s in seconds[who]}) == 1


def test_tiers_that_were_not_seen_come_first() -> None:
    seen = {f"l{k}": shown(1.0) for k in range(16)}  # all but the slowest
    for seed in range(20):
        who = choose(TakesPart.TIERS, candidates(seed=seed, seen=seen))
        assert np.flatnonzero(who).tolist() == [16, 17, 18, 19]


def test_tiers_with_more_loss_are_likelier_by_rank() -> None:
    losses = [3.0, 1.0, 5.0, 2.0, 4.0]
    seen = {f"l{k}": shown(losses[k // 4]) for k in range(20)}
    times = Counter[int]()
    for seed in range(3000):
        who = choose(TakesPart.TIERS, candidates(wanted=1, seed=seed, seen=seen))
        times[int(np.flatnonzero(who)[0]) // 4] += 1
    # Ranks 3, 1, 5, 2, 4 of 15.
    for tier, rank in enumerate((3, 1, 5, 2, 4)):
        expected = 3000 * rank / 15
        assert abs(times[tier] - expected) < 5 * math.sqrt(expected)
    assert TIERS == 5


def test_the_use_of_a_learner_is_the_papers() -> None:
    rng = np.random.default_rng(4)
    seen = {
        f"l{k}": shown(
            float(rng.uniform(0.1, 3)),
            samples=int(rng.integers(1, 100)),
            last=int(rng.integers(1, 9)),
            seconds=float(rng.uniform(1, 30)),
        )
        for k in range(20)
    }
    found = utilities(candidates(cycle=9, seen=seen), list(range(20)))
    plain = []
    for one in seen.values():
        use = one.samples * one.loss
        if one.seconds > 10.0:
            use *= (10.0 / one.seconds) ** 2
        plain.append(use)
    top = np.percentile(plain, 95)
    for use, one, utility in zip(plain, seen.values(), found, strict=True):
        bonus = math.sqrt(0.1 * math.log(9) / one.last)
        assert utility == pytest.approx(min(use, top) / top + bonus)


def test_the_most_useful_are_asked() -> None:
    seen = {f"l{k}": shown(10.0 if k < 4 else 0.1, last=5) for k in range(20)}
    for seed in range(20):
        who = choose(TakesPart.OORT, candidates(cycle=6, seed=seed, seen=seen))
        assert np.flatnonzero(who).tolist() == [0, 1, 2, 3]


def test_who_is_far_too_late_is_of_little_use() -> None:
    seen = {
        f"l{k}": shown(1.0, last=5, seconds=100.0 if k < 10 else 5.0) for k in range(20)
    }
    for seed in range(20):
        who = choose(TakesPart.OORT, candidates(cycle=6, seed=seed, seen=seen))
        assert np.flatnonzero(who).min() >= 10


def test_new_ones_are_tried_less_and_less_and_fast_ones_first() -> None:
    seen = {f"l{k}": shown(1.0) for k in range(10)}
    new = {
        cycle: [
            int(
                choose(
                    TakesPart.OORT,
                    candidates(wanted=10, cycle=cycle, seed=s, seen=seen),
                )[10:].sum()
            )
            for s in range(20)
        ]
        for cycle in (1, 40, 400)
    }
    # 0.9, 0.9·0.98³⁹ = 0.41, and no less than 0.2 of ten.
    assert {cycle: set(n) for cycle, n in new.items()} == {1: {9}, 40: {4}, 400: {2}}
    seconds = np.r_[np.ones(10), np.full(5, 1.0), np.full(5, 100.0)]
    fast = slow = 0
    for seed in range(50):
        who = choose(
            TakesPart.OORT,
            candidates(cycle=400, wanted=10, seed=seed, seen=seen, seconds=seconds),
        )
        fast, slow = fast + int(who[10:15].sum()), slow + int(who[15:].sum())
    assert fast > 10 * slow
