"""Splits in which what a learner has of each class and how much are apart."""

import zlib
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from melisma.errors import ConfigError
from melisma.learning.lengths import Lengths, Sizes, lengths_of
from melisma.learning.splits import dirichlet, iid, label_skew, mixes, uneven
from melisma.maths.arrays import Floats, Ints

seeds = st.integers(0, 2**32)
alphas = st.floats(1e-3, 1e3)
label_lists = st.lists(st.integers(0, 9), min_size=1, max_size=80)
lengths = st.sampled_from([Sizes.NORMAL, Sizes.POWER, Sizes.DIRICHLET]).map(lengths_of)


def length(sizes: Sizes, alpha: float = 1.0) -> Lengths:
    found = lengths_of(sizes, alpha)
    assert found is not None
    return found


def is_partition(parts: Sequence[Ints], rows: int) -> bool:
    together = np.sort(np.concatenate(parts))
    return together.dtype == np.int64 and np.array_equal(together, np.arange(rows))


def balanced_labels(each: int) -> Ints:
    return np.repeat(np.arange(10), each)


def counts_of(labels: Ints, parts: Sequence[Ints]) -> Ints:
    """Rows of each class (columns) at each learner (rows)."""
    return np.array([np.bincount(labels[part], minlength=10) for part in parts])


def shares_of(labels: Ints, parts: Sequence[Ints]) -> Floats:
    counts = counts_of(labels, parts)
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


@given(label_lists, st.data(), alphas, st.none() | lengths, seeds)
def test_mixes_deal_every_row_once_and_leave_nobody_without(
    labels: list[int],
    data: st.DataObject,
    alpha: float,
    drawn: Lengths | None,
    seed: int,
) -> None:
    learners = data.draw(st.integers(1, len(labels)))
    least = data.draw(st.integers(0, len(labels) // learners))
    rng = np.random.default_rng(seed)
    parts = mixes(np.array(labels), learners, alpha, rng, lengths=drawn, least=least)
    sizes = [len(part) for part in parts]
    assert len(parts) == learners
    assert is_partition(parts, len(labels))
    assert min(sizes) >= least
    assert drawn or max(sizes) - min(sizes) <= 1


@given(st.data(), lengths, seeds)
def test_uneven_parts_hold_every_row_once_and_enough(
    data: st.DataObject, drawn: Lengths, seed: int
) -> None:
    rows = data.draw(st.integers(1, 200))
    learners = data.draw(st.integers(1, rows))
    least = data.draw(st.integers(0, rows // learners))
    parts = uneven(rows, learners, drawn, np.random.default_rng(seed), least=least)
    assert len(parts) == learners
    assert is_partition(parts, rows)
    assert min(map(len, parts)) >= least


@given(st.data(), st.integers(1, 12), st.none() | lengths, st.integers(1, 9), seeds)
def test_learners_have_as_many_classes_as_they_drew(
    data: st.DataObject, learners: int, drawn: Lengths | None, least: int, seed: int
) -> None:
    fewest = data.draw(st.integers(-(-10 // learners), 10))
    most = data.draw(st.integers(fewest, 10))
    labels = np.random.default_rng(seed).permutation(balanced_labels(150))
    rng = np.random.default_rng(seed)
    parts = label_skew(
        labels, learners, (fewest, most), rng, lengths=drawn, least=least
    )
    held = (counts_of(labels, parts) > 0).sum(axis=1)
    assert is_partition(parts, 1_500)
    assert ((fewest <= held) & (held <= most)).all()
    assert min(map(len, parts)) >= least


def test_numbers_of_classes_are_uniform_and_so_are_the_classes() -> None:
    # 3, 4 or 5 of ten, a third each: 0.4 of the learners hold each class.
    labels = balanced_labels(10_000)
    parts = label_skew(labels, 3_000, (3, 5), np.random.default_rng(0))
    held = counts_of(labels, parts) > 0
    numbers = np.bincount(held.sum(axis=1), minlength=6)
    assert numbers[3:] / 3_000 == pytest.approx(np.full(3, 1 / 3), abs=0.04)
    assert held.mean(axis=0) == pytest.approx(np.full(10, 0.4), abs=0.04)


@pytest.mark.parametrize("seed", range(10))
def test_with_just_enough_learners_every_class_has_its_holder(seed: int) -> None:
    labels = balanced_labels(10)
    parts = label_skew(labels, 5, (2, 2), np.random.default_rng(seed))
    assert [len(part) for part in parts] == [20] * 5


def test_fedcompass_cuts_classes_in_parts_of_normal_lengths() -> None:
    # Parts of one class spread by 3/10 of their mean.
    labels, rng = balanced_labels(100_000), np.random.default_rng(0)
    parts = label_skew(labels, 200, (3, 5), rng, lengths=length(Sizes.NORMAL))
    counts = counts_of(labels, parts).astype(float)
    counts[counts == 0] = np.nan
    spread = np.nanstd(counts, axis=0) / np.nanmean(counts, axis=0)
    assert spread.mean() == pytest.approx(0.3, rel=0.05)


def test_fedprox_gives_five_of_two_classes_and_the_rest_by_a_power_law() -> None:
    # As FedProx's generator: 1,000 learners, at least 10 rows, 5 of either class; what
    # is above that is log-normal with σ = 2.
    labels, rng = balanced_labels(60_000), np.random.default_rng(0)
    parts = label_skew(labels, 1_000, 2, rng, lengths=length(Sizes.POWER), least=10)
    counts = counts_of(labels, parts)
    assert ((counts > 0).sum(axis=1) == 2).all()
    assert counts[counts > 0].min() >= 5
    assert np.median(counts[counts > 0] - 5) == pytest.approx(
        (60_000 - 200 * 5) / 200 * np.exp(-2), rel=0.2
    )
    above = np.log(counts[counts > 5] - 5)
    low, high = np.quantile(above, [0.5, 0.841])
    assert high - low == pytest.approx(2, rel=0.1)


def test_equal_amounts_of_dirichlet_mixtures_vary_as_the_distribution_does() -> None:
    # Var of one share of Dir(α) over C classes: (C−1) / (C²·(Cα + 1)).
    labels = balanced_labels(6_000)
    parts = mixes(labels, 100, 0.1, np.random.default_rng(0))
    shares = shares_of(labels, parts)
    assert [len(part) for part in parts] == [600] * 100
    assert shares.mean(axis=0) == pytest.approx(np.full(10, 0.1), abs=1e-12)
    assert shares.var() == pytest.approx(0.09 / 2, rel=0.1)


def test_mixtures_are_drawn_around_the_classes_shares() -> None:
    labels = np.repeat([0, 1], [9_000, 3_000])
    parts = mixes(
        labels, 300, 1e4, np.random.default_rng(0), lengths=length(Sizes.POWER)
    )
    large = [part for part in parts if len(part) > 100]
    assert shares_of(labels, large)[:, 0] == pytest.approx(0.75, abs=0.02)


def as_appfl(prior: Floats, learners: int, seed: int) -> Floats:
    """Shares of classes by FedCompass's formula, with α₁ = m and α₂ = 0.5."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(learners))
    shares = weights[:, None] * rng.dirichlet(0.5 * prior, learners)
    return np.asarray(shares / shares.sum(axis=0))


def test_the_dual_dirichlet_is_fedcompass_s() -> None:
    # The same second moments, of amounts and of parts of classes, over 200 seeds.
    labels, seeds = balanced_labels(1_000), range(200)
    drawn = length(Sizes.DIRICHLET)
    ours = np.array(
        [
            counts_of(
                labels,
                mixes(labels, 10, 0.05, np.random.default_rng(seed), lengths=drawn),
            )
            for seed in seeds
        ]
    )
    theirs = 1_000 * np.array([as_appfl(np.full(10, 0.1), 10, s) for s in seeds])
    assert (ours.sum(axis=1) == 1_000).all()
    assert ours.std() == pytest.approx(theirs.std(), rel=0.03)
    amounts, expected = ours.sum(axis=2), theirs.sum(axis=2)
    assert amounts.std() == pytest.approx(expected.std(), rel=0.06)


def test_uneven_amounts_of_one_mixture() -> None:
    # Dir(1) of m learners: their amounts are nearly exponential, spread as their mean.
    labels, rng = balanced_labels(6_000), np.random.default_rng(0)
    parts = uneven(60_000, 200, length(Sizes.DIRICHLET), rng)
    sizes = np.array([len(part) for part in parts])
    large = [labels[part] for part in parts if len(part) > 500]
    assert sizes.std() / sizes.mean() == pytest.approx(1, rel=0.15)
    assert all(len(np.unique(part)) == 10 for part in large)


@pytest.mark.parametrize(
    "split",
    [
        lambda labels, rng: mixes(labels, 7, 0.3, rng),
        lambda labels, rng: mixes(labels, 7, 0.3, rng, lengths=length(Sizes.DIRICHLET)),
        lambda labels, rng: label_skew(
            labels, 7, (3, 5), rng, lengths=length(Sizes.NORMAL)
        ),
        lambda labels, rng: uneven(len(labels), 7, length(Sizes.POWER), rng),
    ],
)
def test_the_same_seed_gives_the_same_split(
    split: Callable[[Ints, np.random.Generator], list[Ints]],
) -> None:
    def rows(seed: int) -> list[list[int]]:
        parts = split(balanced_labels(50), np.random.default_rng(seed))
        return [part.tolist() for part in parts]

    assert rows(5) == rows(5)
    assert rows(5) != rows(6)


def test_older_splits_are_what_they_were() -> None:
    # Sums made before there were sizes.
    labels = np.random.default_rng(1).permutation(balanced_labels(60))

    def checksum(parts: list[Ints]) -> int:
        rows = np.concatenate([np.r_[len(part), part] for part in parts])
        return zlib.crc32(rows.astype("<i8").tobytes())

    def rng() -> np.random.Generator:
        return np.random.default_rng(5)

    assert checksum(iid(600, 7, rng())) == 206259588
    assert checksum(dirichlet(labels, 30, 0.1, rng(), least=3)) == 1433727440
    assert checksum(label_skew(labels, 30, 3, rng())) == 3263510510


def test_ten_thousand_learners_can_share_unevenly() -> None:
    rng = np.random.default_rng(0)
    labels = rng.permutation(balanced_labels(6_000))
    power = length(Sizes.POWER)
    for parts in (
        uneven(60_000, 10_000, power, rng),
        mixes(labels, 10_000, 0.1, rng),
        mixes(labels, 10_000, 0.1, rng, lengths=power),
        label_skew(labels, 10_000, (1, 3), rng, lengths=power),
    ):
        assert len(parts) == 10_000
        assert is_partition(parts, 60_000)


def test_impossible_splits_are_refused_with_their_numbers() -> None:
    rng, power = np.random.default_rng(0), length(Sizes.POWER)
    labels = balanced_labels(2)
    with pytest.raises(ConfigError, match=r"20 rows .* 7 learners at least 3"):
        uneven(20, 7, power, rng, least=3)
    with pytest.raises(ConfigError, match=r"20 rows .* 7 learners at least 3"):
        mixes(labels, 7, 1.0, rng, least=3)
    with pytest.raises(ConfigError, match="alpha is 0: give a number from"):
        mixes(labels, 7, 0, rng)
    with pytest.raises(ConfigError, match=r"4 learners of 2 classes .* at least 5"):
        label_skew(labels, 4, (2, 4), rng)
    with pytest.raises(ConfigError, match="11 classes per learner: give 1 to 10"):
        label_skew(labels, 4, (3, 11), rng)
    with pytest.raises(
        ConfigError, match="2 rows for the 1 learners that hold it, of which each needs"
    ):
        label_skew(labels, 10, 1, rng, lengths=power, least=3)
