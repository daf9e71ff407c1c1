"""Crowds are waited for while they answer, and one that is silent is not."""

import asyncio
from pathlib import Path

import pytest
from tests.fleets.learners import Steady, changed, live, of

from melisma import rpc
from melisma.errors import DataError, TrainingError
from melisma.fleets import roster
from melisma.fleets.messages import Ready, Speeds, TaskSpec, TrainRequest, Update
from melisma.fleets.roster import while_they_come
from melisma.jobs.schema import TrainingTable
from melisma.learner.service import Service
from melisma.learner.source import Caller
from melisma.runs import records


async def answers(after_s: float) -> None:
    await asyncio.sleep(after_s)


def test_who_answers_one_after_another_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(roster, "HURRY_S", 0.6)
    monkeypatch.setattr(roster, "EACH_S", 10.0)

    async def scenario() -> None:
        crowd = [asyncio.create_task(answers(0.2 * k)) for k in range(8)]
        await while_they_come(crowd)  # the last comes after more than twice HURRY_S
        assert all(one.done() for one in crowd)

    asyncio.run(scenario())


def test_who_is_silent_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster, "HURRY_S", 0.1)

    async def scenario() -> None:
        quick, silent = (asyncio.create_task(answers(s)) for s in (0.0, 1000.0))
        await while_they_come([quick, silent])
        assert (quick.done(), silent.done()) == (True, False)
        silent.cancel()

    asyncio.run(scenario())


def test_answers_that_come_ever_so_slowly_have_an_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(roster, "HURRY_S", 1.0)
    monkeypatch.setattr(roster, "EACH_S", 0.0)

    async def scenario() -> None:
        crowd = [asyncio.create_task(answers(0.2 * k)) for k in range(20)]
        await while_they_come(crowd)
        assert not crowd[-1].done()
        for one in crowd:
            one.cancel()

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_learner_that_was_measured_is_asked_once_a_cycle(tmp_path: Path) -> None:
    class Noting(Service):
        @rpc.expose(idempotent=True)
        def prepare(self, spec: TaskSpec) -> Ready:
            asked.append("prepare")
            return super().prepare(spec)

        @rpc.expose(idempotent=True)
        def speeds(self, task: str, drifted: bool) -> Speeds:
            asked.append("speeds")
            return super().speeds(task, drifted)

    class Noted(Steady):
        service = Noting

    asked: list[str] = []
    live(changed(cycles=4), tmp_path, [Noted(name="a")])
    # The first time it benchmarks itself, and says how fast it is afterwards.
    assert asked == ["prepare", "speeds", "prepare", "prepare", "prepare"]


@pytest.mark.slow
def test_a_rate_that_is_too_high_is_the_jobs_fault(tmp_path: Path) -> None:
    job = changed(training=TrainingTable(rate=1e30, batch=10))
    with pytest.raises(
        TrainingError, match=r"2 of 2 learners .* lower the learning ra"
    ):
        live(job, tmp_path, [Steady(name="a"), Steady(name="b")])


def test_a_run_whose_learners_are_all_expelled_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong(Steady):
        def train(self, request: TrainRequest, caller: Caller) -> Update:
            raise DataError("no")

    monkeypatch.setattr(roster, "NEWCOMER_S", 0.2)
    noted: list[records.Record] = []
    with pytest.raises(TrainingError, match=r"all learners were expelled \(a\)"):
        live(changed(cycles=9), tmp_path, [Wrong(name="a")], noted.append)
    assert [record.learner for record in of(records.Expelled, noted)] == ["a"]


@pytest.mark.slow
def test_a_resumed_run_does_not_wait_for_who_was_expelled(tmp_path: Path) -> None:
    class Wrong(Steady):
        def train(self, request: TrainRequest, caller: Caller) -> Update:
            raise DataError("no")

    both = [Steady(name="a"), Wrong(name="b")]
    first = live(changed(cycles=4), tmp_path, both)
    assert [record.learner for record in of(records.Expelled, first)] == ["b"]
    happened = live(changed(cycles=6), tmp_path, [Steady(name="a")], least=2)
    assert len(of(records.Evaluated, happened)) == 6
