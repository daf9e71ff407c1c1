import math

import numpy as np
import pytest
from papers.claims import (
    Claim,
    Kind,
    Measured,
    Rule,
    Verdict,
    above,
    at_least,
    at_most,
    by,
    exact,
    mean_of,
    near,
    of_kind,
    reason,
)

HOLDS, WEAKER, FAILS, OPEN = Verdict


@pytest.mark.parametrize(
    ("rule", "ours", "verdict"),
    [
        # "at least 41": as much, perhaps, less but some, perhaps none, the other way.
        (at_least(41, weaker=0), Measured(45, 2), HOLDS),
        (at_least(41, weaker=0), Measured(45, 6), HOLDS),
        (at_least(41, weaker=0), Measured(38, 4), OPEN),
        (at_least(41, weaker=0), Measured(20, 5), WEAKER),
        (at_least(41, weaker=0), Measured(20, 25), OPEN),
        (at_least(41, weaker=0), Measured(50, 60), OPEN),
        (at_least(41, weaker=0), Measured(-5, 1), FAILS),
        # No effect, whatever its sign, is none of 41.
        (at_least(41, weaker=0), Measured(-5, 10), FAILS),
        (at_least(41, weaker=0), exact(0.0), FAILS),
        (at_least(41), exact(41.0), HOLDS),
        (at_least(41), exact(40.9), FAILS),
        (at_least(41), Measured(42, 2), OPEN),
        (at_most(7), exact(7.0), HOLDS),
        (at_most(7, weaker=10), Measured(9, 0.5), WEAKER),
        (at_most(7, weaker=10), Measured(9, 1.5), OPEN),
        (above(0), exact(0.0), FAILS),
        (above(0), Measured(1.0, 0.9), HOLDS),
        (above(0), Measured(1.0, 1.0), OPEN),
        (near(1, 0), exact(1.0), HOLDS),
        (near(1, 0), exact(0.0), FAILS),
        (near(7, 2, weaker=5), Measured(8.5, 1), HOLDS),
        (near(7, 2, weaker=5), Measured(9.5, 1), OPEN),
        (near(7, 2, weaker=5), Measured(10.5, 1), WEAKER),
        (near(7, 2, weaker=5), Measured(13, 1), FAILS),
        (near(7, 2, weaker=5), Measured(1, 1), FAILS),
        # "by 46 %" has two sides: who saves 75 saves, but not as printed.
        (by(46), Measured(50, 3), HOLDS),
        (by(46), Measured(75, 3), WEAKER),
        (by(46), Measured(20, 3), WEAKER),
        (by(46), Measured(-20, 3), FAILS),
    ],
)
def test_a_verdict_follows_from_number_interval_and_rule(
    rule: Rule, ours: Measured, verdict: Verdict
) -> None:
    assert rule.verdict(ours) == verdict


def random_cases(seed: int) -> list[tuple[Rule, Measured]]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(200):
        bar, wide, value = rng.integers(-8, 9, size=3).tolist()
        half = float(rng.integers(0, 9)) / 2
        within = int(rng.integers(0, 4))
        rules = (
            at_least(bar),
            at_least(bar, weaker=bar - abs(wide)),
            at_most(bar),
            at_most(bar, weaker=bar + abs(wide)),
            above(bar),
            near(bar, within),
            near(bar, within, weaker=within + abs(wide)),
            by(abs(bar) + 1),
        )
        rule = rules[int(rng.integers(len(rules)))]
        found.append((rule, Measured(float(value), half)))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_a_verdict_is_what_the_points_of_the_interval_say(seed: int) -> None:
    # Alone, a point has no interval that could withdraw its verdict.
    for rule, ours in random_cases(seed):
        # Ends of all ranges are quarters.
        points = np.arange(ours.low, ours.high + 0.125, 0.125).tolist()
        alone = rule.verdict(exact(ours.value))
        seen = {rule.verdict(exact(point)) for point in points}
        borne_out = {
            HOLDS: seen <= {HOLDS, WEAKER},
            WEAKER: seen == {WEAKER},
            FAILS: seen <= {WEAKER, FAILS},
        }[alone]
        assert rule.verdict(ours) == (alone if borne_out else OPEN), (rule, ours)


@pytest.mark.parametrize("seed", range(5))
def test_an_interval_that_shrinks_overturns_nothing(seed: int) -> None:
    for rule, ours in random_cases(seed):
        verdict = rule.verdict(ours)
        for share in (0.75, 0.5, 0.25, 0.0):
            smaller = rule.verdict(Measured(ours.value, (ours.half or 0.0) * share))
            assert verdict in (OPEN, smaller), (rule, ours)
            verdict = smaller
        assert verdict != OPEN


@pytest.mark.parametrize("half", [0.0, 0.5, 3.0, 20.0])
def test_more_of_it_is_never_judged_worse(half: float) -> None:
    rank = {FAILS: 0, WEAKER: 1, HOLDS: 2}
    values = np.arange(-30.0, 90.0, 0.5).tolist()
    for rule in (at_least(41), at_least(41, weaker=0), above(41)):
        verdicts = [rule.verdict(Measured(value, half)) for value in values]
        ranks = [rank[verdict] for verdict in verdicts if verdict != OPEN]
        assert ranks == sorted(ranks)


@pytest.mark.parametrize("seed", range(5))
def test_at_most_is_at_least_in_a_mirror(seed: int) -> None:
    for _, ours in random_cases(seed):
        mirrored = Measured(-ours.value, ours.half)
        for weaker in (None, -2.0):
            other = None if weaker is None else -weaker
            rule, mirror = at_least(3, weaker), at_most(-3, other)
            assert rule.verdict(ours) == mirror.verdict(mirrored)


def test_a_rule_says_what_it_asks_for() -> None:
    assert at_least(41, weaker=0).text == "≥ 41; weaker: > 0"
    assert near(7, 2, weaker=5).text == "7 ± 2; weaker: ± 5"
    assert near(1, 0).text == "= 1"


def test_a_text_that_is_no_rule_is_named() -> None:
    with pytest.raises(ValueError, match="'about 41' is no range"):
        Rule("about 41").verdict(exact(41.0))


@pytest.mark.parametrize("ours", [exact(math.nan), exact(math.inf), mean_of([1.0])])
def test_a_claim_needs_a_number_and_its_interval(ours: Measured) -> None:
    with pytest.raises(ValueError, match="'time' has no number or interval"):
        Claim(what="time", printed="1", ours=ours, rule=at_most(1))


def test_a_claim_shows_its_number_with_interval_and_unit() -> None:
    claim = Claim(
        what="time", printed="1", ours=Measured(1.23, 0.5), rule=at_most(1), unit="s"
    )
    assert claim.shown == "1.23 ± 0.50 s"


def test_a_claim_is_the_paper_s_unless_it_is_said_to_be_another_s() -> None:
    claim = Claim(what="time", printed="1", ours=exact(1.0), rule=at_most(1))
    assert claim.kind == Kind.PAPER
    assert [one.kind for one in of_kind(Kind.GIVEN, [claim])] == [Kind.GIVEN]


def test_the_interval_is_student_s() -> None:
    # 4.303 · 1 / √3, two degrees of freedom.
    assert mean_of([1.0, 2.0, 3.0]) == pytest.approx((2.0, 2.484), abs=1e-3)


@pytest.mark.parametrize(
    ("ours", "told"),
    [
        (Measured(45, 2), ""),
        (Measured(20, 5), "it is a toy"),
        (Measured(-20, 25), "it is a toy"),
        # Where the interval is too wide, the page says what the mean would be.
        (Measured(50, 60), "of the mean alone: holds"),
        (Measured(20, 25), "of the mean alone: holds weaker; it is a toy"),
    ],
)
def test_a_reason_says_where_only_the_interval_is_too_wide(
    ours: Measured, told: str
) -> None:
    assert reason(at_least(41, weaker=0), ours, "it is a toy") == told
