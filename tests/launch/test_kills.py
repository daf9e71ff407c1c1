"""Runs that are killed at chosen system calls lose and double nothing.

The process kills itself at the nth write of records (half of it is on the disk then),
fsync, rename or link, is resumed, and killed again. What it comes to at last is what
an undisturbed run comes to, byte for byte.
"""

import multiprocessing
import signal
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from tests.launch import kills
from tests.launch.test_resumed_simulation import files

#: Calls after which the process dies: the first time, when it is resumed, and again.
NTH = (2, 1, 5)


@pytest.fixture(scope="module")
def processes() -> Any:
    """Processes that have loaded torch already, and share nothing but that."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.launch.kills"])
    return context


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, processes: Any) -> Any:
    """Return the files of an undisturbed run of each kind, run once."""
    known: dict[str, dict[str, bytes]] = {}

    def of(kind: str) -> dict[str, bytes]:
        if kind not in known:
            folder = tmp_path_factory.mktemp(kind)
            assert ended(processes.Process(target=kills.go, args=(kind, folder))) == 0
            known[kind] = files(folder)
        return known[kind]

    return of


def ended(process: BaseProcess) -> int | None:
    process.start()
    process.join()
    return process.exitcode


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "call"), kills.PAIRS)
def test_a_run_that_is_killed_again_and_again_comes_to_the_same(
    kind: str, call: str, tmp_path: Path, processes: Any, whole: Any
) -> None:
    died = 0
    for nth in NTH:
        target, args = kills.killed_at, (kind, tmp_path, call, nth)
        code = ended(processes.Process(target=target, args=args))
        assert code in (0, -signal.SIGKILL)
        died += code != 0
    assert died
    assert ended(processes.Process(target=kills.go, args=(kind, tmp_path))) == 0
    assert files(tmp_path) == whole(kind)
