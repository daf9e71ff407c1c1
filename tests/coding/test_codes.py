"""All codes: what is decoded, when, and how exactly."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.coding.codes import (
    CODED,
    decode_error,
    gradients,
    make,
    patterns,
    sampled,
    spans,
)

from melisma.coding import CODES, NotDecodable, cyclic, fractional, hetero, uncoded
from melisma.errors import ConfigError, InfeasibleError


@pytest.mark.parametrize("name", CODED)
@pytest.mark.parametrize("workers", range(1, 8))
def test_any_s_may_be_missing(name: str, workers: int) -> None:
    for s in range(workers):
        code = make(name, workers, s)
        g = gradients(code)
        answers = code.encode(g)
        for alive in patterns(workers, s):
            weights = code.decode(alive)
            assert (weights[~alive] == 0).all()
            assert decode_error(code, alive, g, answers) < 1e-9


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(["fractional", "hetero"]),
    workers=st.integers(1, 25),
    seed=st.integers(0, 2**32),
    data=st.data(),
)
def test_any_s_may_be_missing_whatever_the_speeds(
    name: str, workers: int, seed: int, data: st.DataObject
) -> None:
    s = data.draw(st.integers(0, workers - 1))
    speeds = data.draw(
        st.lists(st.floats(0.01, 100.0), min_size=workers, max_size=workers)
    )
    code = CODES[name](workers=workers, stragglers=s, seed=seed, speeds=speeds)
    g = gradients(code)
    for alive in sampled(workers, s, 4, seed):
        assert decode_error(code, alive, g, code.encode(g)) < 1e-6


# The worst patterns of the specification: 2e-10 cyclic, 4e-12 hetero, 3e-16 fractional.
@pytest.mark.parametrize("s", [10, 30])
@pytest.mark.parametrize(
    ("name", "worst"), [("cyclic", 2e-10), ("hetero", 2e-10), ("fractional", 2e-15)]
)
def test_a_hundred_workers_are_decoded_to_many_digits(
    name: str, s: int, worst: float
) -> None:
    code = make(name, 100, s)
    g = gradients(code, parameters=50)
    answers = code.encode(g)
    for alive in sampled(100, s, 200):
        assert decode_error(code, alive, g, answers) < worst


@pytest.mark.parametrize("name", CODED)
def test_three_hundred_workers_are_decoded(name: str) -> None:
    code = make(name, 300, 30)
    g = gradients(code)
    answers = code.encode(g)
    for alive in sampled(300, 30, 20):
        assert decode_error(code, alive, g, answers) < 1e-6


@pytest.mark.parametrize("name", ["uncoded", *CODED])
@pytest.mark.parametrize(("workers", "s"), [(4, 1), (5, 2), (6, 1), (6, 2)])
def test_decodable_is_just_what_spans_all_ones(name: str, workers: int, s: int) -> None:
    for seed in range(3):
        code = make(name, workers, s, seed)
        for alive in patterns(workers, workers):
            assert code.decodable(alive) == spans(code, alive)


@pytest.mark.parametrize(("workers", "s"), [(6, 1), (6, 2), (8, 3)])
def test_equal_loads_that_coincide_are_decoded_beyond_s(workers: int, s: int) -> None:
    # Laid end to end on the ring, the arcs of some workers are the same.
    code = hetero(workers=workers, stragglers=s)
    beyond = 0
    for alive in patterns(workers, workers):
        assert code.decodable(alive) == spans(code, alive)
        beyond += code.decodable(alive) and int((~alive).sum()) > s
    assert beyond > 0


def test_uncoded_needs_everybody_whatever_it_is_told() -> None:
    code = uncoded(workers=3, stragglers=2, partitions=6)
    assert code.stragglers == 0
    assert code.decode([0, 1, 2]).tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(NotDecodable):
        code.decode([0, 1])


def test_fractional_repetition_is_that_of_the_paper_where_it_divides() -> None:
    # 6 workers, s = 2: two classes of three workers with the same three partitions.
    code = fractional(workers=6, stragglers=2)
    assert code.partitions == 6
    assert [code.work(w).tolist() for w in range(6)] == [[0, 1, 2]] * 3 + [
        [3, 4, 5]
    ] * 3


def test_blocks_of_different_groups_are_added_and_subtracted() -> None:
    # Group 0 has blocks of 6 and 3 partitions, group 1 of 5 and 4:
    # 0 … 9 = [0, 6) − [5, 6) + [5, 9) is no combination of two blocks, but of one
    # group's alone; a third group of one block [5, 6) makes it one of three.
    from melisma.coding.blocks import Blocks

    start, stop = np.array([0, 6, 0, 5, 5]), np.array([6, 9, 5, 9, 6])
    code = Blocks.of(start, stop, 9, 0)
    assert not code.decodable([0, 3])
    assert code.decode([0, 3, 4]).tolist() == [1.0, 0.0, 0.0, 1.0, -1.0]


def test_cyclic_gives_everybody_s_plus_1_neighbours() -> None:
    code = cyclic(workers=5, stragglers=1)
    assert [code.work(w).tolist() for w in range(5)] == [
        [0, 1],
        [1, 2],
        [2, 3],
        [3, 4],
        [0, 4],
    ]


@pytest.mark.parametrize("name", ["uncoded", "fractional", "hetero", "two-stage"])
def test_loads_follow_speeds(name: str) -> None:
    # Two groups of 14: all that fractional needs to be even, too.
    speeds = np.array([2.0, 2.0, 4.0, 4.0, 8.0, 8.0])
    code = CODES[name](workers=6, stragglers=1, speeds=speeds)
    part = code.loads / code.partitions
    copies = part.sum()
    assert (part / speeds).max() <= 1.02 * copies / speeds.sum()


@pytest.mark.parametrize("name", ["uncoded", *CODED, "two-stage"])
def test_a_worker_alone_answers_what_its_row_says(name: str) -> None:
    code = make(name, 7, 2)
    g = gradients(code)
    answers = code.matrix.toarray() @ g
    assert code.encode(g) == pytest.approx(answers)
    for w in np.flatnonzero(code.loads).tolist():
        own = [g[k] for k in code.work(w)]
        assert code.answer(w, own) == pytest.approx(answers[w])


@pytest.mark.parametrize("name", ["uncoded", *CODED])
def test_best_effort_is_the_nearest_and_states_its_error(name: str) -> None:
    code = make(name, 8, 2)
    B = code.matrix.toarray()
    for alive in sampled(8, 5, 10):
        weights, error = code.best_effort(alive)
        rows = B[alive]
        nearest = np.linalg.lstsq(rows.T, np.ones(code.partitions))[0] @ rows
        assert error == pytest.approx(np.sqrt(np.mean((nearest - 1.0) ** 2)), abs=1e-9)
        # Orthonormal gradients: the decoded sum is off by just the stated part.
        g = np.eye(code.partitions)
        found = weights @ code.encode(g)
        whole = g.sum(axis=0)
        off = np.linalg.norm(found - whole) / np.linalg.norm(whole)
        assert off == pytest.approx(error, abs=1e-9)
        assert (weights[~alive] == 0).all()


def test_best_effort_is_exact_while_decodable_and_nothing_with_nobody() -> None:
    code = make("hetero", 8, 2)
    assert code.best_effort([0, 1, 2, 3, 4, 5])[1] < 1e-9
    weights, error = code.best_effort([])
    assert error == 1.0
    assert not weights.any()


@pytest.mark.parametrize("name", CODED)
def test_amplification_is_what_noise_in_answers_grows_by(name: str) -> None:
    code = make(name, 12, 3)
    weights = code.decode(np.arange(12) >= 3)
    # Noise of each answer as large as its row, against that of K plain gradients.
    rng = np.random.default_rng(0)
    size = np.linalg.norm(code.matrix.toarray(), axis=1)[:, None]
    noise = weights @ (size * rng.standard_normal((12, 20_000)))
    plain = np.sqrt(code.partitions)
    # The standard deviation of 20,000 numbers is known to within 0.5 % (one sigma).
    assert code.amplification(weights) == pytest.approx(noise.std() / plain, rel=0.03)


def test_uncoded_answers_amplify_nothing() -> None:
    code = make("uncoded", 5, 0)
    assert code.amplification(code.decode(range(5))) == pytest.approx(1.0)
    assert make("fractional", 9, 2).amplification(
        make("fractional", 9, 2).decode(range(9))
    ) == pytest.approx(1.0)


def test_decoding_weights_are_the_least_amplifying() -> None:
    code = make("hetero", 7, 3)
    alive = np.arange(7) != 2
    B = code.matrix.toarray()[alive]
    weights = code.decode(alive)
    others = np.linalg.svd(B.T)[2][np.linalg.matrix_rank(B, tol=1e-9) :]
    assert len(others) == 2
    for direction in others:
        more = weights.copy()
        more[alive] += 0.01 * direction
        assert code.error(more) < 1e-9
        assert code.amplification(more) > code.amplification(weights)


def test_the_seed_decides_the_coefficients() -> None:
    once, again, other = (make("hetero", 6, 2, 0).row(0) for _ in range(3))
    other = hetero(workers=6, stragglers=2, seed=1).row(0)
    assert (once == again).all()
    assert once.shape != other.shape or (once != other).any()


def test_too_few_answers_are_told_with_what_is_missing() -> None:
    code = cyclic(workers=5, stragglers=1)
    with pytest.raises(
        NotDecodable,
        match=r"not yet decodable: 2 of 5 workers have answered, 2, 3, 4 have not, and "
        r"nobody has partition 3, 4\. Any 1 may be missing",
    ):
        code.decode([0, 1])
    with pytest.raises(NotDecodable, match=r"do not add up to every partition"):
        code.decode([0, 2, 4])
    assert issubclass(NotDecodable, InfeasibleError)


@pytest.mark.parametrize(
    ("name", "kwargs", "message"),
    [
        ("cyclic", {"workers": 0, "stragglers": 0}, "0 workers: give at least 1"),
        ("cyclic", {"workers": 3, "stragglers": 3}, "3 stragglers of 3 .*give 0 to 2"),
        ("hetero", {"workers": 2, "stragglers": 1, "speeds": [1, 0]}, "above 0"),
        ("fractional", {"workers": 2, "stragglers": 1, "speeds": [1]}, r"shape \(1,\)"),
        ("uncoded", {"workers": 2, "partitions": 0}, "0 partitions"),
    ],
)
def test_bad_numbers_are_refused(
    name: str, kwargs: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        CODES[name](**kwargs)


@pytest.mark.parametrize("alive", [[5], [-1], [[0, 1]], [True, False]])
def test_unknown_workers_are_refused(alive: list[object]) -> None:
    with pytest.raises(ConfigError, match="give 5 booleans or worker numbers below 5"):
        cyclic(workers=5, stragglers=1).decode(alive)  # type: ignore[arg-type]


def test_wrong_gradients_and_workers_are_refused() -> None:
    code = cyclic(workers=5, stragglers=1)
    with pytest.raises(ConfigError, match="4 gradients for 5 partitions"):
        code.encode(np.zeros((4, 2)))
    with pytest.raises(ConfigError, match="worker 5 of 5"):
        code.work(5)
