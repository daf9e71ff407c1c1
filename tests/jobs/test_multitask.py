import json
import re
from pathlib import Path

import msgspec
import numpy as np
import pytest

from melisma import views as runs
from melisma.algorithms.multitask import seconds_of
from melisma.comparison import report
from melisma.comparison.outcomes import TaskOutcome, compare
from melisma.errors import ConfigError, TrainingError
from melisma.fleets.simulated import SimulatedLearners
from melisma.jobs.benchmark_table import BenchmarkTable, Known
from melisma.jobs.building import KnownLaw, known_law, task_of, workload_of
from melisma.jobs.families import TASKS
from melisma.jobs.files import dump, load
from melisma.jobs.schema import Job, TaskTable, tasks_of
from melisma.launch.simulate import build
from melisma.runs.records import (
    Allocated,
    Evaluated,
    Halted,
    Refused,
    Uploaded,
    read,
)
from melisma.runs.store import CHECKPOINT, CONFIG, MODEL, PREVIOUS, RECORDS, START
from melisma.system.law import Mode
from melisma.system.states import States
from melisma.system.streams import Stream
from melisma.units import Deadline, Seconds
from melisma.views.tasks import COLUMNS, served, together

JOB = load(Path(__file__).parents[2] / "examples" / "tasks.toml")


def short(**changes: object) -> Job:
    return msgspec.structs.replace(JOB, cycles=2, **changes)


def test_a_task_is_the_job_with_what_it_says_itself() -> None:
    digits, deep, late = tasks_of(JOB)
    assert [one.model for one in (digits, deep, late)] == ["TwoNN", "ThreeNN", "TwoNN"]
    assert (digits.steps, deep.steps) == (2, 1)
    assert digits.shard == JOB.shard
    assert digits.tasks == ()
    assert tasks_of(Job()) == [Job()]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", TASKS)
def test_every_scheme_trains_all_tasks(scheme: str) -> None:
    ready = build(short(scheme=scheme))
    records = ready.run()
    done = {r.task: r.cycle for r in records if isinstance(r, Evaluated)}
    assert done == {"digits": 2, "digits-deep": 2, "latecomer": 2}
    how, refused = served(tasks_of(JOB), records)
    assert not refused
    for column in COLUMNS:
        assert all(column.text(one) for one in how.values())


def test_the_latecomer_comes_late() -> None:
    records = build(short()).run()
    first = {r.task: r.time_s for r in reversed(records) if isinstance(r, Allocated)}
    assert first["digits"] == 0.0
    assert first["latecomer"] >= 20.0


def test_each_task_leaves_a_run_of_its_own(tmp_path: Path) -> None:
    records = build(short()).run(tmp_path)
    for name in ("digits", "digits-deep", "latecomer"):
        folder = tmp_path / name
        assert {path.name for path in folder.iterdir()} - {PREVIOUS} == {
            CONFIG,
            START,
            CHECKPOINT,
            RECORDS,
            MODEL,
        }
        assert read(folder / RECORDS) == [r for r in records if r.task == name]
        assert load(folder / CONFIG).name == name


def test_a_task_that_does_not_fit_is_refused_and_the_others_go_on() -> None:
    *fits, last = JOB.tasks
    hopeless = msgspec.structs.replace(last, deadline=Deadline(0.5))
    ready = build(short(tasks=(*fits, hopeless)))
    records = ready.run()
    how, refused = served(tasks_of(JOB), records)
    assert set(how) == {"digits", "digits-deep"}
    assert set(refused) == {"latecomer"}
    assert len([r for r in records if isinstance(r, Refused)]) == 1


def test_the_same_seed_gives_the_same_records() -> None:
    one, two = (build(short(scheme="med-probe")).run() for _ in range(2))
    assert one == two


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scheme": "csa"}, "unknown scheme for several tasks 'csa'"),
        ({"mode": Mode.FEDERATED}, "several tasks need mode 'parallel'"),
        ({"tasks": (TaskTable(name="a"), TaskTable(name="a"))}, "the same name"),
    ],
)
def test_what_cannot_be_is_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(short(**changes))


@pytest.mark.slow
def test_several_tasks_are_one_report_and_one_each(tmp_path: Path) -> None:
    *fits, last = JOB.tasks
    hopeless = msgspec.structs.replace(last, deadline=Deadline(0.5))
    build(short(tasks=(*fits, hopeless))).run(tmp_path)
    page = runs.write(tmp_path).read_text()
    (told,) = json.loads(re.findall(r'id="documents">(.*?)</script>', page, re.S)[0])
    names = [row[0] for row in told["service"]["rows"]]
    assert names == ["digits", "digits-deep", "latecomer", "all"]
    assert told["service"]["rows"][2][1].startswith("refused: task 2 cannot do its")
    for name in ("digits", "digits-deep", "latecomer"):
        assert (tmp_path / name / "report.html").exists()


@pytest.mark.slow
def test_schemes_are_compared_over_all_tasks(tmp_path: Path) -> None:
    job = short(tasks=JOB.tasks[:2])
    ticks: list[None] = []
    schemes = ["med", "mmtt-ideal"]
    found = compare(
        *(job, schemes, 2, tmp_path), begin=lambda cycles: lambda: ticks.append(None)
    )
    assert len(ticks) == 2 * 2 * 2 * 2  # schemes, seeds, tasks, cycles
    assert [len(o.runs) for o in found.finished if isinstance(o, TaskOutcome)] == [2, 2]
    times = {o.scheme: o.figures()[1] for o in found.finished}
    alone = build(msgspec.structs.replace(job, scheme="med")).run()
    first = found.outcomes[0]
    assert isinstance(first, TaskOutcome)
    assert first.runs[0][1].value == together(tasks_of(job), alone).service.time_s
    assert times["med"].half > 0
    report.write(found, dump(job), tmp_path)
    assert "mmtt-ideal" in (tmp_path / report.PAGE).read_text()


@pytest.mark.slow
def test_a_scheme_that_refuses_a_task_is_not_compared(tmp_path: Path) -> None:
    *fits, last = JOB.tasks
    hopeless = msgspec.structs.replace(last, deadline=Deadline(0.5))
    with pytest.raises(TrainingError, match="med: latecomer was refused"):
        compare(short(tasks=(*fits, hopeless)), ["med"], 1, tmp_path)


def test_heat_makes_the_first_state_likely() -> None:
    # softmax of (2, 0, 0): e²/(e² + 2) = 0.787.
    group = JOB.learners[0]
    states = tuple(
        msgspec.structs.replace(state, probability=None) for state in group.states
    )
    heated = msgspec.structs.replace(group, states=states, heat=0.5)
    ready = build(short(learners=(heated,), tasks=JOB.tasks[:1]))
    crew = ready.built.crews[0]
    assert isinstance(crew, SimulatedLearners)
    assert crew._conditions.probability is not None
    assert crew._conditions.probability[0] == pytest.approx(
        [0.787, 0.107, 0.107], abs=1e-3
    )


MEASURED = BenchmarkTable(known=Known.MEASURED, shards=20)


def laws(job: Job) -> list[KnownLaw]:
    tasks = [(one, task_of(one)) for one in tasks_of(job)]
    return [known_law(one, workload_of(one, t.model, t.data)) for one, t in tasks]


@pytest.mark.parametrize("scheme", ["med", "mmtt", "mmtt-ideal"])
def test_learners_are_associated_by_what_their_benchmarks_found(scheme: str) -> None:
    job = short(scheme=scheme, noise=0.3, benchmark=MEASURED)
    prepared = build(job).built
    benchmarked, everybody = laws(job), np.arange(8)
    for i, ((true, known, gamma), task) in enumerate(
        zip(benchmarked, prepared.tasks, strict=True)
    ):
        found_s, _ = prepared.association.seconds(i, everybody)
        states = States.of([known], gamma, shard=[task.shard], steps=[task.steps])
        drawn = states.draw(np.random.default_rng([job.seed, Stream.BENCHMARK]))
        crew = prepared.crews[i]
        expected_s = {
            "med": states.expected()[0][0],
            "mmtt": states.at(drawn)[0][0],
            "mmtt-ideal": seconds_of(crew.foreseen_law(), task)[0],
        }[scheme]
        np.testing.assert_allclose(found_s, expected_s)
        # What was measured is near the truth, and is not the truth.
        if scheme == "mmtt-ideal":
            off = seconds_of(crew.true_law(), task)[0] / found_s
            assert (np.abs(off - 1) > 1e-6).all()
            assert np.abs(off - 1).max() < 0.4
        assert np.abs(known.step_s / true.step_s - 1).max() < 0.4


def test_a_benchmark_without_noise_finds_the_true_rates() -> None:
    one, two = (build(short(benchmark=b)).run() for b in (BenchmarkTable(), MEASURED))
    assert one == two


def test_what_is_measured_does_not_change_what_happens() -> None:
    # The same states and noise: only the split differs.
    job = short(scheme="mmtt-ideal", noise=0.3, tasks=JOB.tasks[:1])
    true, measured = (
        build(changed).built.crews[0].true_law().step_s
        for changed in (job, msgspec.structs.replace(job, benchmark=MEASURED))
    )
    np.testing.assert_array_equal(true, measured)


def test_an_overhead_is_planned_and_passes() -> None:
    job = msgspec.structs.replace(JOB, cycles=1, tasks=JOB.tasks[:1])
    plain, heavy = (
        build(one).run()
        for one in (job, msgspec.structs.replace(job, overhead=Seconds(0.5)))
    )
    # The same for every learner: the split is the same, and all take 0.5 s longer.
    for kind, seconds in ((Allocated, "predicted_s"), (Uploaded, "time_s")):
        before, after = (
            {r.learner: getattr(r, seconds) for r in records if isinstance(r, kind)}
            for records in (plain, heavy)
        )
        assert len(before) == 8
        assert after == {name: pytest.approx(s + 0.5) for name, s in before.items()}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"overhead": -1.0}, "overhead of -1.0 s: give a time from 0 s up"),
        ({"overhead": 1.0, "scheme": "coded"}, "not for coded training"),
        ({"benchmark": MEASURED, "scheme": "coded"}, "not for coded training"),
        (
            {"benchmark": MEASURED, "scheme": "fog", "mode": Mode.FEDERATED},
            "not for a fog",
        ),
    ],
)
def test_where_no_plan_goes_by_a_benchmark_it_is_refused(
    changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        build(msgspec.structs.replace(Job(), **changes))


def test_a_benchmark_needs_a_shard() -> None:
    with pytest.raises(ConfigError, match="shards = 0: give at least 1"):
        BenchmarkTable(shards=0)


def test_the_example_of_measured_rates_looks_at_the_clock_late() -> None:
    example = load(Path(__file__).parents[2] / "examples" / "measured.toml")
    happened = build(msgspec.structs.replace(example, cycles=2)).run()
    assert len([r for r in happened if isinstance(r, Evaluated) and r.cycle]) == 4
    halted = [r for r in happened if isinstance(r, Halted)]
    assert halted
    assert {r.batches % example.look_every for r in halted} == {1}
    known = [law.known.step_s / law.true.step_s for law in laws(example)]
    assert (np.abs(np.stack(known) - 1) > 1e-6).all()
