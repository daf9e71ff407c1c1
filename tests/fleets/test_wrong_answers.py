"""A learner that answers wrongly, at every call of every family, ends no run.

It goes through the grammar of wrong answers of `benchmarks/peers/lies.py`, one a call,
beside two honest learners. So that all of it is heard, several go through it from
different places.
"""

import itertools
import zlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from peers.lies import FILLS, WRONG, answer_by, filled, spoiled
from tests.fleets.learners import Steady, changed, live, of

from melisma import rpc
from melisma.algorithms import log
from melisma.algorithms.log import OFFENCES
from melisma.fleets.messages import Ready, Speeds, TaskSpec
from melisma.jobs.fog_table import FogTable, Moving
from melisma.jobs.schema import Job, TaskTable, TrainingTable
from melisma.jobs.wire_table import WireTable
from melisma.learner.fog import FogLearner
from melisma.learner.learner import Learner
from melisma.learner.service import FogService
from melisma.learning import data
from melisma.learning.data import Dataset
from melisma.learning.parameters import all_finite, load
from melisma.learning.samples import Part
from melisma.runs import records
from melisma.runs.records import Record
from melisma.runs.store import MODEL
from melisma.system.law import Mode
from melisma.units import Deadline

#: Of the grammar, what the quick tests try.
SOME: list[Any] = [None, True, -1, 2**63, float("nan"), "x", {}, WRONG[-2]]


def lie_at(learner: Learner, call: str, grammar: list[Any], first: int = 0) -> None:
    """Make a learner answer a call wrongly, from the ``first`` wrong answer on."""
    told = itertools.count(first)

    def lie(honest: Any) -> Any:
        answers = list(spoiled(honest, grammar))
        return answers[next(told) % len(answers)]

    answer_by(learner, call, lie)


class Quick(Steady):
    """Needs no benchmark, is given little, and bids the same always."""

    def prepare(self, spec: TaskSpec) -> Ready:
        ready = super().prepare(spec)
        return msgspec.structs.replace(ready, measured=True)

    def speeds(self, task: str, drifted: bool) -> Speeds:
        return Speeds(step_s=0.1, sample_s=0.001, fixed_s=0.1)

    def bid(self, task: str, deadline_s: float, steps: int) -> int:
        return 2


class Device(FogLearner):
    def speeds(self, task: str, drifted: bool) -> Speeds:
        step_s = 0.02 if self.name in "ab" else 0.05
        return Speeds(step_s=step_s, sample_s=1e-4, fixed_s=0.01)


PLAIN = changed(scheme="csa", samples=300, shard=10, deadline=Deadline(30.0))
CODED = changed(PLAIN, scheme="coded", stragglers=1, shard=10)
FOG = changed(
    scheme="fog",
    mode=Mode.FEDERATED,
    model="FogMLP",
    samples=None,
    shard=4,
    deadline=Deadline(0.6),
    training=TrainingTable(rate=0.1, batch=8),
    fog=FogTable(period=2, plan=Moving.ALONE),
)
MOVING = changed(FOG, fog=FogTable(period=2, plan=Moving.KNOWN, discard=10.0))
TASKS = changed(
    scheme="med-probe",
    shard=20,
    deadline=Deadline(30.0),
    tasks=(TaskTable(name="one", samples=600, steps=1),),
)


def own(name: str) -> Dataset:
    whole, first = data.load("mnist-5k"), zlib.crc32(name.encode()) % 3000
    rows = np.arange(first, first + 600)
    return Dataset(name, Part(whole.train, rows), Part(whole.train, rows[:0]))


def learners(job: Job, liars: int = 1) -> list[Learner]:
    names = ["a", "b", *(f"liar-{i}" for i in range(liars))]
    if job.scheme == "fog":
        return [Device(name=name, own=own(name), share_data=True) for name in names]
    if job.mode == Mode.FEDERATED:
        return [Quick(name=name, own=own(name)) for name in names]
    kind = Steady if job.tasks else Quick
    return [kind(name=name) for name in names]


def tried(
    job: Job,
    folder: Path,
    call: str,
    grammar: list[Any],
    liars: int = 1,
    least: int | None = None,
) -> list[Record]:
    everybody = learners(job, liars)
    for i, liar in enumerate(everybody[2:]):
        lie_at(liar, call, grammar, first=i * job.cycles)
    return live(job, folder, everybody, least=least or len(everybody))


def assert_honest_went_on(job: Job, folder: Path, happened: list[Record]) -> None:
    cycles = [r.cycle for r in of(records.Evaluated, happened)]
    assert cycles == list(range(1, job.cycles + 1))
    accused = {r.learner for r in of(records.Dropped, happened) if r.offence}
    assert not accused & {"a", "b"}
    counted = {r.learner for r in of(records.Uploaded, happened)}
    # Where data moves, one device may be given all of it.
    assert counted & {"a", "b"} if job.fog == MOVING.fog else counted >= {"a", "b"}
    model = folder / (job.tasks[0].name if job.tasks else "") / MODEL
    assert all_finite(load(model))
    texts = [r.reason for r in of(records.Dropped, happened)]
    assert all(text.isprintable() and len(text) <= 200 for text in texts)


FAMILIES = [
    *((PLAIN, call) for call in ("prepare", "speeds", "train")),
    (changed(PLAIN, mode=Mode.FEDERATED, samples=None, shard=50), "prepare"),
    (changed(PLAIN, scheme="dab"), "bid"),
    (changed(PLAIN, checks=1.0), "train"),
    (changed(PLAIN, wire=WireTable(down="fp16", up="top-k 5 %")), "train"),
    *((CODED, call) for call in ("speeds", "gradient")),
    *((FOG, call) for call in ("prepare", "speeds", "slot", "finish")),
    (MOVING, "slot"),
    *((TASKS, call) for call in ("speeds", "probe", "train")),
]
IDS = [f"{job.scheme}-{job.mode.value}-{call}" for job, call in FAMILIES]
QUICK = {"csa-parallel-speeds", "dab-parallel-bid"}


@pytest.mark.parametrize(
    ("job", "call"),
    [
        pytest.param(*pair, id=id, marks=() if id in QUICK else pytest.mark.slow)
        for pair, id in zip(FAMILIES, IDS, strict=True)
    ],
)
def test_some_wrong_answers_end_no_run(
    tmp_path: Path, job: Job, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "OFFENCES", 10**6)  # to hear all of them
    job = changed(job, cycles=len(SOME))
    happened = tried(job, tmp_path, call, SOME)
    assert_honest_went_on(job, tmp_path, happened)
    assert [r for r in of(records.Dropped, happened) if r.offence]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("job", "call"), FAMILIES, ids=IDS)
def test_no_wrong_answer_ends_a_run(
    tmp_path: Path, job: Job, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "OFFENCES", 10**6)
    job = changed(job, cycles=25)
    happened = tried(job, tmp_path, call, WRONG, liars=9)
    assert_honest_went_on(job, tmp_path, happened)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("prepare", "not an answer to prepare"),
        pytest.param("speeds", "not a delay law", marks=pytest.mark.slow),
    ],
)
def test_who_answers_wrongly_before_any_work_is_expelled_too(
    tmp_path: Path, call: str, why: str
) -> None:
    job = changed(PLAIN, cycles=OFFENCES + 1)
    a, b, liar = learners(job)
    setattr(liar, call, lambda *args: None)
    happened = live(job, tmp_path, [a, b, liar])  # waits for all three
    offences = [r for r in of(records.Dropped, happened) if r.offence]
    assert {(r.learner, r.reason) for r in offences} == {("liar-0", why)}
    assert [r.learner for r in of(records.Expelled, happened)] == ["liar-0"]
    assert_honest_went_on(job, tmp_path, happened)


class Talkative(FogService):
    """Answers where nothing is to be returned."""

    @rpc.expose
    def measure(self, task: str, keys: list[str]) -> Any:
        return float("nan")

    @rpc.expose
    def start(self, task: str, cycle: int, slot: int) -> Any:
        return float("nan")


@pytest.mark.slow
@pytest.mark.parametrize("call", ["measure", "start"])
def test_who_answers_where_nothing_is_to_be_returned_is_refused(
    tmp_path: Path, call: str
) -> None:
    class Measured(Device):
        service = Talkative

        def prepare(self, spec: TaskSpec) -> Ready:
            ready = super().prepare(spec)
            return msgspec.structs.replace(ready, measured=call == "start")

    job = changed(FOG, cycles=OFFENCES + 1)
    a, b, _ = learners(job)
    liar = Measured(name="liar-0", own=own("liar-0"), share_data=True)
    happened = live(job, tmp_path, [a, b, liar])
    assert_honest_went_on(job, tmp_path, happened)
    dropped = [r for r in of(records.Dropped, happened) if r.learner == "liar-0"]
    assert {r.reason for r in dropped} == {f"an answer to {call}, which has none"}
    assert [r.learner for r in of(records.Expelled, happened)] == ["liar-0"]


def test_who_claims_to_have_endless_samples_makes_no_plan_infeasible(
    tmp_path: Path,
) -> None:
    class Rich(Quick):
        def prepare(self, spec: TaskSpec) -> Ready:
            return msgspec.structs.replace(super().prepare(spec), samples=10**9)

    job = changed(PLAIN, mode=Mode.FEDERATED, samples=None, shard=50, cycles=2)
    a, b, _ = learners(job)
    happened = live(job, tmp_path, [a, b, Rich(name="liar", own=own("liar"))])
    assert_honest_went_on(job, tmp_path, happened)


def test_who_is_alone_at_work_ends_no_run_with_nan(tmp_path: Path) -> None:
    class Late(Quick):
        asked = 0

        def bid(self, task: str, deadline_s: float, steps: int) -> int:
            self.asked += 1
            return 2 if self.asked > OFFENCES else 0

    job = changed(PLAIN, scheme="dab", cycles=OFFENCES + 1)
    liar = Quick(name="liar-0")
    *_, nan = FILLS
    answer_by(liar, "train", lambda update: filled(update, nan))
    happened = live(job, tmp_path, [Late(name="a"), Late(name="b"), liar])
    assert [r.learner for r in of(records.Expelled, happened)] == ["liar-0"]
    assert_honest_went_on(job, tmp_path, happened)


@pytest.mark.slow
def test_a_run_is_resumed_while_such_a_learner_dials(tmp_path: Path) -> None:
    job = changed(PLAIN, cycles=2)
    tried(job, tmp_path, "prepare", WRONG)
    job = changed(job, cycles=4)
    happened = tried(job, tmp_path, "speeds", WRONG, least=2)
    assert len(of(records.Evaluated, happened)) == 4
