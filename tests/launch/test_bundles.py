"""A job's own modules on devices that do not have them: serve, trust, train, resume."""

import json
import os
import pty
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.launch.chaos.processes import (
    MELISMA,
    Process,
    Processes,
    free_port,
    processes,
    until,
)

import melisma as mel
from melisma.errors import ConfigError, DataError
from melisma.launch import api
from melisma.launch.bundling import kept, packed
from melisma.launch.local import join_command
from melisma.launch.serve import orchestrate
from melisma.runs.start import started
from melisma.runs.store import run_folder

JOB = """
name = "own"
task = "my_bundled_tasks:lines"
scheme = "dab"
cycles = {cycles}
deadline = "3 s"
shard = 8
steps = 1
"""

TASKS = """
import my_bundled_kit.data
from my_bundled_kit import nets
import melisma as mel


def lines() -> mel.Task:
    return mel.Task(
        model=nets.line,
        train=lambda: my_bundled_kit.data.rows(64),
        test=lambda: my_bundled_kit.data.rows(16),
        loss=nets.loss,
        metrics=["r2"],
    )
"""

NETS = """
from torch import nn


def line() -> nn.Module:
    return nn.Linear(2, 1)


def loss(model, batch):
    from .late import half

    return half * (model(batch["x"])[:, 0] - batch["y"]) ** 2
"""

DATA = """
import numpy as np


def rows(number: int):
    x = np.random.default_rng(0).normal(size=(number, 2)).astype("f4")
    return {"x": x, "y": x.sum(axis=1)}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The orchestrator's folder, with a job and its modules."""
    folder = tmp_path / "orchestrator"
    (folder / "my_bundled_kit").mkdir(parents=True)
    (folder / "job.toml").write_text(JOB.format(cycles=2))
    (folder / "my_bundled_tasks.py").write_text(TASKS)
    for name, text in (("nets", NETS), ("data", DATA), ("late", "half = 0.5\n")):
        (folder / "my_bundled_kit" / f"{name}.py").write_text(text)
    return folder


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, as the current folder of this process."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    for name in [name for name in sys.modules if name.startswith("my_bundled_")]:
        monkeypatch.delitem(sys.modules, name)
    return folder


def job(name: str = "job.toml") -> mel.Job:
    return mel.load(Path(name))


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A device's folder, which has no such modules."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "device"
    folder.mkdir()
    return folder


@pytest.fixture
def start(folder: Path) -> Iterator[Processes]:
    with processes(folder) as started:
        yield started


@pytest.fixture
def start_there(device: Path) -> Iterator[Processes]:
    with processes(device) as started:
        yield started


FILES = [
    *("my_bundled_kit/data.py", "my_bundled_kit/late.py", "my_bundled_kit/nets.py"),
    "my_bundled_tasks.py",
]


def test_a_job_packs_what_it_names_in_each_of_its_tasks(here: Path) -> None:
    assert list(packed(job()).files) == FILES
    tasks = "scheme = 'med'\nshard = 8\n[[tasks]]\nname = 'a'\n[[tasks]]\nname = 'b'\n"
    (here / "two.toml").write_text(f"{tasks}model = 'my_bundled_kit.nets:line'\n")
    assert list(packed(job("two.toml")).files) == FILES[1:3]


def test_nothing_to_pack_is_one_line(here: Path) -> None:
    with pytest.raises(ConfigError, match="nothing to bundle"):
        packed(mel.Job())
    with pytest.raises(ConfigError, match="nothing to bundle"):
        api.serve(mel.Job(), bundle=True)
    assert not (here / "runs").exists()


def test_what_a_script_defines_itself_cannot_be_packed(here: Path) -> None:
    def mine() -> None: ...

    mine.__module__, mine.__qualname__ = "__main__", "mine"
    with pytest.raises(ConfigError, match="put it into a module of its own"):
        packed(mel.Job(task=mine))


def test_a_run_keeps_its_bundle_and_goes_on_with_it(
    here: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with mel.serve("job.toml", bundle=True) as server:
        assert server.folder is not None
        assert server.bundle is not None
        folder, bundle = server.folder, server.bundle
    assert started(folder)["bundle"] == bundle.hash
    assert kept(folder, job()) == bundle
    assert caplog.text == ""
    # A changed source is told, and the run's own is served.
    (here / "my_bundled_kit" / "late.py").write_text("half = 1.0\n")
    with mel.serve(folder=folder) as again:
        assert again.bundle == bundle
    assert "my_bundled_kit/late.py changed since the run was started" in caplog.text
    assert started(folder)["bundle"] == bundle.hash
    # A changed copy is not served.
    (folder / "bundle" / "my_bundled_kit" / "late.py").write_text("half = 1.0\n")
    with pytest.raises(DataError, match="bundle is not as the run wrote it"):
        mel.serve(folder=folder)
    (folder / "bundle").rename(folder / "moved")
    with pytest.raises(DataError, match=r"bundle is not as the run wrote it \(.*No su"):
        mel.serve(folder=folder)


def test_a_run_that_cannot_begin_leaves_no_bundle(here: Path) -> None:
    (here / "my_bundled_kit" / "data.py").write_text("def rows(number): return {}\n")
    tasks = "[[tasks]]\nname = 'a'\n[[tasks]]\nname = 'b'\n"
    two = JOB.format(cycles=1).replace('"dab"', '"med"') + tasks
    (here / "two.toml").write_text(two)
    for name in ("job.toml", "two.toml"):
        bundle = packed(job(name))
        with (
            run_folder(here / "runs", "own") as folder,
            pytest.raises(DataError, match="no arrays"),
        ):
            orchestrate(job(name), folder, learners=1, bundle=bundle, port=0, say=len)
        assert list((here / "runs").iterdir()) == []


def test_runs_without_a_bundle_are_as_before(here: Path) -> None:
    with mel.serve("job.toml") as server:
        assert server.folder is not None
        assert "bundle" not in started(server.folder)
        assert not (server.folder / "bundle").exists()
    command = join_command(job(), "127.0.0.1:1", "a", None, None)
    assert command[-3:-1] == ["--allow", "my_bundled_tasks:lines"]
    assert "--trust" not in command


def served(start: Processes, *words: str) -> tuple[Process, str, str]:
    """Start an orchestrator; return it, its address and the hash that it tells."""
    process = start(*MELISMA, *words, "--port", str(free_port()), "--json", pipes=True)
    assert process.stdout
    told = json.loads(process.stdout.readline())
    return process, told["join"], told["bundle"]


def finished(orchestrator: Process) -> None:
    out, err = orchestrator.communicate(timeout=120)
    assert orchestrator.returncode == 0, err
    assert json.loads(out.splitlines()[-1])["state"] == "finished"


@pytest.mark.slow
def test_a_device_that_trusts_a_bundle_trains_what_it_does_not_have(
    start: Processes, start_there: Processes, folder: Path, device: Path
) -> None:
    orchestrator, address, hash = served(start, "serve", "job.toml", "--bundle")
    join = (*MELISMA, "join", address, "--until-eof")
    wary = start_there(*join, "--name", "wary")
    until(
        lambda: f"--trust {hash}" in start_there.said(wary), "the refusal", alive=wary
    )
    lies = start_there.said(wary).split(", in ")[1].split(" to be read")[0]
    assert (Path(lies) / "my_bundled_tasks.py").read_text() == TASKS
    assert wary.poll() is None  # it goes on, and may serve other tasks
    start_there(*join, "--name", "pi", "--trust", hash)
    finished(orchestrator)
    records = (folder / "runs" / "own" / "records.jsonl").read_text()
    assert '"learner":"pi"' in records
    assert "wary" not in records  # nor has it offended
    assert {path.suffix for path in device.iterdir()} == {".txt"}


@pytest.mark.slow
def test_an_orchestrator_says_who_does_not_trust_its_bundle(
    start: Processes, start_there: Processes
) -> None:
    port = free_port()
    orchestrator = start(
        *(*MELISMA, "serve", "job.toml", "--bundle", "--port", str(port))
    )
    until(lambda: "--trust" in start.said(orchestrator), "ready", alive=orchestrator)
    said = " ".join(start.said(orchestrator).split())
    hash = said.rpartition("--trust ")[2].split()[0]
    assert (
        f"Bundle: {', '.join(FILES)} Join with: melisma join '127.0.0.1:{port}'" in said
    )
    start_there(*MELISMA, "join", f"127.0.0.1:{port}", "--name", "wary", "--quiet")
    line = f"wary does not take part: Untrusted: bundle {hash} is not trusted"
    until(
        lambda: line in " ".join(start.said(orchestrator).split()),
        "the line",
        alive=orchestrator,
    )


@pytest.mark.slow
def test_a_resumed_run_serves_its_bundle_though_the_source_changed(
    start: Processes, start_there: Processes, folder: Path
) -> None:
    (folder / "job.toml").write_text(JOB.format(cycles=400))
    orchestrator, address, hash = served(start, "serve", "job.toml", "--bundle")
    join = (*MELISMA, "join", "--until-eof", "--quiet", "--name", "pi")
    learner = start_there(*join, address, "--trust", hash)
    checkpoint = folder / "runs" / "own" / "checkpoint.safetensors"
    until(checkpoint.exists, "a cycle", alive=orchestrator)
    orchestrator.send_signal(signal.SIGKILL)
    orchestrator.communicate()
    learner.kill()
    (folder / "my_bundled_kit" / "late.py").write_text("half = 0.25\n")
    run = folder / "runs" / "own"
    words = ("resume", str(run), "--learners", "1")
    orchestrator, address, again = served(start, *words)
    assert again == hash
    before = (run / "records.jsonl").read_text().count('"uploaded"')
    start_there(*join, address, "--trust", hash)
    until(
        lambda: (run / "records.jsonl").read_text().count('"uploaded"') > before,
        "another cycle",
        alive=orchestrator,
    )


@pytest.mark.slow
def test_an_owner_at_a_terminal_is_shown_the_files_and_asked(
    start: Processes, device: Path
) -> None:
    orchestrator, address, hash = served(start, "serve", "job.toml", "--bundle")
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(device)
        words = [sys.executable, *MELISMA, "join", address, "--name", "pi"]
        os.execv(sys.executable, words)
    try:
        seen = b""
        while b"all else refuses it:" not in seen:
            seen += os.read(terminal, 1 << 12)
        for text in (hash, "my_bundled_kit/late.py, 11 bytes", "| half = 0.5"):
            assert text.encode() in seen.replace(b"\r\n", b"")
        # What is typed before it asks counts for nothing, so it is typed once more.
        while b"Trusted." not in seen:
            os.write(terminal, b"yes\n")
            while b"Trusted." not in seen and select.select([terminal], [], [], 2.0)[0]:
                seen += os.read(terminal, 1 << 12)
        finished(orchestrator)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)
