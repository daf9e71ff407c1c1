"""The public names: lazy, sorted, documented, and usable in a script and a notebook."""

import asyncio
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import melisma as mel
from melisma.registry import _OBJECTS
from melisma.schemes import SCHEMES
from melisma.units import Seconds

QUICK: dict[str, Any] = {"cycles": 2, "samples": 400, "deadline": "0.3 s"}


def job_of(**keys: Any) -> mel.Job:
    """As written in a notebook, where nobody checks types."""
    return mel.Job(**keys)


def fastest(problem: mel.Problem) -> mel.Allocation:
    """Only the fastest learner works."""
    steps = problem.steps_within(np.full(problem.learners, problem.samples))
    chosen = np.arange(problem.learners) == int(np.argmax(steps))
    return mel.Allocation(samples=chosen * problem.samples, steps=chosen * steps)


class Tiny(nn.Sequential):
    """A model of one's own."""

    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(784, 10))


def two_classes() -> mel.Task:
    """A task of one's own, whose model is not the job's usual one."""
    x = np.eye(4, dtype=np.float32)
    data = {"x": np.tile(x, (8, 1)), "y": np.tile([0, 1], 16)}
    return mel.Task(model=lambda: nn.Linear(4, 2), train=data, test=data)


def test_all_names_are_there_sorted_and_documented() -> None:
    names = [name for name in mel.__all__ if name.isupper() is False]
    assert names == sorted(names, key=lambda n: (n[0].islower(), n))
    for name in mel.__all__:
        assert getattr(mel, name).__doc__, name
    assert set(mel.__all__) <= set(dir(mel))


def test_the_page_names_all_of_them() -> None:
    page = (Path(__file__).parents[1] / "docs" / "python.md").read_text("utf-8")
    named = set(re.findall(r"`mel\.([A-Za-z]\w*)", page))
    assert named == set(mel.__all__)


def test_what_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        mel.simulat  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    ("code", "unloaded"),
    [
        ("import melisma", ("torch", "numpy", "aiohttp")),
        ("import melisma as mel; mel.Job(deadline='2 s')", ("torch", "networkx")),
        ("import melisma as mel; mel.open('.')", ("torch", "networkx", "matplotlib")),
    ],
)
def test_names_load_only_what_they_need(
    code: str, unloaded: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "config.toml").write_text("")
    check = f"{code}\nimport sys\nprint([m for m in {unloaded!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", check], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ({"deadline": "2 parsec"}, "unknown unit 'parsec'"),
        ({"deadline": 0}, r"deadline of 0\.0 s"),
        ({"cycles": 0}, "cycles is 0: give at least 1"),
        ({"cycles": "five"}, "cycles: expected `int`, got `str`"),
        ({"mode": "fed"}, "unknown mode 'fed'"),
        (
            {"training": {"rat": 1}},
            "key in training 'rat': did you mean 'rate'",
        ),
        ({"learners": [{"name": "a"}]}, "learners 'a' have no speed"),
    ],
)
def test_a_job_made_in_python_is_checked_at_once(
    job: dict[str, Any], message: str
) -> None:
    with pytest.raises(mel.ConfigError, match=message):
        mel.Job(**job)


def test_a_job_takes_words_and_dictionaries() -> None:
    pi = {"name": "pi", "rate": "600 samples/s", "bandwidth": "3 MB/s"}
    job = job_of(deadline="2 s", mode="federated", learners=[pi])
    assert job.deadline == Seconds(2.0)
    assert job.learners[0].bandwidth == 3e6


def test_a_simulated_run_is_an_object(tmp_path: Path) -> None:
    seen: list[object] = []
    run = mel.simulate(mel.Job(**QUICK), runs=tmp_path, watch=seen.append)
    assert run.folder == tmp_path / "demo"
    assert run.records == seen
    assert len(run.history.metric) == 2
    assert [record.cycle for record in run.events(mel.Evaluated)] == [1, 2]
    again = mel.open(tmp_path / "demo")
    assert again.history == run.history
    assert again.parameters.keys() == dict(run.model.named_parameters()).keys()
    table = run.to_pandas()
    assert len(table) == 2 * 10
    assert set(table["learner"]) >= {"laptop-1", "pi-5"}
    assert run.report().name == "report.html"


def test_a_run_in_memory_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = mel.simulate(mel.Job(**QUICK), runs=None)
    assert run.folder is None
    assert len(run.history.loss) == 2
    assert isinstance(run.model, nn.Module)
    assert not list(tmp_path.iterdir())
    with pytest.raises(mel.ConfigError, match="has no report"):
        run.report()


@pytest.mark.parametrize("on_disk", [True, False])
@pytest.mark.parametrize("example", ["coded", "fog", "tasks"])
def test_every_family_is_simulated(example: str, on_disk: bool, tmp_path: Path) -> None:
    job = mel.load(Path(__file__).parents[1] / "examples" / f"{example}.toml")
    run = mel.simulate(_short(job), runs=tmp_path if on_disk else None)
    assert run.state == "finished"
    for task in run.tasks.values():
        assert len(task.history.metric) == 1
        assert task.parameters
    if len(run.tasks) > 1:
        with pytest.raises(mel.ConfigError, match="a history of its own"):
            run.history  # noqa: B018


def _short(job: mel.Job) -> mel.Job:
    import msgspec

    return msgspec.structs.replace(job, cycles=1)


def test_the_model_of_a_run_is_that_of_its_task() -> None:
    task = f"{__name__}:two_classes"
    job = job_of(task=task, cycles=1, deadline="0.1 s")
    run = mel.simulate(job, runs=None)
    assert isinstance(run.model, nn.Linear)
    assert torch.equal(run.model.weight, run.parameters["weight"])


def test_schemes_and_models_may_be_given_as_objects(tmp_path: Path) -> None:
    job = job_of(scheme=fastest, model=Tiny, **QUICK)
    assert job.scheme.endswith("test_face:fastest")
    run = mel.simulate(job, runs=tmp_path)
    assert isinstance(run.model, Tiny)
    given = run.events(mel.Allocated)[:10]
    assert sum(record.samples > 0 for record in given) == 1


def test_a_model_that_is_made_already_begins_as_it_is() -> None:
    model = Tiny()
    weight = dict(model.named_parameters())["1.weight"]
    nn.init.zeros_(weight)
    job = job_of(model=model, **QUICK)
    run = mel.simulate(job, runs=None)
    assert run.parameters["1.weight"].abs().sum() > 0
    assert weight.abs().sum() == 0


def test_a_scheme_of_ones_own_is_compared_by_name(tmp_path: Path) -> None:
    name = "face-fastest"
    try:
        mel.scheme(name)(fastest)
        found = mel.compare(mel.Job(**QUICK), [name, "eta"], seeds=1, runs=tmp_path)
    finally:
        SCHEMES.pop(name, None)
    assert [outcome.scheme for outcome in found.finished] == [name, "eta"]
    head, *rows = found.table().splitlines()
    assert head.split() == [name, "eta"]
    assert rows[0].startswith("accuracy (%)")
    assert (Path(found.folder) / "report.html").is_file()


def test_a_scheme_in_a_module_is_found_from_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "face_schemes.py").write_text(
        "from melisma.schemes import SCHEMES\n"
        "def alike(problem):\n"
        '    """As eta."""\n'
        "    return SCHEMES['eta'](problem)\n"
    )
    job = mel.Job(scheme="face_schemes:alike", **QUICK)
    one, two = (
        mel.simulate(job, runs=None),
        mel.simulate(mel.Job(scheme="eta", **QUICK), runs=None),
    )
    assert one.history == two.history
    with pytest.raises(mel.ConfigError, match="there is no module 'no_schemes'"):
        mel.simulate(mel.Job(scheme="no_schemes:alike"), runs=None)


def test_functions_of_the_script_itself_are_refused_where_processes_learn(
    tmp_path: Path,
) -> None:
    def made() -> nn.Module:
        return Tiny()

    job = job_of(name="local", model=made, scheme="dab", shard=50)
    with pytest.raises(mel.ConfigError, match="put it into a module of its own"):
        mel.run(job, runs=tmp_path)
    _OBJECTS.pop(job.model)


def test_inside_a_running_loop_everything_works(tmp_path: Path) -> None:
    async def cell() -> tuple[mel.Run, mel.Run]:
        blocking = mel.simulate(mel.Job(**QUICK), runs=tmp_path)
        free = await mel.simulate_async(mel.Job(**QUICK), runs=tmp_path)
        return blocking, free

    blocking, free = asyncio.run(cell())
    assert blocking.history == free.history


def test_a_cancelled_simulation_stops_after_its_cycle(tmp_path: Path) -> None:
    async def cell() -> None:
        begun = asyncio.Event()
        loop = asyncio.get_running_loop()

        def watch(record: object) -> None:
            loop.call_soon_threadsafe(begun.set)

        job = mel.Job(cycles=10_000, samples=1000)
        work = asyncio.create_task(mel.simulate_async(job, runs=tmp_path, watch=watch))
        await begun.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(cell())
    run = mel.open(tmp_path / "demo")
    assert len(run.history.metric) < 10_000


def test_a_cancelled_comparison_stops_after_its_cycle(tmp_path: Path) -> None:
    begun = threading.Event()

    async def cell() -> None:
        job = mel.Job(cycles=10_000, samples=400)
        options: dict[str, Any] = {"seeds": 1, "runs": tmp_path}
        options["begin"] = lambda cycles: begun.set
        work = asyncio.create_task(mel.compare_async(job, ["csa", "eta"], **options))
        while not begun.is_set():
            await asyncio.sleep(0.01)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(cell())  # ends: it waits for its threads


def test_who_gives_up_waiting_for_a_server_does_not_spoil_its_end(
    tmp_path: Path,
) -> None:
    async def cell() -> None:
        async with mel.serve(job_of(**QUICK), runs=tmp_path) as server:
            waiting = asyncio.create_task(server.wait_async())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert not (await server.wait_async()).history.metric

    asyncio.run(cell())


@pytest.mark.slow
def test_learners_join_a_server_that_a_script_holds(tmp_path: Path) -> None:
    job = job_of(
        name="served", scheme="dab", cycles=1, deadline="20 s", shard=50, most=2
    )
    with mel.serve(job, runs=tmp_path, learners=1) as server:
        learner = subprocess.Popen(
            [sys.executable, "-c", JOIN, server.invite(), "one"],
            stderr=subprocess.PIPE,
        )
        try:
            run = server.wait(120)
        finally:
            learner.kill()
            learner.communicate()
    assert {record.learner for record in run.events(mel.Uploaded)} == {"one"}
    assert server.dashboard.startswith("http")


JOIN = "import sys, melisma as mel; mel.join(sys.argv[1], name=sys.argv[2])"


@pytest.mark.slow
def test_a_local_run_and_a_server_work_inside_a_running_loop(tmp_path: Path) -> None:
    pi = {"name": "pi", "rate": "4000 samples/s", "bandwidth": "9 MB/s"}
    job = job_of(
        **{"name": "here", "scheme": "dab", "cycles": 1, "deadline": "20 s"},
        **{"shard": 50, "most": 2, "learners": [pi]},
    )

    async def cell() -> mel.Run:
        run = mel.run(job, runs=tmp_path)
        async with mel.serve(job, runs=tmp_path) as server:
            assert server.invite()
        return run

    run = asyncio.run(cell())
    assert len(run.history.metric) == 1


@pytest.mark.slow
def test_a_learner_that_is_cancelled_disconnects(tmp_path: Path) -> None:
    job = job_of(name="alone", scheme="dab", shard=50)

    async def cell() -> None:
        async with mel.serve(job, runs=tmp_path, learners=2) as server:
            work = asyncio.create_task(mel.join_async(server.invite(), name="one"))
            async with asyncio.timeout(60):
                await server._ready.result().wait_until(1)
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work

    asyncio.run(cell())  # ends: no thread is left that waits for ever


@pytest.mark.slow
def test_a_server_for_several_tasks_can_be_left_before_anybody_joins(
    tmp_path: Path,
) -> None:
    job = mel.load(Path(__file__).parents[1] / "examples" / "tasks.toml")
    with mel.serve(job, runs=tmp_path) as server:
        assert server.invite()
