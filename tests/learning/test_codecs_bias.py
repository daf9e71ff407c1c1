"""What codecs say of their bias and variance, held by many draws of fixed seeds."""

import numpy as np
import pytest
import torch

from melisma.learning.codecs import CODECS, Codec, codec_of
from melisma.learning.codecs.floats import Fp16
from melisma.maths.arrays import Floats

#: Standard errors that a mean of many draws may be off: beyond, the test has failed.
#: 5 of a normal distribution are 6·10⁻⁷, so 10⁴ values do not come there by chance.
ERRORS = 5


def drawn(codec: Codec, x: Floats, repeats: int) -> Floats:
    """Return C(x) for so many seeds, one a row."""
    tensors = {"x": torch.from_numpy(x.astype(np.float32))}
    rows = [
        codec.decode(codec.encode(tensors, seed), tensors)["x"].numpy()
        for seed in range(repeats)
    ]
    return np.array(rows, float)


def off(rows: Floats, x: Floats) -> Floats:
    """Return how far the mean of each value is off, over what chance allows.

    What is drawn once in so many times may not have been seen, hence the second term.
    """
    error = rows.std(axis=0, ddof=1) / np.sqrt(len(rows))
    rare = (rows.max() - rows.min()) / len(rows)
    mean: Floats = rows.mean(axis=0)
    far: Floats = np.abs(mean - x.astype(np.float32)) / (ERRORS * error + rare)
    return far


def values(size: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal(size)


@pytest.mark.parametrize("written", ["int8", "int4", "int4 32", "random-k 10 %"])
def test_unbiased_codecs_give_a_value_in_the_mean(written: str) -> None:
    codec, x = codec_of(written), values(700)
    assert codec.unbiased
    assert off(drawn(codec, x, 1000), x).max() < 1


@pytest.mark.parametrize("written", ["top-k 10 %", "powersgd 1"])
def test_the_same_test_tells_a_biased_codec(written: str) -> None:
    codec, x = codec_of(written), values(700).reshape(35, 20)
    assert not codec.unbiased
    assert off(drawn(codec, x, 200), x).max() > 1


def test_rounding_is_right_wherever_a_value_is_between_two_integers() -> None:
    # A quarter of a million values, all the same part p of a step above an integer:
    # their mean is good to 0.5/512 of a step, and to the 8 bits that they do not share.
    for p in (1 / 512, 0.1, 0.5, 0.9, 511 / 512):
        x = np.full(1 << 18, 3 + p)
        x[::256] = 127 / (1 + 2.0**-16) * (1 - 2.0**-20)  # a scale of 1
        rows = drawn(codec_of("int8"), x, 1)
        inner = rows.reshape(-1, 256)[:, 1:]
        assert set(np.unique(inner)) == {3, 4}
        assert abs(inner.mean() - (3 + p)) < ERRORS * 0.5 / 512 + 2.0**-9


def test_eight_bits_alone_would_not_do() -> None:
    # Between two multiples of 1/256 of a step; a chunk's shared bits decide. Over 400
    # seeds of 255 values the mean is good to 0.07/√(10⁵) of a step, and that of 8 bits
    # would be off by 1/512 of it, nine times as much.
    p = 1 / 512
    x = np.full(256, 3 + p)
    x[0] = 127 / (1 + 2.0**-16) * (1 - 2.0**-20)
    rows = drawn(codec_of("int8"), x, 400)[:, 1:]
    error = np.sqrt(p * (1 - p) / rows.size)
    assert 2 * ERRORS * error < 1 / 512
    assert abs(rows.mean() - 3 - p) < ERRORS * error


@pytest.mark.parametrize("written", ["int8", "int4", "int4 32", "random-k 10 %"])
@pytest.mark.parametrize("size", [1, 40, 700])
def test_the_variance_is_not_above_its_bound(written: str, size: int) -> None:
    codec, x = codec_of(written), values(size, seed=size)
    omega = codec.variance(size)
    assert omega is not None
    squares = ((drawn(codec, x, 200) - x) ** 2).sum(axis=1) / (x**2).sum()
    error = squares.std(ddof=1) / np.sqrt(len(squares))
    assert squares.mean() <= omega + ERRORS * error + 1e-12


def test_the_bound_of_integers_is_not_far_from_the_worst_case() -> None:
    # One large value, and all others half a step above 0: b/(4·L²) but for the large
    # one's norm, which theirs is to be small against.
    x = np.full(256, 0.5)
    x[0] = 127 / (1 + 2.0**-16) * (1 - 2.0**-20)
    omega = codec_of("int8").variance(256)
    assert omega is not None
    found = ((drawn(codec_of("int8"), x, 300) - x) ** 2).sum(axis=1) / (x**2).sum()
    assert 0.95 * omega < found.mean() < omega


def test_random_k_has_the_variance_that_is_said() -> None:
    codec, x = codec_of("random-k 10 %"), values(500)
    found = ((drawn(codec, x, 1000) - x) ** 2).sum(axis=1) / (x**2).sum()
    error = found.std(ddof=1) / np.sqrt(len(found))
    assert codec.variance(500) == pytest.approx(9)
    assert abs(found.mean() - 9) < ERRORS * error


def test_random_k_draws_every_place_equally_often() -> None:
    there = drawn(codec_of("random-k 10 %"), np.ones(200), 1000) != 0
    often = there.mean(axis=0)
    assert np.abs(often - 0.1).max() < ERRORS * np.sqrt(0.1 * 0.9 / 1000)
    # And pairs: two given places together in k(k−1)/n(n−1) of the draws.
    together = (there[:, :-1] & there[:, 1:]).mean()
    assert together == pytest.approx(20 * 19 / 200 / 199, rel=0.1)


@pytest.mark.parametrize("written", ["fp16", "bf16", "top-k 10 %", "powersgd 2"])
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e4])
def test_biased_codecs_contract_as_they_say(written: str, scale: float) -> None:
    codec, x = codec_of(written), scale * values(600).reshape(30, 20)
    delta = codec.contraction(x.size)
    assert delta is not None
    (row,) = drawn(codec, x, 1)
    exact = x.astype(np.float32)
    assert ((row - exact) ** 2).sum() <= (1 - delta) * (x**2).sum() * (1 + 1e-5)


def test_the_contraction_of_top_k_is_reached_by_equal_values() -> None:
    (row,) = drawn(codec_of("top-k 10 %"), np.ones(500), 1)
    assert ((row - 1) ** 2).sum() / 500 == pytest.approx(1 - 0.1)


def test_a_codec_has_a_variance_or_a_contraction() -> None:
    for kind in CODECS.values():
        codec = codec_of(kind.example)
        assert (codec.variance(100) is None) != codec.unbiased
        assert (codec.contraction(100) is None) == codec.unbiased


def test_what_fp16_is_too_short_for_becomes_nothing() -> None:
    assert Fp16().contraction(1) == 0
    assert drawn(Fp16(), np.array([2e-8]), 1).tolist() == [[0.0]]
