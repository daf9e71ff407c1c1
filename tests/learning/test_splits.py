from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from melisma.errors import ConfigError
from melisma.learning.splits import dirichlet, iid, label_skew, shards
from melisma.maths.arrays import Ints

seeds = st.integers(0, 2**32)
alphas = st.floats(1e-3, 1e3)
label_lists = st.lists(st.integers(0, 9), min_size=1, max_size=80)


def is_partition(parts: Sequence[Ints], rows: int) -> bool:
    together = np.sort(np.concatenate(parts))
    return together.dtype == np.int64 and np.array_equal(together, np.arange(rows))


def balanced_labels(each: int) -> Ints:
    return np.repeat(np.arange(10), each)


@given(st.integers(1, 100), st.data())
def test_shards_are_full_and_in_order(rows: int, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, rows))
    whole = rows // size * size
    parts = shards(np.arange(rows), size)
    assert parts.shape == (rows // size, size)
    assert parts.ravel().tolist() == list(range(whole))


@given(st.data(), seeds)
def test_iid_deals_every_row_once_and_evenly(data: st.DataObject, seed: int) -> None:
    rows = data.draw(st.integers(1, 200))
    learners = data.draw(st.integers(1, rows))
    parts = iid(rows, learners, np.random.default_rng(seed))
    assert len(parts) == learners
    assert is_partition(parts, rows)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(st.data(), label_lists, alphas, seeds)
def test_dirichlet_deals_every_row_once_and_to_everyone_enough(
    data: st.DataObject, labels: list[int], alpha: float, seed: int
) -> None:
    learners = data.draw(st.integers(1, len(labels)))
    least = data.draw(st.integers(0, len(labels) // learners))
    rng = np.random.default_rng(seed)
    parts = dirichlet(np.array(labels), learners, alpha, rng, least)
    assert len(parts) == learners
    assert is_partition(parts, len(labels))
    assert min(map(len, parts)) >= least


def class_shares(alpha: float, learners: int) -> Ints:
    """Rows of each class (columns) at each learner (rows)."""
    labels = balanced_labels(600)
    parts = dirichlet(labels, learners, alpha, np.random.default_rng(0), least=0)
    return np.array([np.bincount(labels[part], minlength=10) for part in parts])


def test_a_great_alpha_gives_everyone_the_same_mixture() -> None:
    # Expected 600/10 = 60 of each class; Dir(1e6) strays by about 0.2.
    assert np.abs(class_shares(1e6, 10) - 60).max() <= 1


def test_dirichlet_shares_vary_as_the_distribution_does() -> None:
    # Var of one share of Dir(α) over K learners: (K−1) / (K²·(Kα + 1)).
    shares = class_shares(0.5, 100) / 600
    assert shares.var() == pytest.approx(99 / (100**2 * 51), rel=0.15)


def test_a_small_alpha_gives_a_class_to_one_learner() -> None:
    assert (class_shares(1e-6, 10).max(axis=0) == 600).all()


def test_who_has_rows_to_spare_keeps_most_of_them() -> None:
    # Ten classes each at one learner; the other 40 learners want 2 rows each: 80 of
    # 6,000 move, so 5,920 stay with at most ten learners.
    labels = balanced_labels(600)
    parts = dirichlet(labels, 50, 1e-6, np.random.default_rng(1), least=2)
    sizes = np.sort([len(part) for part in parts])
    assert sizes[:40].tolist() == [2] * 40
    assert sizes[40:].sum() == 5_920


@given(st.data(), st.integers(1, 30), seeds)
def test_label_skew_gives_everyone_exactly_that_many_classes(
    data: st.DataObject, learners: int, seed: int
) -> None:
    fewest = -(-10 // learners)
    each = data.draw(st.integers(fewest, 10))
    labels = np.random.default_rng(seed).permutation(balanced_labels(30))
    parts = label_skew(labels, learners, each, np.random.default_rng(seed))
    assert is_partition(parts, 300)
    assert [len(np.unique(labels[part])) for part in parts] == [each] * learners


def test_label_skew_is_even() -> None:
    # 20 learners of 2 classes: 4 hold each class and take 25 of its 100 rows.
    parts = label_skew(balanced_labels(100), 20, 2, np.random.default_rng(0))
    assert [len(part) for part in parts] == [50] * 20


def test_labels_need_not_be_consecutive() -> None:
    labels = np.array([3, 3, 70, 70])
    parts = label_skew(labels, 2, 1, np.random.default_rng(0))
    assert sorted(part.tolist() for part in parts) == [[0, 1], [2, 3]]


def test_the_same_seed_gives_the_same_split() -> None:
    labels = balanced_labels(50)

    def split(seed: int) -> list[list[int]]:
        rng = np.random.default_rng(seed)
        parts = [*iid(500, 7, rng), *dirichlet(labels, 7, 0.3, rng)]
        return [part.tolist() for part in (*parts, *label_skew(labels, 7, 3, rng))]

    assert split(5) == split(5)
    assert split(5) != split(6)


def test_ten_thousand_learners_can_share() -> None:
    rng = np.random.default_rng(0)
    labels = rng.permutation(balanced_labels(6_000))
    for parts in (
        list(shards(np.arange(60_000), 6)),
        iid(60_000, 10_000, rng),
        dirichlet(labels, 10_000, 0.1, rng),
        label_skew(labels, 10_000, 2, rng),
    ):
        assert len(parts) == 10_000
        assert is_partition(parts, 60_000)


def test_impossible_splits_are_refused_with_their_numbers() -> None:
    rng = np.random.default_rng(0)
    labels = balanced_labels(2)
    with pytest.raises(ConfigError, match="a shard of 0 rows: give 1 to 20"):
        shards(labels, 0)
    with pytest.raises(ConfigError, match="a shard of 21 rows"):
        shards(labels, 21)
    with pytest.raises(ConfigError, match="3 rows cannot give each of 4 learners"):
        iid(3, 4, rng)
    with pytest.raises(ConfigError, match="0 learners: give at least 1"):
        iid(3, 0, rng)
    with pytest.raises(ConfigError, match=r"20 rows .* 7 learners at least 3"):
        dirichlet(labels, 7, 1.0, rng, least=3)
    with pytest.raises(ConfigError, match="at least -1 rows"):
        dirichlet(labels, 7, 1.0, rng, least=-1)
    with pytest.raises(ConfigError, match=r"4 learners of 2 classes .* at least 5"):
        label_skew(labels, 4, 2, rng)
    with pytest.raises(ConfigError, match="11 classes per learner: give 1 to 10"):
        label_skew(labels, 4, 11, rng)
    with pytest.raises(ConfigError, match="has 2 rows for the 3 learners"):
        label_skew(labels, 15, 2, rng)


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan"), float("inf"), 1e308])
def test_alpha_must_be_finite_and_above_zero(alpha: float) -> None:
    with pytest.raises(ConfigError, match="alpha is"):
        dirichlet(balanced_labels(2), 5, alpha, np.random.default_rng(0))
