import fcntl
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from melisma.errors import DataError
from melisma.learning.parameters import load, save
from melisma.runs import store
from melisma.runs.lock import is_locked, lock
from melisma.runs.records import Evaluated
from melisma.runs.start import accept_config, write_start
from melisma.runs.store import (
    CHECKPOINT,
    CONFIG,
    MODEL,
    PREVIOUS,
    RECORDS,
    START,
    Checkpoint,
    RunWriter,
    run_folder,
    started,
)

WEIGHTS = {"w": torch.zeros(1)}
LARGE = {"w": torch.zeros(100_000)}
HOW = {"engine": "simulation"}
CYCLE = Evaluated(time_s=1.0, task="demo", cycle=1, metrics={"mae": 0.5}, loss=1.0)


def test_runs_of_one_name_are_numbered(tmp_path: Path) -> None:
    names = []
    for _ in range(3):
        with run_folder(tmp_path / "runs", "demo") as folder:
            (folder / "something").touch()
            names.append(folder.name)
    assert names == ["demo", "demo-2", "demo-3"]


def test_an_empty_run_leaves_no_folder(tmp_path: Path) -> None:
    with run_folder(tmp_path, "demo") as folder:
        pass
    assert not folder.exists()


def test_a_run_that_ended_without_a_checkpoint_is_not_begun_again(
    tmp_path: Path,
) -> None:
    # As version 0.1 left simulated runs.
    with RunWriter.open(tmp_path, "") as run:
        run.note(CYCLE)
    save(WEIGHTS, tmp_path / MODEL)
    before = (tmp_path / RECORDS).read_bytes()
    opened = RunWriter.open(tmp_path, "")
    with pytest.raises(DataError, match="no checkpoint to go on from"):
        opened.__enter__()
    assert (tmp_path / RECORDS).read_bytes() == before


def test_records_that_are_shorter_than_their_checkpoint_are_left_as_they_are(
    tmp_path: Path,
) -> None:
    with RunWriter.open(tmp_path, "") as run:
        run.note(CYCLE)
        run.keep(1, 1.0, WEIGHTS)
    assert (tmp_path / CHECKPOINT).exists()
    cut = (tmp_path / RECORDS).read_bytes()[:-20]
    (tmp_path / RECORDS).write_bytes(cut)
    opened = RunWriter.open(tmp_path, "")
    with pytest.raises(DataError, match="it was cut short"):
        opened.__enter__()
    assert (tmp_path / RECORDS).read_bytes() == cut


def test_how_a_run_was_started_is_not_guessed(tmp_path: Path) -> None:
    assert started(tmp_path) == {}
    (tmp_path / START).write_text('engine = "simul')
    with pytest.raises(DataError, match=r"run\.toml cannot be read"):
        started(tmp_path)


def test_a_cut_run_toml_is_never_read(tmp_path: Path) -> None:
    write_start(tmp_path, "cycles = 4\n", HOW)
    assert started(tmp_path) == HOW
    whole = (tmp_path / START).read_bytes()
    for cut in range(len(whole) - 1):  # the last line break says nothing
        (tmp_path / START).write_bytes(whole[:cut])
        with pytest.raises(DataError, match=r"run\.toml (cannot be read|is damaged)"):
            started(tmp_path)


def test_how_a_run_of_version_0_2_was_started_is_read(tmp_path: Path) -> None:
    (tmp_path / START).write_text('melisma = "0.2.0"\nengine = "serve"\n')
    assert started(tmp_path) == {"melisma": "0.2.0", "engine": "serve"}


def test_another_job_in_config_toml_is_refused_until_it_is_accepted(
    tmp_path: Path,
) -> None:
    write_start(tmp_path, "cycles = 4\n", HOW)
    (tmp_path / CONFIG).write_text("cycles = 5\n")
    with pytest.raises(DataError, match=r"config\.toml is not as the run wrote it"):
        started(tmp_path)
    accept_config(tmp_path)
    assert started(tmp_path) == HOW


# Checkpoints


def test_the_checkpoint_before_the_last_is_kept(tmp_path: Path) -> None:
    with RunWriter.open(tmp_path, "") as run:
        for cycle in (1, 2, 3):
            run.note(CYCLE)
            run.keep(cycle, 1.0, WEIGHTS)
            assert (tmp_path / PREVIOUS).exists() == (cycle > 1)
    found = Checkpoint._read(tmp_path / PREVIOUS)
    assert (found.cycle, found.is_previous) == (2, True)
    assert found.check_records(tmp_path)


def test_a_damaged_checkpoint_does_not_become_the_one_before(tmp_path: Path) -> None:
    with RunWriter.open(tmp_path, "") as run:
        for cycle in (1, 2):
            run.note(CYCLE)
            run.keep(cycle, 1.0, WEIGHTS)
    (tmp_path / CHECKPOINT).write_bytes(b"cut short")
    with RunWriter.open(tmp_path, "") as run:
        assert len(run.past) == 1
        run.note(CYCLE)
        run.keep(2, 1.0, WEIGHTS)
    cycles = [Checkpoint._read(tmp_path / n).cycle for n in (PREVIOUS, CHECKPOINT)]
    assert cycles == [1, 2]
    assert len(run.records) == 2


def test_records_that_were_changed_before_their_checkpoint_are_refused(
    tmp_path: Path,
) -> None:
    with RunWriter.open(tmp_path, "") as run:
        run.note(CYCLE)
        run.keep(1, 1.0, WEIGHTS)
    changed = (tmp_path / RECORDS).read_bytes().replace(b"0.5", b"0.6")
    (tmp_path / RECORDS).write_bytes(changed)
    opened = RunWriter.open(tmp_path, "")
    with pytest.raises(DataError, match="is not as the run wrote it up to cycle 1"):
        opened.__enter__()
    assert (tmp_path / RECORDS).read_bytes() == changed


def test_a_checkpoint_of_version_0_2_has_no_digests_and_is_read(tmp_path: Path) -> None:
    with RunWriter.open(tmp_path, "") as run:
        run.note(CYCLE)
    size = (tmp_path / RECORDS).stat().st_size
    notes = {"cycle": "1", "time_s": "1.0", "records_bytes": str(size)}
    save_file(WEIGHTS, tmp_path / CHECKPOINT, notes)
    with RunWriter.open(tmp_path, "") as run:
        assert run.past == [CYCLE]
        run.keep(1, 1.0, WEIGHTS)
    with RunWriter.open(tmp_path, "") as run:
        assert run.checkpoint is not None
        assert run.checkpoint.records_sha256


def test_a_checkpoint_that_lost_its_own_digest_is_not_read(tmp_path: Path) -> None:
    with RunWriter.open(tmp_path, "") as run:
        run.note(CYCLE)
        run.keep(1, 1.0, WEIGHTS)
    with safe_open(tmp_path / CHECKPOINT, "pt") as file:
        notes = file.metadata()
    del notes["sha256"]
    save_file(WEIGHTS, tmp_path / CHECKPOINT, notes)
    with pytest.raises(DataError, match="its SHA-256 is missing"):
        Checkpoint.read(tmp_path)


@pytest.mark.parametrize(
    ("saved", "wrong"),
    [({"w": torch.zeros(1)}, "there is no"), ({"weight": torch.zeros(1)}, "the shape")],
)
def test_a_checkpoint_of_another_model_changes_nothing(
    tmp_path: Path, saved: dict[str, torch.Tensor], wrong: str
) -> None:
    with RunWriter.open(tmp_path, "own") as run:
        run.note(CYCLE)
        run.keep(1, 1.0, saved)
        run.note(CYCLE)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with (
        pytest.raises(DataError, match=f"is of another model: .*{wrong}"),
        RunWriter.open(tmp_path, "another") as run,
    ):
        run.restore(torch.nn.Linear(2, 2))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_model_with_a_flipped_bit_is_not_read(tmp_path: Path) -> None:
    save(LARGE, tmp_path / MODEL)
    content = bytearray((tmp_path / MODEL).read_bytes())
    content[-1] ^= 1
    (tmp_path / MODEL).write_bytes(content)
    with pytest.raises(DataError, match=r"model\.safetensors is damaged"):
        load(tmp_path / MODEL)


# Disks and folders


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Let no file grow beyond ``size`` bytes, as on a full disk."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)


def note_much(run: RunWriter) -> None:
    for _ in range(1000):
        run.note(CYCLE)


def keep_more(run: RunWriter) -> None:
    run.note(CYCLE)
    run.keep(2, 1.0, LARGE)


@pytest.mark.parametrize("seldom", [False, True])
@pytest.mark.parametrize(
    ("write", "file"),
    [
        (note_much, RECORDS),
        (keep_more, CHECKPOINT),
        (lambda run: run.finish(LARGE), MODEL),
    ],
)
def test_a_full_disk_is_one_line_and_the_run_goes_on_from_its_checkpoint(
    tmp_path: Path, write: Callable[[RunWriter], None], file: str, seldom: bool
) -> None:
    with RunWriter.open(tmp_path, "", seldom=seldom) as run:
        run.note(CYCLE)
        run.keep(1, 1.0, WEIGHTS)
    with (
        file_size_limit(20_000),
        pytest.raises(DataError, match=f"{file} cannot be written: .*too large") as no,
        RunWriter.open(tmp_path, "", seldom=seldom) as run,
    ):
        write(run)
    assert "\n" not in str(no.value)
    assert not is_locked(tmp_path / RECORDS)
    assert not list(tmp_path.glob("*.part"))
    with RunWriter.open(tmp_path, "") as run:
        assert run.past == [CYCLE]
        run.note(CYCLE)
        run.keep(2, 1.0, LARGE)
    assert len(run.records) == 2


@pytest.fixture
def read_only() -> Iterator[Path]:
    """A folder in which this process may change nothing, root or not."""
    with tempfile.TemporaryDirectory() as root:
        folder, user = Path(root, "run"), os.geteuid()
        os.chmod(root, 0o755)
        folder.mkdir()
        with RunWriter.open(folder, "") as run:
            run.note(CYCLE)
            run.keep(1, 1.0, WEIGHTS)
        for path in folder.iterdir():
            path.chmod(0o444)
        folder.chmod(0o555)
        if user == 0:
            os.seteuid(65534)
        try:
            yield folder
        finally:
            os.seteuid(user)
            folder.chmod(0o755)


def test_a_read_only_folder_is_one_line(read_only: Path) -> None:
    opened = RunWriter.open(read_only, "")
    with pytest.raises(DataError, match=r"records\.jsonl cannot be written: Perm"):
        opened.__enter__()
    with pytest.raises(DataError, match="cannot be made: Perm"):
        run_folder(read_only, "demo").__enter__()


def test_a_new_run_in_a_full_folder_leaves_nothing(tmp_path: Path) -> None:
    with (
        file_size_limit(10),
        pytest.raises(DataError, match="cannot be written"),
        RunWriter.open(tmp_path / "run", "a long configuration", start=HOW),
    ):
        pass
    assert not (tmp_path / "run").exists()


def test_a_refused_run_keeps_the_job_that_was_there(tmp_path: Path) -> None:
    (tmp_path / CONFIG).write_text("cycles = 4")
    (tmp_path / START).write_text("damaged")
    opened = RunWriter.open(tmp_path, "")
    with pytest.raises(DataError, match=r"run\.toml cannot be read"):
        opened.__enter__()
    assert {path.name for path in tmp_path.iterdir()} == {CONFIG, START}


# One writer

_HOLD = """
import sys
from pathlib import Path
from melisma.runs.store import RunWriter
with RunWriter.open(Path(sys.argv[1]), "") as run:
    print("open", flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
def test_a_run_of_another_process_is_neither_read_nor_changed(tmp_path: Path) -> None:
    with RunWriter.open(tmp_path, "") as run:
        run.note(CYCLE)
        run.keep(1, 1.0, WEIGHTS)
        run.note(CYCLE)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    other = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with other:
        assert other.stdout
        assert other.stdout.readline() == b"open\n"
        (tmp_path / CHECKPOINT).rename(tmp_path / "away")  # would be found damaged
        (tmp_path / CHECKPOINT).write_bytes(b"")
        opened = RunWriter.open(tmp_path, "another job")
        with pytest.raises(DataError, match="under way in another process"):
            opened.__enter__()
        (tmp_path / "away").replace(tmp_path / CHECKPOINT)
        assert is_locked(tmp_path / RECORDS)
        assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
        other.communicate()
    assert not is_locked(tmp_path / RECORDS)


def test_a_reader_that_looks_for_a_writer_is_not_taken_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / RECORDS).touch()
    reader = (tmp_path / RECORDS).open("rb")
    fcntl.flock(reader, fcntl.LOCK_SH | fcntl.LOCK_NB)
    assert not is_locked(tmp_path / RECORDS)  # another reader may look too
    monkeypatch.setattr(time, "sleep", lambda seconds: reader.close())
    with RunWriter.open(tmp_path, ""):
        assert reader.closed


def test_records_that_were_removed_before_they_were_locked_are_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = ["a run that failed at once"]  # and removes its files, in between

    def late_lock(file: BinaryIO) -> bool:
        if failed:
            (tmp_path / RECORDS).unlink()
            failed.clear()
        return lock(file)

    monkeypatch.setattr(store, "lock", late_lock)
    with RunWriter.open(tmp_path, "") as run:
        run.note(CYCLE)
    assert run.records == [CYCLE]
