import pytest

from melisma.learner.speed import Speed
from melisma.learning.benchmark import Line


def measured(**changes: int) -> Speed:
    speed = Speed(
        1000,
        link=Line(latency_s=0.1, rate=1000.0),
        compute=Line(latency_s=0.2, rate=50.0),
        sample_bytes=10,
    )
    for name, value in changes.items():
        setattr(speed, name, value)
    return speed


def test_a_cycle_is_transfers_both_ways_and_the_training() -> None:
    law = measured().law(careful=False)
    # Model twice: 2·(0.1 + 1) s; shards: 0.1 + 20·10/1000 s; training: 0.2 + 3·20/50 s.
    assert law.seconds([20], [3])[0] == pytest.approx(2.2 + 0.3 + 1.4)


def test_where_no_data_is_sent_it_takes_no_time() -> None:
    law = measured(sample_bytes=0).law(careful=False)
    assert law.seconds([20], [3])[0] == pytest.approx(2.2 + 1.4)


def test_slow_transfers_make_the_network_dearer_and_training_not() -> None:
    speed = measured()
    before = speed.law(careful=False)
    speed.transferred([1000, 200], took_s=2 * (1.1 + 0.3))  # twice what was foreseen
    after = speed.law(careful=False)
    assert after.sample_s[0] == pytest.approx(1.5 * before.sample_s[0])
    assert after.step_s[0] == before.step_s[0]


def test_slow_training_makes_training_dearer_and_the_network_not() -> None:
    speed = measured()
    before = speed.law(careful=False)
    speed.trained(50, took_s=2 * 1.2)
    after = speed.law(careful=False)
    assert after.step_s[0] == pytest.approx(1.5 * before.step_s[0])
    assert after.sample_s[0] == before.sample_s[0]


def test_a_benchmark_that_was_a_hundred_times_too_fast_is_right_after_one_cycle() -> (
    None
):
    speed = measured()
    before = speed.law(careful=False)
    speed.trained(50, took_s=126 * 1.2)
    assert speed.law(careful=False).step_s[0] == pytest.approx(126 * before.step_s[0])


def test_with_care_everything_takes_longer() -> None:
    bold, careful = (measured().law(careful=care) for care in (False, True))
    assert careful.seconds([20], [3])[0] > 1.1 * bold.seconds([20], [3])[0]
    assert measured().upload_s() > 1.1


def test_before_a_benchmark_nothing_is_known() -> None:
    speed = Speed(1000)
    speed.trained(50, took_s=1.0)
    speed.transferred([1000], took_s=1.0)
    assert not speed.measured
    assert speed.upload_s() == 0.0
    with pytest.raises(ValueError, match="not measured"):
        speed.law(careful=False)


def test_what_was_forgotten_is_the_drift_and_not_the_benchmark() -> None:
    speed = measured()
    speed.trained(50, took_s=100.0)
    for _ in range(30):
        speed.forget()
    assert speed.law(careful=False).step_s[0] == pytest.approx(1 / 50)


def test_a_printed_bid_is_the_benchmarks_and_an_adaptive_one_20_percent_less() -> None:
    # Shards of 10 samples: 2.5 s fixed, 0.1 + 0.2 s each. As printed, before 32.5 s:
    # 99 shards (100 are not before it). Adaptive: 1.2 times that by 0.97 · 32.5 s.
    speed = measured()
    assert speed.bid(10, 32.5, 1, adaptive=False) == 99
    assert speed.bid(10, 32.5, 1, adaptive=True) == 79


def test_a_printed_bid_does_not_follow_the_drift() -> None:
    speed = measured()
    before = {way: speed.bid(10, 32.5, 1, adaptive=way) for way in (False, True)}
    for _ in range(5):
        speed.trained(50, took_s=2 * 1.2)
    assert speed.bid(10, 32.5, 1, adaptive=False) == before[False]
    assert speed.bid(10, 32.5, 1, adaptive=True) < before[True]


def test_a_promise_is_kept_by_the_device_itself() -> None:
    speed, plain = measured(), measured()
    speed.promise(0.05)
    at_first = speed.bid(10, 32.5, 1, adaptive=False)
    assert at_first < plain.bid(10, 32.5, 1, adaptive=False)  # though as printed
    sent_s = speed.upload_s()
    for _ in range(10):
        speed.kept(ratio=(2.0, 1.0), late=True)
        speed.renew()
    # Fixed 2.5 s, and twice 0.2 s a shard of 10 for training: (31.5 − 2.5)/0.5 = 58.
    assert 5 < speed.bid(10, 32.5, 1, adaptive=True) < 58
    assert speed.upload_s() > sent_s  # late, whatever made it so


def test_a_device_that_was_given_nothing_tries_again() -> None:
    speed = measured()
    speed.promise(0.05)
    at_first = speed.bid(10, 32.5, 1, adaptive=True)
    for _ in range(10):
        speed.kept(ratio=(30.0, 1.0), late=True)
        speed.renew()
    assert speed.bid(10, 32.5, 1, adaptive=True) < 10
    for _ in range(30):
        speed.forget()
        speed.renew()
    assert speed.bid(10, 32.5, 1, adaptive=True) > 0.8 * at_first


def test_without_a_promise_nothing_is_learnt_of_lateness() -> None:
    speed = measured()
    before = speed.bid(10, 32.5, 1, adaptive=True)
    speed.kept(ratio=(30.0, 1.0), late=True)
    speed.renew()
    assert speed.bid(10, 32.5, 1, adaptive=True) == before


def test_the_spread_of_the_benchmark_is_reported_and_taken_to_heart() -> None:
    shaky = Speed(
        1000,
        link=Line(latency_s=0.1, rate=1000.0, spread=0.1),
        compute=Line(latency_s=0.2, rate=50.0, spread=0.6),
        sample_bytes=10,
    )
    assert shaky.report().compute_spread == 0.6
    assert shaky.report().link_spread == 0.1
    steady = measured()
    for speed in (shaky, steady):
        speed.promise(0.05)
        speed.renew()
    assert shaky.bid(10, 32.5, 1, adaptive=True) < 0.8 * steady.bid(
        10, 32.5, 1, adaptive=True
    )
