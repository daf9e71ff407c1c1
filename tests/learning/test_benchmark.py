import math
from collections.abc import Callable, Iterable

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import nnls
from torch import nn

from melisma.errors import ConfigError
from melisma.learning import samples
from melisma.learning.benchmark import (
    MOST_PASSES,
    WARM_UP,
    Line,
    fit,
    flops,
    machine,
    predicted_by_flops,
    time_cycle,
    time_training,
    time_transfers,
)
from melisma.learning.settings import Training

SAMPLES = samples.pairs(
    torch.linspace(-1, 1, 200 * 3).view(200, 3).sin(), torch.arange(200) % 2
)
TRAINING = Training(batch=10)

#: At least two different amounts, of a range in which rounding does not count.
amounts = st.lists(st.integers(1, 10_000), min_size=2, max_size=6, unique=True)
times = st.floats(0.01, 10.0)


class FakeClock:
    """Every look at it takes ``tick_s``; ``wait`` moves it on."""

    def __init__(self, tick_s: float = 0.0) -> None:
        self.now, self.tick_s = 0.0, tick_s

    def __call__(self) -> float:
        self.now += self.tick_s
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


def model_with_dropout() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return nn.Sequential(
            nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2)
        )


def training_at(samples_per_s: float, clock: FakeClock) -> Callable[[int], None]:
    return lambda samples: clock.wait(samples / samples_per_s)


@given(amounts, st.floats(0.0, 10.0), st.floats(10.0, 1e5))
def test_a_line_without_noise_is_found_again(
    x: list[int], latency_s: float, rate: float
) -> None:
    truth = Line(latency_s=latency_s, rate=rate)
    found = fit(x, [truth.seconds(amount) for amount in x])
    # A hidden slope costs digits: the times must differ by more than their rounding.
    assume((max(x) - min(x)) / rate > 1e-4 * (latency_s + max(x) / rate))
    assert found.rate == pytest.approx(rate, rel=1e-6)
    assert found.latency_s == pytest.approx(latency_s, abs=1e-6)


@given(amounts, st.data())
def test_a_fit_that_needs_no_clamp_is_numpys(x: list[int], data: st.DataObject) -> None:
    t = data.draw(st.lists(times, min_size=len(x), max_size=len(x)))
    slope, latency_s = np.polyfit(x, t, 1)
    assume(slope * max(x) > 1e-6 and latency_s > 1e-9)
    found = fit(x, t)
    assert found.rate == pytest.approx(1 / slope, rel=1e-5)
    assert found.latency_s == pytest.approx(latency_s, rel=1e-5, abs=1e-7)


@given(amounts, st.floats(1.1, 4.0), times)
def test_a_clamped_fit_is_the_best_that_is_not_negative(
    x: list[int], power: float, longest_s: float
) -> None:
    # Times that grow faster than the amounts: their line starts below zero.
    u = np.array(x) / max(x)
    t = longest_s * u**power
    assume(np.polyfit(u, t, 1)[1] < -1e-6)
    (best_latency_s, best_slope), _ = nnls(np.stack([np.ones_like(u), u], 1), t)
    found = fit(x, t)
    assert (found.latency_s, best_latency_s) == (0.0, 0.0)
    assert found.rate == pytest.approx(max(x) / best_slope, rel=1e-9)


def test_a_clamped_fit_is_better_than_all_others_nearby() -> None:
    x, t = np.array([1.0, 2.0, 3.0]), np.array([0.5, 1.9, 3.4])
    found = fit(x, t)
    latency_s, slope = np.mgrid[0:1:101j, 0.01:2:400j]
    errors = ((latency_s[..., None] + slope[..., None] * x - t) ** 2).sum(-1)
    best = np.unravel_index(errors.argmin(), errors.shape)
    assert (found.latency_s, latency_s[best]) == (0.0, 0.0)
    assert 1 / found.rate == pytest.approx(slope[best], abs=0.005)


@given(st.lists(st.tuples(st.integers(1, 10**9), st.floats(1e-9, 1e6)), min_size=1))
def test_whatever_was_measured_the_rate_is_positive_and_finite(
    pairs: list[tuple[int, float]],
) -> None:
    found = fit(*zip(*pairs, strict=True))
    assert 0 < found.rate < math.inf
    assert 0 <= found.latency_s < math.inf


def test_one_size_alone_tells_no_latency() -> None:
    # 400 samples in the mean of 1 and 3 s.
    assert fit([400, 400], [1.0, 3.0]) == Line(latency_s=0.0, rate=200.0)


def test_times_that_fall_give_a_line_through_the_origin() -> None:
    # Σxt / Σx² = (1·3 + 2·1) / (1 + 4) = 1 s each.
    assert fit([1, 2], [3.0, 1.0]) == Line(latency_s=0.0, rate=1.0)


@pytest.mark.parametrize(
    ("x", "t", "message"),
    [
        ([], [], "give a list of each"),
        ([1, 2], [1.0], r"shape \(2,\) and seconds of shape \(1,\)"),
        ([0, 1], [1.0, 2.0], r"amounts \[0.0, 1.0\]: give finite numbers above 0"),
        ([1, math.inf], [1.0, 2.0], "give finite numbers above 0"),
        ([1, 2], [0.0, 0.0], "measure sizes that take time"),
        ([1, 2], [-1.0, 1.0], "measure sizes that take time"),
        ([1, 2], [math.nan, 1.0], "measure sizes that take time"),
    ],
)
def test_what_cannot_be_fitted_is_named(
    x: list[float], t: list[float], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        fit(x, t)


@pytest.mark.parametrize(
    ("latency_s", "rate"),
    [(-1.0, 1.0), (math.nan, 1.0), (0.0, 0.0), (0.0, math.inf), (0.0, -1.0)],
)
def test_a_line_that_cannot_be_is_named(latency_s: float, rate: float) -> None:
    with pytest.raises(ConfigError, match=r"latency of|rate of"):
        Line(latency_s=latency_s, rate=rate)


def test_training_is_timed_as_latency_and_samples_per_second() -> None:
    # A look at the clock takes half a second. There is one before and after a call, and
    # before and after each batch of 10 samples, which take 0.2 s.
    clock = FakeClock(tick_s=0.5)
    line = time_training(
        model_with_dropout(),
        SAMPLES,
        TRAINING,
        sizes=[100, 200],
        clock=clock,
        before_batch=training_at(50.0, clock),
    )
    assert line.latency_s == pytest.approx(1.0)
    assert line.rate == pytest.approx(10 / 0.7)


def test_the_hook_hears_of_every_batch_the_short_last_one_included() -> None:
    heard: list[int] = []
    time_training(
        model_with_dropout(),
        SAMPLES,
        TRAINING,
        sizes=[13, 25],
        repeats=2,
        clock=FakeClock(tick_s=1.0),
        before_batch=heard.append,
    )
    # Sizes take turns; 10 + 3, then 10 + 10 + 5.
    assert heard == [10] * WARM_UP + [10, 3, 10, 10, 5] * 2


def test_a_spread_is_that_of_the_times_around_their_median() -> None:
    """1, 2 and 4 s: ln ½, 0 and ln 2 from the median: √((ln² 2 + ln² 2)/2) = ln 2."""
    clock = FakeClock()
    times_s = iter([9.0, 1.0, 2.0, 4.0])  # the first is not timed

    def fetch(shards: int) -> int:
        clock.wait(next(times_s))
        return 100 * shards

    line = time_transfers(fetch, [1], repeats=3, clock=clock)
    assert line.spread == pytest.approx(np.log(2))
    assert fit([1, 2], [1.0, 2.0]).spread == 0


def test_one_slow_pass_of_three_does_not_count() -> None:
    clock, batches = FakeClock(), 0

    def wait(samples: int) -> None:
        nonlocal batches
        batches += 1
        # The first batch after the warm-up is the whole first pass over 10.
        clock.wait(60.0 if batches == WARM_UP + 1 else samples / 10.0)

    line = time_training(
        model_with_dropout(),
        SAMPLES,
        TRAINING,
        sizes=[10, 20],
        clock=clock,
        before_batch=wait,
    )
    assert line.rate == pytest.approx(10.0)
    assert line.latency_s == pytest.approx(0.0)


@pytest.mark.parametrize("mode", [True, False])
def test_a_benchmark_leaves_model_and_generator_as_they_were(mode: bool) -> None:
    model = model_with_dropout().train(mode)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    time_training(model, SAMPLES, TRAINING, sizes=[50, 100], repeats=1)
    time_cycle(model, SAMPLES, TRAINING, steps=1)
    flops(size=8, products=2)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(part.training == mode for part in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize(
    ("sizes", "repeats", "message"),
    [
        ([100, 201], 3, "a benchmark on 201 samples: there are 200"),
        ([], 3, r"sizes \[\]"),
        ([0, 100], 3, r"sizes \[0, 100\]"),
        ([100], 0, "at least 1 repeat"),
    ],
)
def test_a_benchmark_that_cannot_be_made_is_named(
    sizes: list[int], repeats: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        time_training(
            model_with_dropout(), SAMPLES, TRAINING, sizes=sizes, repeats=repeats
        )


def test_a_cycle_is_timed_once_from_end_to_end() -> None:
    seconds = time_cycle(
        model_with_dropout(), SAMPLES, TRAINING, steps=3, clock=FakeClock(tick_s=2.0)
    )
    assert seconds == 2.0


def test_transfers_are_timed_in_bytes_after_one_that_is_not() -> None:
    clock, asked = FakeClock(), list[int]()

    def fetch(shards: int) -> int:
        # A connection costs 9 s, a request 0.25 s, 1,000 bytes a second.
        clock.wait(0.25 + (0.0 if asked else 9.0) + shards * 0.4)
        asked.append(shards)
        return shards * 400

    line = time_transfers(fetch, [2, 4], repeats=2, clock=clock)
    assert asked == [2, 2, 4, 2, 4]
    assert line.latency_s == pytest.approx(0.25)
    assert line.rate == pytest.approx(1000.0)


def test_a_transfer_of_nothing_is_named() -> None:
    with pytest.raises(ConfigError, match=r"amounts .* give finite numbers above 0"):
        time_transfers(lambda shards: 0, [1, 2], clock=FakeClock(tick_s=1.0))


class BusyDevice:
    """A batch costs 1 ms and 10 µs a sample, times the load of the moment."""

    def __init__(self, loads: Iterable[float]) -> None:
        self.clock, self._loads = FakeClock(), iter(loads)

    def batch(self, samples: int) -> None:
        load = next(self._loads, 1.0)
        self.clock.wait(load * (1e-3 + 1e-5 * samples))

    def benchmarked(self, sizes: list[int], repeats: int = 3) -> Line:
        return time_training(
            model_with_dropout(),
            SAMPLES,
            TRAINING,
            sizes=sizes,
            repeats=repeats,
            clock=self.clock,
            before_batch=self.batch,
        )

    def order_s(self, samples: int, epochs: int) -> float:
        """Seconds of an order of one batch an epoch, where nothing else runs."""
        return epochs * (1e-3 + 1e-5 * samples)


def test_passes_of_one_batch_are_not_taken_for_the_cost_of_a_call() -> None:
    # 4 samples take 1.04 ms and 8 take 1.08: for a line through them nearly all of it
    # is paid once in a call. Each batch costs it, so the line is 13 times too fast.
    naive = fit([4, 8], [1.04e-3, 1.08e-3])
    device = BusyDevice([])
    truth_s = device.order_s(8, 4530)
    assert naive.seconds(8 * 4530) < truth_s / 13
    # Noise of 4 % makes it a hundred times and more.
    assert fit([4, 8], [1.04e-3, 1.0405e-3]).seconds(8 * 4530) < truth_s / 200
    assert device.benchmarked([4, 8]).seconds(8 * 4530) >= 0.99 * truth_s


@pytest.mark.parametrize("sizes", [[8], [4, 8], [10], [100, 200]])
@pytest.mark.parametrize("seed", range(8))
def test_no_load_makes_a_device_promise_what_it_cannot_do(
    sizes: list[int], seed: int
) -> None:
    """However other work comes and goes, each order of such batches gets its time.

    Nor is the device thought slower than it was when it was busiest.
    """
    rng = np.random.default_rng(seed)
    bursts = np.where(rng.random(400) < rng.random(), rng.uniform(1, 50, 400), 1.0)
    loads = np.repeat(bursts, rng.integers(1, 20))
    device = BusyDevice(loads.tolist())
    line = device.benchmarked(sizes)
    size = min(sizes[-1], TRAINING.batch)
    truth_s = device.order_s(size, 1000)
    assert truth_s * 0.999 <= line.seconds(1000 * size) <= 50.001 * 2 * truth_s


def test_load_in_one_pass_of_three_makes_no_difference() -> None:
    # 5 passes of 8 are warm-up, then each lasts 20 ms: 19 of them, of which the first
    # are disturbed.
    busy = BusyDevice([1.0] * 5 + [30.0] * 16).benchmarked([8])
    calm = BusyDevice([]).benchmarked([8])
    assert busy.rate == pytest.approx(calm.rate)


def test_what_takes_no_time_is_repeated_so_that_it_does() -> None:
    device, passes = BusyDevice([]), 0
    began = device.clock.now
    device.benchmarked([8], repeats=1)
    passes = round((device.clock.now - began) / device.order_s(8, 1))
    assert passes == WARM_UP + MOST_PASSES  # 20 ms would be 19 passes


def test_a_download_is_never_thought_four_times_as_fast_as_it_ever_was() -> None:
    # 100 and 200 bytes, both in a second but for a microsecond: all latency, it seems.
    clock = FakeClock()

    def fetch(shards: int) -> int:
        clock.wait(1.0 + 1e-6 * shards)
        return 100 * shards

    line = time_transfers(fetch, [1, 2], clock=clock)
    assert line.rate == pytest.approx(4 * 200, rel=1e-3)


def test_flops_count_a_multiplication_and_an_addition_each() -> None:
    # 2·4³·10 operations between two looks, 0.5 s apart.
    assert flops(size=4, products=10, clock=FakeClock(tick_s=0.5)) == 2560.0


@pytest.mark.parametrize(("size", "products"), [(0, 1), (1, 0)])
def test_no_products_are_named(size: int, products: int) -> None:
    with pytest.raises(ConfigError, match="give at least 1 of each"):
        flops(size=size, products=products)


def test_products_that_take_no_time_are_named() -> None:
    with pytest.raises(ConfigError, match="make more or larger"):
        flops(size=2, products=1, clock=FakeClock())


def test_twice_the_flops_take_half_the_time() -> None:
    assert predicted_by_flops(10.0, 1e9, 2e9) == 5.0
    with pytest.raises(ConfigError, match="give finite numbers above 0"):
        predicted_by_flops(10.0, 1e9, 0.0)


def test_this_machine_has_a_speed() -> None:
    line = time_training(
        model_with_dropout(), SAMPLES, TRAINING, sizes=[100, 200], repeats=1
    )
    assert 0 < line.rate < math.inf
    assert line.latency_s >= 0
    assert 0 < flops(size=64, products=5) < math.inf
    assert machine().threads >= 1
    assert machine().cores >= 1


@pytest.mark.parametrize(
    ("within_s", "rounds"), [(math.inf, 5), (9.0, 4), (5.9, 2), (2.0, 1), (0.1, 1)]
)
def test_no_round_begins_that_would_end_too_late(within_s: float, rounds: int) -> None:
    clock, calls = FakeClock(), 0

    def fetch(shards: int) -> int:
        nonlocal calls
        calls += 1
        clock.wait(2.0)
        return shards

    time_transfers(fetch, [8], repeats=5, within_s=within_s, clock=clock)
    assert calls == 1 + rounds  # the first one warms up
