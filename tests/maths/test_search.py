from hypothesis import given
from hypothesis import strategies as st

from melisma.maths.search import last_true

NUMBERS = st.integers(-1000, 1000)


@given(answer=NUMBERS, guess=NUMBERS, low=NUMBERS, size=st.integers(0, 500))
def test_it_finds_the_last_that_holds(
    answer: int, guess: int, low: int, size: int
) -> None:
    found = last_true(lambda n: n <= answer, low, low + size, guess=guess)
    assert found == min(max(answer, low - 1), low + size)


def probes(answer: int, guess: int) -> list[int]:
    asked: list[int] = []

    def claim(n: int) -> bool:
        asked.append(n)
        return n <= answer

    last_true(claim, 0, 2**52, guess=guess)
    return asked


def test_a_right_guess_takes_two_probes() -> None:
    assert probes(answer=7, guess=7) == [7, 8]
    assert probes(answer=7, guess=8) == [8, 7]


def test_probes_grow_with_the_logarithm_of_the_error() -> None:
    assert probes(answer=20, guess=7) == [7, 8, 10, 14, 22, 18, 20, 21]
    assert len(probes(answer=10**6, guess=0)) <= 2 * 20 + 1


@given(answer=st.integers(0, 10**6), guess=st.integers(0, 10**6))
def test_nothing_is_asked_twice(answer: int, guess: int) -> None:
    asked = probes(answer, guess)
    assert len(set(asked)) == len(asked)
