"""A run's folder with one damaged file resumes to the right model, or is refused."""

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
import torch

from melisma.errors import MelismaError
from melisma.jobs.files import dump, load
from melisma.jobs.schema import Job, LearnersTable, TaskTable
from melisma.launch.api import resume
from melisma.launch.simulate import build
from melisma.learning.parameters import Parameters
from melisma.runs import store
from melisma.runs.checkpoint import Checkpoint
from melisma.runs.records import Evaluated, Record
from melisma.runs.store import (
    CHECKPOINT,
    CONFIG,
    MODEL,
    PREVIOUS,
    RECORDS,
    RunWriter,
    started,
)
from melisma.units import BytesPerSecond, Deadline, SamplesPerSecond

JOB = Job(
    name="small",
    scheme="eta",
    cycles=4,
    samples=60,
    steps=1,
    noise=0.2,
    learners=(
        LearnersTable(
            name="pi",
            count=2,
            rate=SamplesPerSecond(600.0),
            bandwidth=BytesPerSecond(3e6),
        ),
    ),
)


#: Files that a resumed run has to leave as the run that was not cut short did.
RESULTS = (MODEL, RECORDS)


class Killed(BaseException):
    """As if the process had gone."""


class Runs(NamedTuple):
    """Folders of the same run: killed in its third cycle, and finished."""

    cut: Path
    whole: Path


def made(job: Job, root: Path) -> Runs:
    """Simulate a job twice, with a checkpoint after every cycle."""
    found = Runs(root / "cut", root / "whole")

    def watch(record: Record) -> None:
        if record.cycle == 3 and isinstance(record, Evaluated):
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "SELDOM_S", 0.0)
        for folder in found:
            folder.mkdir()
        with pytest.raises(Killed):
            build(job).run(found.cut, watch)
        build(job).run(found.whole)
    return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return made(JOB, tmp_path_factory.mktemp("damage"))


def damaged(file: Path, draw: random.Random) -> str:
    """Cut a file at a byte, or flip one of its bits; return which."""
    content = bytearray(file.read_bytes())
    # Half of the places are in the head, where names and lengths are.
    place = draw.randrange(min(len(content), draw.choice([1000, len(content)])))
    if draw.random() < 0.3:
        file.write_bytes(content[:place])
        return f"{file.name} cut at {place}"
    bit = draw.randrange(8)
    content[place] ^= 1 << bit
    file.write_bytes(content)
    return f"bit {bit} of byte {place} of {file.name} flipped"


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def every_damage(
    good: Path, at: Path, draws: int, check: Callable[[Path, str], bool]
) -> int:
    """Damage copies of a folder, ``draws`` times; return how often one was refused."""
    draw, refused = random.Random(0), 0
    names = list(files_of(good))
    for number in range(draws):
        folder = shutil.copytree(good, at / str(number))
        what = damaged(folder / names[number % len(names)], draw)
        refused += check(folder, what)
        shutil.rmtree(folder)
    return refused


@contextmanager
def refusals() -> Iterator[list[str]]:
    """Yield a list of the error that ended the block, if it is one in one line."""
    found: list[str] = []
    try:
        yield found
    except MelismaError as error:
        found.append(str(error))
    assert "\n" not in "".join(found)


class GoodStates:
    """The states from which a run may go on: those of its undamaged folder."""

    def __init__(self, good: Path) -> None:
        self.start, self.job = started(good), load(good / CONFIG)
        self.records = (good / RECORDS).read_bytes()
        self.parameters: dict[int, Parameters] = {}
        for name in (CHECKPOINT, PREVIOUS):
            checkpoint = Checkpoint._read(good / name)
            self.parameters[checkpoint.cycle] = checkpoint.parameters

    def check(self, folder: Path, what: str) -> bool:
        """Return whether a damaged folder is refused; if not, it is in a good state."""
        before = files_of(folder)
        with refusals() as refused:
            start, job = started(folder), load(folder / CONFIG)
            with RunWriter.open(folder, dump(job), seldom=True) as run:
                assert (start, job) == (self.start, self.job), what
                assert run.checkpoint is not None, what
                size = run.checkpoint.records_bytes
                assert (folder / RECORDS).read_bytes()[:size] == self.records[:size]
                expected = self.parameters[run.checkpoint.cycle]
                assert expected.keys() == run.checkpoint.parameters.keys(), what
                for name, value in run.checkpoint.parameters.items():
                    assert torch.equal(value, expected[name]), what
        if refused:
            assert files_of(folder) == before, what  # nothing is lost
        return bool(refused)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cut", "whole"])
def test_a_damaged_file_is_refused_or_the_run_goes_on_from_a_good_state(
    runs: Runs, kind: str, tmp_path: Path
) -> None:
    good: Path = getattr(runs, kind)
    refused = every_damage(good, tmp_path, 80, GoodStates(good).check)
    assert 0 < refused < 80


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cut", "whole"])
def test_many_damages_are_refused_or_harmless(
    runs: Runs, kind: str, tmp_path: Path
) -> None:
    good: Path = getattr(runs, kind)
    assert 0 < every_damage(good, tmp_path, 2000, GoodStates(good).check) < 2000


TASKS = msgspec.structs.replace(
    JOB,
    scheme="med",
    shard=10,
    noise=0.0,
    deadline=Deadline(60.0),
    tasks=(TaskTable(name="one"), TaskTable(name="two", samples=40)),
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cut", "whole"])
@pytest.mark.parametrize("job", [JOB, TASKS], ids=["one task", "two tasks"])
def test_a_damaged_run_resumes_to_the_right_model_or_is_refused(
    job: Job, kind: str, tmp_path: Path
) -> None:
    runs = made(job, tmp_path)

    def results(folder: Path) -> dict[str, bytes]:
        files = files_of(folder)
        return {name: files[name] for name in files if Path(name).name in RESULTS}

    def check(folder: Path, what: str) -> bool:
        with refusals() as refused:
            resume(folder)
            assert results(folder) == expected, what
        return bool(refused)

    expected = results(runs.whole)
    refused = every_damage(getattr(runs, kind), tmp_path, 40, check)
    assert 0 < refused < 40


def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    runs: Runs, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = shutil.copytree(runs.cut, tmp_path / "run")
    (folder / CHECKPOINT).write_bytes((folder / CHECKPOINT).read_bytes()[:-1])
    resume(folder)
    (message,) = caplog.messages
    assert "goes on from the checkpoint before, of cycle 1" in message
    for name in (MODEL, RECORDS):
        assert (folder / name).read_bytes() == (runs.whole / name).read_bytes()


def test_two_damaged_checkpoints_are_refused_in_one_line(
    runs: Runs, tmp_path: Path
) -> None:
    folder = shutil.copytree(runs.cut, tmp_path / "run")
    for name in (CHECKPOINT, PREVIOUS):
        (folder / name).write_bytes((folder / name).read_bytes()[:-1])
    before = files_of(folder)
    with pytest.raises(MelismaError, match=r"checkpoint\.s.*; and .*previous") as found:
        resume(folder)
    assert "\n" not in str(found.value)
    assert files_of(folder) == before


def test_a_checkpoint_of_another_run_is_refused_before_anything_is_cut_off(
    runs: Runs, tmp_path: Path
) -> None:
    folder = shutil.copytree(runs.cut, tmp_path / "run")
    other = msgspec.structs.replace(JOB, model="TwoNN", seed=1)
    (tmp_path / "other").mkdir()
    build(other).run(tmp_path / "other")
    shutil.copy(tmp_path / "other" / CHECKPOINT, folder)
    before = files_of(folder)
    with pytest.raises(MelismaError, match=r"cut short|not as the run wrote it"):
        resume(folder)
    assert files_of(folder) == before
