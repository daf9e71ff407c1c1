from pathlib import Path

import msgspec
import pytest

from melisma.config import Job, TaskTable, load, tasks_of
from melisma.errors import ConfigError
from melisma.live import orchestrate
from melisma.programme import COLUMNS, SCHEMES, build_many, served
from melisma.runtime.folder import CONFIG, MODEL, RECORDS
from melisma.runtime.records import Allocated, Evaluated, Refused, read
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


def test_where_one_task_is_meant_several_are_named(tmp_path: Path) -> None:
    for start in (build, lambda job: orchestrate(job, tmp_path, learners=1)):
        with pytest.raises(ConfigError, match="'tasks' has several tasks"):
            start(JOB)
