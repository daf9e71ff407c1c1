"""Runs that end before their last cycle, and what is no rule for it."""

import asyncio
from pathlib import Path

import pytest
from tests.fleets.fleets import fleet_of, law, task_of

import melisma as mel
from melisma.algorithms.averaging import Averaging
from melisma.algorithms.loop import train
from melisma.algorithms.stopping import NEVER, Stop
from melisma.errors import ConfigError, MelismaError
from melisma.jobs.schema import Job, TaskTable
from melisma.learning.metrics import METRICS
from melisma.runs.records import Evaluated, Record, Stopped
from melisma.runs.store import RunWriter

ACCURACY = METRICS["accuracy"]
ERROR = METRICS["mae"]


def seen(*values: float | None, metric: str = "accuracy") -> list[Evaluated]:
    return [
        Evaluated(
            time_s=10.0 * cycle,
            task="t",
            cycle=cycle,
            metrics={metric: value},
            loss=None if value is None else 1 - value,
        )
        for cycle, value in enumerate(values, start=1)
    ]


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("accuracy >= 0.9", 3),
        ("accuracy >= 90 %", 3),
        ("accuracy >= 90%", 3),
        ("loss <= 0.45", 2),
        ("accuracy <= 0.6", 1),
        ("time >= 35 s", 4),
        ("time >= 0.5 min", 3),
        ("no progress for 1 cycle", 4),
        ("no progress for 2 cycles", 5),
        ("accuracy >= 0.99", None),
    ],
)
def test_a_rule_holds_after_the_cycle_that_it_names(
    text: str, after: int | None
) -> None:
    happened = seen(0.5, 0.6, 0.9, 0.9, 0.8, 0.95)
    stop = Stop.of([text], [ACCURACY])
    held = [n for n in range(1, 7) if stop.reason(happened[:n])]
    assert (held[0] if held else None) == after


def test_progress_is_what_the_metric_says_it_is() -> None:
    stop = Stop.of(["no progress for 2 cycles"], [ERROR])
    falling, rising = (
        seen(*values, metric="mae") for values in ((0.9, 0.5, 0.4), (0.4, 0.5, 0.9))
    )
    assert not stop.reason(falling)
    assert stop.reason(rising) == "no progress for 2 cycles"


def test_what_is_not_finite_is_no_progress_and_reaches_nothing() -> None:
    happened = seen(0.5, None, None)
    assert Stop.of(["no progress for 2 cycles"], [ACCURACY]).reason(happened)
    assert not Stop.of(["accuracy >= 0.1"], [ACCURACY]).reason(happened)
    assert not Stop.of(["loss <= 10"], [ACCURACY]).reason(happened)


def test_one_of_several_rules_is_enough() -> None:
    stop = Stop.of(["accuracy >= 0.99", "time >= 20 s"], [ACCURACY])
    assert not stop.reason(seen(0.5))
    assert stop.reason(seen(0.5, 0.5)) == "time is 20 s >= 20 s"
    assert not NEVER.reason(seen(1.0))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("soon", "give as 'accuracy >= 0.97'"),
        ("accuracy > 0.9", "give as 'accuracy"),
        ("acuracy >= 0.9", "did you mean 'accuracy'"),
        ("accuracy >= high", "'high' is not a number"),
        ("accuracy >= nan", "is not a number"),
        ("time >= ten minutes", "not a number and a unit"),
        ("time <= 10 s", "give a time to end at"),
        ("time >= 0 s", "give a time to end at"),
        ("no progress for 0 cycles", "give at least 1"),
    ],
)
def test_what_is_no_rule_is_refused_with_the_words_that_would_do(
    text: str, said: str
) -> None:
    with pytest.raises(MelismaError, match=said):
        Stop.of([text], [ACCURACY])


def test_a_run_ends_as_it_was_told_and_says_why() -> None:
    task = task_of("sync", 60.0, cycles=9, stop=Stop.of(["time >= 60 s"], [ACCURACY]))
    crew = fleet_of(law([1.0, 1.0], [0.0, 0.0], [0.0, 0.0]))
    run = RunWriter()
    asyncio.run(train(task, crew, Averaging(crew), run))
    ends = [r for r in run.records if isinstance(r, Stopped)]
    last = [r for r in run.records if isinstance(r, Evaluated)][-1]
    assert [(r.cycle, "time is" in r.reason) for r in ends] == [(last.cycle, True)]
    assert 60 <= last.time_s < 121
    assert last.cycle < 9


def test_the_last_cycle_is_not_stopped_but_over() -> None:
    task = task_of("sync", 60.0, cycles=1, stop=Stop.of(["time >= 1 s"], [ACCURACY]))
    crew = fleet_of(law([1.0, 1.0], [0.0, 0.0], [0.0, 0.0]))
    run = RunWriter()
    asyncio.run(train(task, crew, Averaging(crew), run))
    assert not any(isinstance(r, Stopped) for r in run.records)


JOB = Job(cycles=30, samples=400, stop=("accuracy >= 0.6", "time >= 20 s"))


def test_a_job_that_was_stopped_is_finished_and_stays_so(tmp_path: Path) -> None:
    run = mel.simulate(JOB, runs=tmp_path)
    assert run.folder is not None
    (stopped,) = run.events(Stopped)
    assert stopped.cycle < 30
    assert run.state == "finished"
    assert (run.folder / "model.safetensors").is_file()
    before = (run.folder / "records.jsonl").read_bytes()
    assert mel.resume(run.folder).state == "finished"
    assert (run.folder / "records.jsonl").read_bytes() == before


def test_each_task_ends_by_its_own_rule() -> None:
    found: list[Record] = []
    job = Job(
        scheme="med",
        cycles=6,
        samples=400,
        shard=20,
        stop="accuracy >= 1.1",
        tasks=(TaskTable(name="one", stop="time >= 1 ms"), TaskTable(name="two")),
    )
    mel.simulate(job, runs=None, watch=found.append)
    last = {r.task: r.cycle for r in found if isinstance(r, Evaluated)}
    assert last == {"one": 1, "two": 6}


def test_a_job_with_a_wrong_rule_is_refused_before_anything_is_done() -> None:
    with pytest.raises(ConfigError, match="metric in stop"):
        mel.simulate(Job(stop="f1 >= 0.9"), runs=None)
