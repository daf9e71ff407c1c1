"""Simulated learners in their own time: what is trained when, and what is kept."""

import asyncio
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.algorithms.test_asynchronous import JOB, LAW, OWN, TRAINING
from tests.fleets.fleets import small_data, small_model

from melisma.fleets.classroom import Classroom
from melisma.fleets.flow import PREFIX, SimulatedFlow
from melisma.fleets.protocols import Order, Updates
from melisma.launch.api import simulate
from melisma.learning.parameters import Parameters, parameters_of, unpacked

NAMES = ["a", "b", "c"]  #: whose orders take 0.36, 0.8 and 2.2 s


def crew() -> SimulatedFlow:
    return SimulatedFlow(
        NAMES,
        LAW,
        model=small_model(),
        samples=small_data().train,
        training=TRAINING,
        seed=0,
        own_rows=OWN,
    )


def order(crew: SimulatedFlow, place: int) -> None:
    work = Order(learner=place, samples=len(OWN[place]), steps=1)
    crew.order(work, parameters_of(small_model()))


def on_their_way(crew: SimulatedFlow) -> set[str]:
    return set(unpacked(PREFIX, crew.state()))


def test_a_checkpoint_has_updates_that_are_trained_and_trains_no_others() -> None:
    learners = crew()
    for place in range(3):
        order(learners, place)
    assert on_their_way(learners) == set()
    asyncio.run(learners.arrival(math.inf))  # of a: all three are trained for it
    order(learners, 0)
    assert on_their_way(learners) == {"b", "c"}


def test_who_was_expelled_does_not_arrive_and_others_have_moved_up() -> None:
    async def run() -> list[int]:
        learners = crew()
        for place in range(3):
            order(learners, place)
        learners.expel("a", "of a test")
        await learners.ready()
        places = []
        while isinstance(result := await learners.arrival(math.inf), Updates):
            places.append(result.reports[0].learner)
        return places

    assert asyncio.run(run()) == [0, 1]  # b and c


def test_the_same_orders_train_together_with_and_without_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, together = Classroom.train, list[int]()

    def counted(
        self: Classroom,
        start: Parameters,
        cycle: int,
        names: Sequence[str],
        *args: Any,
        **settings: Any,
    ) -> Iterator[Any]:
        together.append(len(names))
        return train(self, start, cycle, names, *args, **settings)

    monkeypatch.setattr(Classroom, "train", counted)
    simulate(JOB, runs=None)
    without, together[:] = list(together), []
    simulate(JOB, runs=tmp_path)
    assert together == without
