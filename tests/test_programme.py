import json
import re
from pathlib import Path

import msgspec
import pytest

from melisma import report, runs
from melisma.comparison import compare_tasks
from melisma.config import Job, TaskTable, dump, load, tasks_of
from melisma.errors import ConfigError, TrainingError
from melisma.programme import SCHEMES, build_many
from melisma.runs.tasks import COLUMNS, served, together
from melisma.runtime.folder import CONFIG, MODEL, RECORDS
from melisma.runtime.records import Allocated, Evaluated, Refused, read
from melisma.runtime.simulated import SimulatedFleet
from melisma.simulation import build
from melisma.system.law import Mode
from melisma.units import Seconds

JOB = load(Path(__file__).parents[1] / "examples" / "tasks.toml")


def short(**changes: object) -> Job:
    return msgspec.structs.replace(JOB, cycles=2, **changes)


def test_a_task_is_the_job_with_what_it_says_itself() -> None:
    digits, deep, late = tasks_of(JOB)
    assert [one.model for one in (digits, deep, late)] == ["TwoNN", "ThreeNN", "TwoNN"]
    assert (digits.steps, deep.steps) == (2, 1)
    assert digits.shard == JOB.shard
    assert digits.task == ()
    assert tasks_of(Job()) == [Job()]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_trains_all_tasks(scheme: str) -> None:
    ready = build_many(short(scheme=scheme))
    records = ready.run()
    done = {r.task: r.cycle for r in records if isinstance(r, Evaluated)}
    assert done == {"digits": 2, "digits-deep": 2, "latecomer": 2}
    how, refused = served(ready.jobs, records)
    assert not refused
    for column in COLUMNS:
        assert all(column.text(one) for one in how.values())


def test_the_latecomer_comes_late() -> None:
    records = build_many(short()).run()
    first = {r.task: r.time_s for r in reversed(records) if isinstance(r, Allocated)}
    assert first["digits"] == 0.0
    assert first["latecomer"] >= 20.0


def test_each_task_leaves_a_run_of_its_own(tmp_path: Path) -> None:
    records = build_many(short()).run(tmp_path)
    for name in ("digits", "digits-deep", "latecomer"):
        folder = tmp_path / name
        assert {path.name for path in folder.iterdir()} == {CONFIG, RECORDS, MODEL}
        assert read(folder / RECORDS) == [r for r in records if r.task == name]
        assert load(folder / CONFIG).name == name


def test_a_task_that_does_not_fit_is_refused_and_the_others_go_on() -> None:
    *fits, last = JOB.task
    hopeless = msgspec.structs.replace(last, deadline=Seconds(0.5))
    ready = build_many(short(task=(*fits, hopeless)))
    records = ready.run()
    how, refused = served(ready.jobs, records)
    assert set(how) == {"digits", "digits-deep"}
    assert set(refused) == {"latecomer"}
    assert len([r for r in records if isinstance(r, Refused)]) == 1


def test_the_same_seed_gives_the_same_records() -> None:
    one, two = (build_many(short(scheme="med-probe")).run() for _ in range(2))
    assert one == two


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scheme": "csa"}, "unknown scheme for several tasks 'csa'"),
        ({"mode": Mode.FEDERATED}, "several tasks need mode 'parallel'"),
        ({"task": (TaskTable(name="a"), TaskTable(name="a"))}, "the same name"),
    ],
)
def test_what_cannot_be_is_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_many(short(**changes))


def test_where_one_task_is_meant_several_are_named() -> None:
    with pytest.raises(ConfigError, match="'tasks' has several tasks"):
        build(JOB)


@pytest.mark.slow
def test_several_tasks_are_one_report_and_one_each(tmp_path: Path) -> None:
    *fits, last = JOB.task
    hopeless = msgspec.structs.replace(last, deadline=Seconds(0.5))
    build_many(short(task=(*fits, hopeless))).run(tmp_path)
    page = runs.write(tmp_path).read_text()
    (told,) = json.loads(re.findall(r'id="documents">(.*?)</script>', page, re.S)[0])
    names = [row[0] for row in told["service"]["rows"]]
    assert names == ["digits", "digits-deep", "latecomer", "all"]
    assert told["service"]["rows"][2][1].startswith("refused: task 2 cannot do its")
    for name in ("digits", "digits-deep", "latecomer"):
        assert (tmp_path / name / "report.html").exists()


@pytest.mark.slow
def test_schemes_are_compared_over_all_tasks(tmp_path: Path) -> None:
    job = short(task=JOB.task[:2])
    ticks: list[None] = []
    schemes = ["med", "mmtt-ideal"]
    found = compare_tasks(
        *(job, schemes, 2, tmp_path), begin=lambda cycles: lambda: ticks.append(None)
    )
    assert len(ticks) == 2 * 2 * 2 * 2  # schemes, seeds, tasks, cycles
    assert [len(outcome.runs) for outcome in found.finished] == [2, 2]
    times = {o.scheme: o.figures()[1] for o in found.finished}
    alone = build_many(msgspec.structs.replace(job, scheme="med")).run()
    assert found.outcomes[0].runs[0][1] == together(tasks_of(job), alone).service.time_s
    assert times["med"].half > 0
    report.write_tasks(found, dump(job), tmp_path)
    assert "mmtt-ideal" in (tmp_path / report.PAGE).read_text()


@pytest.mark.slow
def test_a_scheme_that_refuses_a_task_is_not_compared(tmp_path: Path) -> None:
    *fits, last = JOB.task
    hopeless = msgspec.structs.replace(last, deadline=Seconds(0.5))
    with pytest.raises(TrainingError, match="med: latecomer was refused"):
        compare_tasks(short(task=(*fits, hopeless)), ["med"], 1, tmp_path)


def test_heat_makes_the_first_state_likely() -> None:
    # softmax of (2, 0, 0): e²/(e² + 2) = 0.787.
    group = JOB.learners[0]
    states = tuple(
        msgspec.structs.replace(state, probability=None) for state in group.states
    )
    heated = msgspec.structs.replace(group, states=states, heat=0.5)
    ready = build_many(short(learners=(heated,), task=JOB.task[:1]))
    fleet = ready.programme._entries[0].fleet
    assert isinstance(fleet, SimulatedFleet)
    assert fleet._conditions.probability is not None
    assert fleet._conditions.probability[0] == pytest.approx(
        [0.787, 0.107, 0.107], abs=1e-3
    )
