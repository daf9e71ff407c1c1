"""Links are as late, as slow and as unsteady as they say, and the same for a seed."""

import math
from statistics import fmean, median, quantiles, stdev

import pytest

from melisma.errors import ConfigError
from melisma.testbed import LINKS, Link
from melisma.testbed.links import WIFI, Conditions


def latencies(link: Link, count: int) -> list[float]:
    conditions = Conditions(link, "seed")
    return [conditions.at(n * link.hold_s)[0] for n in range(count)]


def shares(link: Link, seconds: int, every_s: float = 0.01) -> list[float]:
    """The rate's share over a time; long runs of the same value are no error."""
    conditions = Conditions(link, "seed")
    return [conditions.at(n * every_s)[1] for n in range(round(seconds / every_s))]


def test_a_plain_link_is_at_full_rate_and_without_latency() -> None:
    conditions = Conditions(Link(name="cable"), "seed")
    assert {conditions.at(n / 7) for n in range(100)} == {(0.0, 1.0)}


def test_a_seed_tells_all_that_a_link_will_do() -> None:
    link = LINKS["ethernet"]
    one, two, other = (Conditions(link, seed) for seed in ("a", "a", "b"))
    course = [one.at(n / 10) for n in range(200)]
    assert course == [two.at(n / 10) for n in range(200)]
    assert course != [other.at(n / 10) for n in range(200)]


def test_how_often_a_link_is_asked_does_not_change_it() -> None:
    seldom, often = (Conditions(LINKS["ethernet"], "seed") for _ in range(2))
    course = [seldom.at(n) for n in range(50)]
    assert [often.at(n / 10) for n in range(500)][::10] == course


def test_latencies_are_lognormal_around_their_median() -> None:
    link = Link(name="far", latency_s=0.02, jitter=0.5)
    logarithms = [math.log(latency_s) for latency_s in latencies(link, 4000)]
    assert median(logarithms) == pytest.approx(math.log(0.02), abs=0.05)
    assert stdev(logarithms) == pytest.approx(0.5, rel=0.05)


def test_no_latency_is_above_the_longest() -> None:
    link = Link(name="far", latency_s=0.02, jitter=0.5, longest_s=0.03)
    found = latencies(link, 4000)
    assert max(found) == 0.03
    # z above ln 1.5 / 0.5: a fifth of them.
    assert found.count(0.03) / 4000 == pytest.approx(0.209, abs=0.03)


def test_fading_leaves_the_mean_rate_as_it_is() -> None:
    link = Link(name="radio", fading=0.5, hold_s=0.01)
    found = shares(link, 100)
    assert fmean(found) == pytest.approx(1.0, abs=0.03)
    assert stdev(math.log(one) for one in found) == pytest.approx(0.5, rel=0.05)


def test_others_send_for_their_share_of_the_time() -> None:
    # Half of the rate for a fifth of the time.
    link = Link(name="port", cross=0.5, busy_s=0.1, idle_s=0.4)
    found = shares(link, 400)
    assert set(found) == {0.5, 1.0}
    assert fmean(found) == pytest.approx(0.9, abs=0.01)


def test_wifi_has_the_round_trips_that_were_measured() -> None:
    # 3, 20 and 250 ms (Sui et al. 2016), by one lognormal: within a factor of 1.5.
    percentiles = quantiles((2000 * one for one in latencies(WIFI, 50_000)), n=100)
    for percentile, measured_ms in ((50, 3), (90, 20), (99, 250)):
        assert 1 / 1.5 < percentiles[percentile - 1] / measured_ms < 1.5


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"latency_s": -1.0}, "'odd' has latency_s = -1.0: give a number from 0 to 10"),
        ({"jitter": float("nan")}, "jitter = nan"),
        ({"cross": 1.0}, "cross = 1.0: give a number from 0 to 0.99"),
        ({"hold_s": 0.0}, "hold_s = 0.0: give a number from 0.001"),
        ({"busy_s": float("inf")}, "busy_s = inf"),
    ],
)
def test_an_impossible_link_is_named(numbers: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Link(name="odd", **numbers)  # type: ignore[arg-type]
