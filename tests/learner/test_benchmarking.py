"""A learner benchmarks itself as its task says: shards, sizes, repeats."""

import msgspec
import pytest
from tests.learner.test_source import KEYS, SPEC, Dictionaries, source
from tests.learner.test_speed import measured

from melisma.errors import ConfigError
from melisma.jobs import Job
from melisma.jobs.benchmark_table import REPEATS, BenchmarkTable, Known
from melisma.jobs.live_task import LiveTask
from melisma.learner.learner import Learner
from melisma.learner.source import Caller
from melisma.learning.shards import Shard
from melisma.runs.store import RunWriter


class Counting(Dictionaries):
    """Keeps how many shards each call asked for."""

    counts: list[int]

    def shards(
        self, task: str, keys: list[str], within_s: float | None = None
    ) -> list[Shard]:
        self.counts.append(len(keys))
        return super().shards(task, keys, within_s)


def fetched(sizes: int, repeats: int) -> tuple[list[int], Learner]:
    """Numbers of shards that a benchmark fetches, after the warm-up's."""
    counting = source()
    counting.__class__ = Counting
    assert isinstance(counting, Counting)
    counting.counts = []
    learner = Learner(name="a")
    learner.prepare(msgspec.structs.replace(SPEC, sizes=sizes, repeats=repeats))
    learner.measure("t", KEYS, Caller(counting))
    return counting.counts[1 : 1 + sizes * repeats], learner


def test_one_size_is_timed_by_all_shards_and_has_no_latency() -> None:
    counts, learner = fetched(sizes=1, repeats=1)
    assert counts == [len(KEYS)]
    speed = learner._tasks["t"].speed
    assert speed.link is not None
    assert speed.compute is not None
    assert (speed.link.latency_s, speed.compute.latency_s) == (0.0, 0.0)


def test_a_size_is_timed_as_often_as_the_task_says() -> None:
    assert fetched(sizes=1, repeats=5)[0] == [len(KEYS)] * 5


def test_two_sizes_take_turns() -> None:
    assert fetched(sizes=2, repeats=3)[0] == [len(KEYS) // 2, len(KEYS)] * 3


@pytest.mark.parametrize(
    ("scheme", "table", "expected"),
    [
        ("dab", BenchmarkTable(), (False, 8, 1, 1)),
        ("dab-adaptive", BenchmarkTable(), (True, 8, 1, REPEATS)),
        ("csa", BenchmarkTable(), (True, 8, 1, REPEATS)),
        ("dab", BenchmarkTable(sizes=2, repeats=5, shards=4), (False, 4, 2, 5)),
        ("csa", BenchmarkTable(sizes=2, repeats=1, shards=4), (True, 4, 2, 1)),
    ],
)
def test_a_live_task_tells_learners_how_its_job_benchmarks(
    scheme: str, table: BenchmarkTable, expected: tuple[bool, int, int, int]
) -> None:
    job = Job(scheme=scheme, benchmark=table, shard=10)
    with RunWriter.open(None, "", start={}) as run:
        announced = LiveTask.of(job, run).announcement
    spec = announced.spec
    found = (spec.adaptive, spec.benchmarked, spec.sizes, spec.repeats)
    assert found == expected
    assert len(announced.benchmark) == table.shards


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"sizes": 3}, "sizes = 3: benchmark with 1 or 2 sizes"),
        ({"repeats": 0}, "repeats = 0: repeat from 1 to 100 times"),
        ({"repeats": 101}, "repeats = 101"),
    ],
)
def test_an_impossible_benchmark_is_named(keys: dict[str, int], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        BenchmarkTable(**keys)  # type: ignore[arg-type]


@pytest.mark.parametrize(("adaptive", "shards"), [(False, 19), (True, 15)])
def test_a_learner_bids_as_its_task_says(adaptive: bool, shards: int) -> None:
    # 2.5 s, and 1.5 s a shard, by 32.5 s; or 1.2 times that by 0.97 · 32.5 s.
    learner = Learner(name="a")
    learner.prepare(msgspec.structs.replace(SPEC, adaptive=adaptive))
    learner._tasks["t"].speed = measured()
    assert learner.bid("t", 32.5, 1) == shards


def test_a_live_task_tells_learners_what_its_job_says_of_states_and_the_clock() -> None:
    job = Job(look_every=3, benchmark=BenchmarkTable(known=Known.MEASURED))
    with RunWriter.open(None, "", start={}) as run:
        spec = LiveTask.of(job, run).announcement.spec
    assert (spec.look_every, spec.states) == (3, True)
