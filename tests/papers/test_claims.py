import math

import pytest
from papers.claims import (
    Claim,
    Measured,
    Rule,
    Verdict,
    at_least,
    at_most,
    exact,
    mean_of,
    near,
)

HOLDS, WEAKER, FAILS = Verdict.HOLDS, Verdict.WEAKER, Verdict.FAILS


@pytest.mark.parametrize(
    ("rule", "ours", "verdict"),
    [
        # "41 % less": as much, less but some, perhaps none, the other way.
        (at_least(41, weaker=0), Measured(45, 2), HOLDS),
        (at_least(41, weaker=0), Measured(38, 4), HOLDS),
        (at_least(41, weaker=0), Measured(20, 5), WEAKER),
        (at_least(41, weaker=0), Measured(20, 25), FAILS),
        (at_least(41, weaker=0), Measured(-5, 1), FAILS),
        # An interval that reaches the claim, and no effect too, shows nothing.
        (at_least(41, weaker=0), Measured(20, 30), FAILS),
        (at_least(41, weaker=0), exact(0.0), FAILS),
        (at_least(41), exact(41.0), HOLDS),
        (at_least(41), exact(40.9), FAILS),
        (at_most(7), exact(7.0), HOLDS),
        (at_most(7, weaker=10), Measured(9, 0.5), WEAKER),
        (at_most(7, weaker=10), Measured(9, 1.5), FAILS),
        (near(1, 0), exact(1.0), HOLDS),
        (near(1, 0), exact(0.0), FAILS),
        (near(7, 2, weaker=5), Measured(9.5, 1), HOLDS),
        (near(7, 2, weaker=5), Measured(10.5, 1), WEAKER),
        (near(7, 2, weaker=5), Measured(13, 1), FAILS),
        (near(7, 2, weaker=5), Measured(1, 1), FAILS),
    ],
)
def test_a_verdict_follows_from_number_interval_and_rule(
    rule: Rule, ours: Measured, verdict: Verdict
) -> None:
    assert rule.verdict(ours) == verdict


def test_a_rule_says_what_it_asks_for() -> None:
    assert at_least(41, weaker=0).text == "≥ 41; weaker: > 0"
    assert near(7, 2, weaker=5).text == "7 ± 2; weaker: ± 5"
    assert near(1, 0).text == "= 1"


@pytest.mark.parametrize("ours", [exact(math.nan), exact(math.inf), mean_of([1.0])])
def test_a_claim_needs_a_number_and_its_interval(ours: Measured) -> None:
    with pytest.raises(ValueError, match="'time' has no number or interval"):
        Claim(what="time", printed="1", ours=ours, rule=at_most(1))


def test_a_claim_shows_its_number_with_interval_and_unit() -> None:
    claim = Claim(
        what="time", printed="1", ours=Measured(1.23, 0.5), rule=at_most(1), unit="s"
    )
    assert claim.shown == "1.23 ± 0.50 s"


def test_the_interval_is_student_s() -> None:
    # 4.303 · 1 / √3, two degrees of freedom.
    assert mean_of([1.0, 2.0, 3.0]) == pytest.approx((2.0, 2.484), abs=1e-3)


@pytest.mark.parametrize(
    ("ours", "reason"),
    [
        (Measured(45, 2), ""),
        (Measured(20, 5), "it is a toy"),
        (Measured(-20, 25), "it is a toy"),
        # Too wide an interval fails a claim, and the page says that it was that.
        (
            Measured(50, 60),
            "of the mean alone: holds; more trials would tell. it is a toy",
        ),
        (
            Measured(20, 25),
            "of the mean alone: holds weaker; more trials would tell. it is a toy",
        ),
    ],
)
def test_a_reason_says_where_only_the_interval_is_too_wide(
    ours: Measured, reason: str
) -> None:
    rule = at_least(41, weaker=0)
    claim = Claim(what="drop", printed="41", ours=ours, rule=rule, why="it is a toy")
    assert claim.reason == reason
