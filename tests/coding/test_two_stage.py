"""Two stages: what is reused, who helps, and what may still go wrong."""

from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from tests.coding.codes import TESTBED, gradients, patterns, spans

from melisma.coding import Code, NotDecodable, Rest, TwoStage, two_stage
from melisma.coding.spanning import spanning
from melisma.errors import ConfigError
from melisma.maths.arrays import Bools, Floats

VARIANTS: list[dict[str, Any]] = [
    {"helpers": "finished"},
    {"helpers": "finished", "coded": "ring"},
    {"helpers": "finished", "trusting": True},
    {"helpers": "finished", "first": 3},
    {"helpers": "reserved"},
    {"helpers": "reserved", "coded": "blocks"},
    {"helpers": "ring"},
]


def finished_sets(scheme: TwoStage) -> list[list[int]]:
    """All sets of workers who may have finished stage one, but for all of them."""
    busy = np.flatnonzero(scheme.loads).tolist()
    return [list(c) for n in range(len(busy)) for c in combinations(busy, n)]


def rows_missing(scheme: TwoStage, rest: Rest, missing: int) -> list[Bools]:
    """Who answers in stage two, for all ways to miss so many of its workers."""
    rows = np.flatnonzero(rest.loads)
    found = []
    for alive in patterns(rows.size, missing):
        mask = np.zeros(scheme.workers, dtype=np.bool_)
        mask[rows[alive]] = True
        found.append(mask)
    return found


def whole(scheme: TwoStage, rest: Rest, finished: list[int], alive: Bools) -> float:
    """Relative error of the gradient of both stages."""
    g = gradients(scheme)
    first = scheme.encode(g)[finished].sum(axis=0)
    found = first + rest.decode(alive) @ rest.encode(g)
    return float(np.linalg.norm(found - g.sum(axis=0)) / np.linalg.norm(g.sum(axis=0)))


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize(("workers", "s"), [(3, 1), (4, 2), (5, 1), (6, 2)])
def test_any_finished_and_any_later_stragglers_are_survived(
    variant: dict[str, Any], workers: int, s: int
) -> None:
    speeds = np.random.default_rng(workers).uniform(1.0, 4.0, workers)
    scheme = two_stage(
        workers=workers, stragglers=s, speeds=speeds, partitions=17, **variant
    )
    for finished in finished_sets(scheme):
        rest = scheme.rest(finished)
        for alive in rows_missing(scheme, rest, rest.stragglers):
            assert whole(scheme, rest, finished, alive) < 1e-9


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_stage_two_is_decodable_just_where_its_rows_allow_it(
    variant: dict[str, Any],
) -> None:
    scheme = two_stage(workers=5, stragglers=2, partitions=23, **variant)
    for finished in finished_sets(scheme):
        code = scheme.rest(finished).code
        for alive in patterns(5, 5):
            assert code.decodable(alive) == spans(code, alive)


def test_as_many_as_wanted_are_tolerated_if_there_are_helpers() -> None:
    scheme = two_stage(workers=6, stragglers=3)
    tolerated = {
        len(finished): scheme.rest(finished).stragglers
        for finished in finished_sets(scheme)
    }
    assert tolerated == {0: 0, 1: 1, 2: 2, 3: 3, 4: 3, 5: 3}


def test_who_trusts_tolerates_no_more_than_the_late() -> None:
    scheme = two_stage(workers=6, stragglers=3, trusting=True)
    assert scheme.rest([0, 1, 2, 3, 4]).stragglers == 1
    assert scheme.rest([0, 1, 2, 3]).stragglers == 2
    assert scheme.rest([0]).stragglers == 1


@pytest.mark.parametrize("s", [1, 2, 3])
def test_all_the_late_may_stay_away_if_the_helpers_answer(s: int) -> None:
    scheme = two_stage(workers=6, stragglers=s)
    for finished in finished_sets(scheme)[1:]:
        rest = scheme.rest(finished)
        assert rest.decode(rest.helpers) @ rest.loads >= rest.partitions


def test_the_unfinished_keep_their_blocks() -> None:
    for variant in VARIANTS:
        scheme = two_stage(workers=6, stragglers=2, speeds=TESTBED, **variant)
        busy = np.flatnonzero(scheme.loads)
        rest = scheme.rest(busy[1:])
        assert rest.unfinished.tolist() == [busy[0]]
        assert rest.work(busy[0]).tolist() == scheme.work(busy[0]).tolist()
        assert rest.left.tolist() == scheme.work(busy[0]).tolist()


def test_helpers_hold_s_copies_of_what_is_left() -> None:
    # Eq. (16): (s + 1)(K − K_c) copies, less those that the unfinished have.
    for variant, s in product(VARIANTS[:2], (1, 2)):
        scheme = two_stage(workers=6, stragglers=s, speeds=TESTBED, **variant)
        rest = scheme.rest([2, 3, 4, 5])
        copies = np.zeros(scheme.partitions, dtype=np.int64)
        for w in rest.helpers:
            copies[rest.work(w)] += 1
        assert (copies[rest.left] == s).all()
        assert copies.sum() == s * rest.partitions


def share(rest: Rest, speeds: Floats) -> Floats:
    """Part of the helpers' work of each helper, for its part of their speed."""
    loads, v = rest.loads[rest.helpers], speeds[rest.helpers]
    return np.asarray((loads / loads.sum()) / (v / v.sum()))


def test_loads_of_helpers_follow_speeds_as_in_equation_16() -> None:
    for variant, s in [(VARIANTS[0], 1), (VARIANTS[1], 1), (VARIANTS[1], 2)]:
        scheme = two_stage(
            workers=6, stragglers=s, speeds=TESTBED, partitions=2800, **variant
        )
        rest = scheme.rest([0, 2, 3, 4])
        assert share(rest, TESTBED) == pytest.approx(np.ones(4), rel=0.02)


def test_one_group_of_helpers_is_fast_and_the_others_are_spare() -> None:
    # s = 2: shares √0.95 and √0.05, so 81 % of the speed for the first group.
    speeds = np.random.default_rng(0).uniform(1.0, 2.0, 101)
    scheme = two_stage(workers=101, stragglers=2, speeds=speeds, partitions=400_000)
    rest = scheme.rest(range(100))
    v = speeds[rest.helpers]
    seconds = rest.loads[rest.helpers] / v
    fast = seconds < np.median(seconds) * 1.5
    assert v[fast].sum() / v.sum() == pytest.approx(0.81, abs=0.03)
    assert rest.code.decodable(rest.helpers[fast])
    assert rest.code.decodable(rest.helpers[~fast])


def test_nobody_but_the_reserved_help_in_the_papers_scheme() -> None:
    scheme = two_stage(workers=6, stragglers=1, helpers="reserved", first=[0, 1, 4])
    assert (scheme.loads > 0).tolist() == [True, True, False, False, True, False]
    rest = scheme.rest([0])
    assert (rest.unfinished.tolist(), rest.helpers.tolist()) == ([1, 4], [2, 3, 5])


def papers(rest: Rest, seed: int = 0) -> Code:
    """The same layout with the coefficients of the paper: A random, any columns."""
    helpers = rest.helpers[rest.loads[rest.helpers] > 0]
    holders: list[list[int]] = [[] for _ in range(rest.partitions)]
    for w in [*rest.unfinished.tolist(), *helpers.tolist()]:
        for k in rest.code.work(w).tolist():
            holders[k].append(w)
    rng = np.random.default_rng(seed)
    return spanning(np.array(holders), rest.code.workers, rng)


@pytest.mark.parametrize("instance", range(12))
def test_a_ring_bears_whatever_the_papers_own_coefficients_bear(instance: int) -> None:
    rng = np.random.default_rng([13, instance])
    workers = int(rng.integers(3, 7))
    s = int(rng.integers(1, workers - 1))
    first = rng.permutation(workers)[: rng.integers(1, workers - s + 1)].tolist()
    scheme = two_stage(
        workers=workers,
        stragglers=s,
        speeds=rng.uniform(1.0, 4.0, workers),
        partitions=int(rng.integers(workers, 20)),
        helpers="ring",
        first=first,
        seed=instance,
    )
    for finished in finished_sets(scheme):
        rest = scheme.rest(finished)
        assert rest.stragglers == s
        theirs = papers(rest)
        for alive in patterns(workers, workers):
            missing = int((rest.loads[~alive] > 0).sum())
            assert missing > s or spans(rest.code, alive)
            assert spans(rest.code, alive) or not spans(theirs, alive)
            assert rest.code.decodable(alive) == spans(rest.code, alive)


@pytest.mark.parametrize("s", [0, 1, 2, 3])
def test_who_carries_on_in_a_ring_sends_the_plain_sum_it_began(s: int) -> None:
    scheme = two_stage(
        workers=7, stragglers=s, helpers="ring", first=[0, 2, 3, 5], partitions=30
    )
    for finished in finished_sets(scheme):
        rest = scheme.rest(finished)
        for w in rest.unfinished:
            assert (rest.row(w) == 1.0).all()
        weights = rest.decode(rest.unfinished)  # though no helper has answered
        assert weights[rest.unfinished] == pytest.approx(1.0)


def test_the_coefficients_of_a_ring_are_of_moderate_size() -> None:
    for s in (1, 2, 3):
        scheme = two_stage(workers=12, stragglers=s, helpers="ring", partitions=120)
        code = scheme.rest([]).code
        assert np.abs(code.matrix.data).max() < 10.0
        worst = max(code.amplification(code.decode(alive)) for alive in patterns(12, s))
        assert worst < 1000.0


def test_stage_one_is_uncoded_and_says_what_to_do() -> None:
    scheme = two_stage(workers=4, stragglers=1)
    assert scheme.decode(range(4)).tolist() == [1.0] * 4
    with pytest.raises(NotDecodable, match=r"Stage one needs all: .* rest\(\)"):
        scheme.decode([0, 1, 2])


@pytest.mark.parametrize("finished", [[0, 1, 2, 3], [4]])
def test_finished_must_be_some_of_stage_one(finished: list[int]) -> None:
    scheme = two_stage(workers=5, stragglers=1, helpers="reserved", first=[0, 1, 2, 3])
    with pytest.raises(ConfigError, match="give some of them, but not all"):
        scheme.rest(finished)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"helpers": "nobody"}, "helpers is 'nobody'"),
        ({"coded": "prose"}, "coded 'prose'"),
        ({"first": 0}, "first is 0 of 4 workers: 1 to 4 of them can start"),
        ({"first": [1, 7]}, r"first is \[1, 7\] of 4 workers"),
        ({"first": 4, "helpers": "reserved"}, "1 to 3 of them can start"),
        ({"coded": "blocks", "helpers": "ring"}, "leave coded out"),
    ],
)
def test_bad_schemes_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        two_stage(workers=4, stragglers=1, **changes)
