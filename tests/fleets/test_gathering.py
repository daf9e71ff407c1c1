"""Who has come before a cycle begins, and what each of them does."""

import math

import pytest

from melisma.fleets.gathering import LONGEST_S, Gathering, Stage


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def gathered(least: int, **stages: Stage) -> Gathering:
    gathering = Gathering(clock=Clock())
    gathering.wait(least)
    for name, stage in stages.items():
        gathering.note(name, stage)
    return gathering


def test_a_line_says_who_does_what_and_how_many_are_missing() -> None:
    assert gathered(3).line() == "0 of 3 learners: waiting for 3 more"
    two = gathered(3, a=Stage.READY, b=Stage.BENCHMARKING)
    assert two.line() == "2 of 3 learners: b benchmarks itself; waiting for one more"
    two.takes("b", 12.0)
    assert "b benchmarks itself, about 12 s more; waiting" in two.line()
    two.note("b", Stage.READY)
    assert two.line() == "2 of 3 learners: waiting for one more"
    assert gathered(1, a=Stage.READY, b=Stage.READY).line() == "2 of 2 learners"


def test_of_a_crowd_a_line_has_numbers() -> None:
    crowd = gathered(8, **{f"pi{n}": Stage.QUEUED for n in range(6)})
    said = "6 of 8 learners: 6 wait to benchmark themselves; waiting for 2 more"
    assert crowd.line() == said


def test_who_does_not_take_part_is_missing() -> None:
    gathering = gathered(2, a=Stage.READY, b=Stage.REFUSED)
    assert gathering.missing == 1
    said = "1 of 2 learners: b does not take part; waiting for one more"
    assert gathering.line() == said
    assert gathered(1).line() == "0 of 1 learner: waiting for one more"


def test_who_is_refused_and_asked_again_has_not_joined_again() -> None:
    seen = []
    gathering = Gathering(lambda g, name: seen.append(g.learners[name].stage))
    for _ in range(2):
        gathering.comes("a")
        gathering.note("a", Stage.REFUSED, why="no data")
        gathering.comes("a")
    assert seen == [Stage.PREPARING, Stage.REFUSED, Stage.REFUSED]
    gathering.keep([])
    gathering.comes("a")
    assert seen[3:] == [Stage.PREPARING]


def test_who_is_gone_is_forgotten() -> None:
    gathering = gathered(2, a=Stage.READY, b=Stage.READY)
    gathering.keep(["b"])
    assert list(gathering.learners) == ["b"]
    assert gathering.missing == 1


@pytest.mark.parametrize("left_s", [math.nan, math.inf, -math.inf])
def test_a_time_that_cannot_be_is_not_believed(left_s: float) -> None:
    gathering = gathered(1, a=Stage.BENCHMARKING)
    gathering.takes("a", left_s)
    gathering.takes("nobody", 3.0)
    assert gathering.left_s() is None


def test_a_time_is_believed_within_reason_of_who_benchmarks_itself() -> None:
    gathering = gathered(1, a=Stage.BENCHMARKING, b=Stage.READY)
    gathering.takes("b", 7.0)
    assert gathering.left_s() is None
    gathering.takes("a", 1e300)
    assert gathering.left_s() == LONGEST_S
    gathering.takes("a", -5.0)
    assert gathering.left_s() == 0.0


def test_the_status_counts_down() -> None:
    clock = Clock()
    gathering = Gathering(clock=clock)
    gathering.wait(2)
    gathering.note("a", Stage.BENCHMARKING, task="digits")
    gathering.takes("a", 10.0)
    clock.now += 4.0
    assert gathering.status() == {
        "needed": 2,
        "learners": {
            "a": {
                "stage": "benchmarking",
                "for_s": 4.0,
                "left_s": 6.0,
                "task": "digits",
                "why": "",
            }
        },
    }


def test_whoever_shows_it_is_told_of_each_step() -> None:
    seen = []
    gathering = Gathering(lambda g, name: seen.append((name, g.learners[name].stage)))
    gathering.note("a", Stage.PREPARING)
    gathering.note("a", Stage.READY)
    assert seen == [("a", Stage.PREPARING), ("a", Stage.READY)]


def test_for_who_is_lost_nobody_waits() -> None:
    gathering = gathered(3, a=Stage.READY)
    gathering.lose("b", "its process ended with exit code 1")
    gathering.keep(["a"])
    assert gathering.missing == 1
    assert "b does not take part" in gathering.line()
