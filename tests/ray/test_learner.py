"""What a node's actor hands its learner, without a cluster."""

import asyncio
from typing import Any

import pytest

from melisma.learner.learner import Learner
from melisma.learner.source import Caller
from melisma.ray.learner import Actor


class Keeping(Learner):
    """Keeps its caller, and waits until it gives up if it is told to."""

    caller: Caller

    def measure(self, name: str, keys: Any, caller: Caller) -> None:
        self.caller = caller
        while name == "waits" and not caller.gave_up():
            pass


@pytest.fixture
def keeping(monkeypatch: pytest.MonkeyPatch) -> Keeping:
    monkeypatch.setattr("melisma.ray.learner.use_threads", lambda threads: None)
    return Keeping(name="a")


def answered(learner: Keeping, name: str, within_s: float | None) -> None:
    actor = Actor("a", lambda name: learner, None)
    asyncio.run(actor.answer("measure", (name, []), [], within_s))


def test_work_may_go_on_after_an_answer(keeping: Keeping) -> None:
    # A probe answers after a few batches, and trains on.
    answered(keeping, "returns", None)
    assert not keeping.caller.gave_up()


def test_a_learner_stops_when_its_time_is_over(keeping: Keeping) -> None:
    answered(keeping, "waits", 0.1)
    assert keeping.caller.gave_up()
