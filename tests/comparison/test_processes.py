"""Trials over processes of this machine."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.comparison import doings
from tests.comparison.doings import Item

from melisma.comparison.sweeps import TRIES, Engine, in_turn, over_processes
from melisma.errors import ConfigError, LostError, RemoteError


@pytest.fixture(scope="module")
def two() -> Iterator[Engine]:
    with over_processes(2) as engine:
        yield engine


@pytest.mark.parametrize("processes", [1, 2])
def test_results_are_those_of_one_process_after_another(processes: int) -> None:
    here = dict(in_turn(doings.drawn, range(5)))
    with over_processes(processes) as engine:
        there = dict(engine(doings.drawn, range(5)))
    assert sorted(there) == list(range(5))
    for place, result in here.items():
        np.testing.assert_array_equal(result, there[place])


@pytest.mark.slow
def test_what_a_dead_process_did_is_done_again(two: Engine, tmp_path: Path) -> None:
    todo = [Item(number, tmp_path) for number in range(4)]
    assert dict(two(doings.dies_at_first, todo)) == {0: 0, 1: 1, 2: 2, 3: 3}


def test_ticks_of_what_is_done_again_are_told_once(two: Engine, tmp_path: Path) -> None:
    ticks: list[None] = []
    todo = [Item(number, tmp_path) for number in range(2)]
    list(two(doings.dies_at_first, todo, lambda: ticks.append(None)))
    assert len(ticks) == 2 * 2  # one before each death, and one after


def test_a_trial_that_always_kills_its_process_is_lost_and_the_others_are_not(
    two: Engine, tmp_path: Path
) -> None:
    found = dict(two(doings.first_dies, [Item(n, tmp_path) for n in range(6)]))
    lost = found.pop(0)
    assert found == {n: n for n in range(1, 6)}
    assert isinstance(lost, LostError)
    assert "lost 3 times" in str(lost)
    assert "SIGKILL" in str(lost)
    assert len((tmp_path / "tries").read_text()) == TRIES


def test_the_code_by_which_a_process_ended_is_told(two: Engine) -> None:
    ((_, lost),) = two(doings.leaves, [0])
    assert "its process ended by exit code 7" in str(lost)


def test_what_a_trial_raises_is_raised_with_its_traceback(two: Engine) -> None:
    with pytest.raises(ConfigError, match="trial 3 cannot be") as raised:
        list(two(doings.refuses, [3]))
    assert "in refuses" in raised.value.__notes__[0]


def test_an_exception_that_has_no_copy_is_told_in_words(two: Engine) -> None:
    with pytest.raises(RemoteError, match="RemoteError: KeyError: abc") as raised:
        list(two(doings.raises_what_has_no_copy, [0]))
    assert "in raises_what_has_no_copy" in raised.value.traceback


def test_a_result_that_has_no_copy_is_named(two: Engine) -> None:
    with pytest.raises(
        TypeError, match=r"cannot be pickled: .*returns_what_has_no_copy"
    ):
        list(two(doings.returns_what_has_no_copy, [0]))


def test_a_sweep_that_is_given_up_leaves_the_engine_to_the_next(two: Engine) -> None:
    results = two(doings.drawn, range(50))
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert len(list(two(doings.drawn, range(3)))) == 3


def test_processes_are_kept_for_the_next_sweep() -> None:
    with over_processes(1) as engine:
        ((_, first),) = engine(doings.process_of, [0])
        ((_, other),) = engine(doings.process_of, [0])
    assert first == other != os.getpid()


def test_a_process_that_died_between_sweeps_is_replaced() -> None:
    with over_processes(1) as engine:
        ((_, first),) = engine(doings.process_of, [0])
        assert isinstance(first, int)
        os.kill(first, signal.SIGKILL)
        ((_, other),) = engine(doings.process_of, [0])
    assert first != other


def test_processes_end_with_the_block() -> None:
    before = set(multiprocessing.active_children())
    with pytest.raises(ConfigError), over_processes(2) as engine:
        list(engine(doings.refuses, range(2)))
    assert set(multiprocessing.active_children()) <= before


def test_a_trial_that_is_given_up_cleans_up(tmp_path: Path) -> None:
    def stop() -> None:
        until(lambda: (tmp_path / "begun").exists())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=stop).start()
    with pytest.raises(KeyboardInterrupt), over_processes(1) as engine:
        list(engine(doings.cleans_up, [Item(1, tmp_path)]))
    assert (tmp_path / "cleaned").exists()


def test_no_more_processes_start_than_there_are_trials() -> None:
    before = set(multiprocessing.active_children())
    with over_processes(8) as engine:
        list(engine(doings.drawn, range(2)))
        assert len(set(multiprocessing.active_children()) - before) == 2


def test_processes_have_one_thread_and_this_one_keeps_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    with over_processes(1) as engine:
        assert list(engine(doings.threads_of, [0])) == [(0, "1")]
    assert os.environ["OMP_NUM_THREADS"] == "5"


def test_nothing_to_do_is_done_at_once() -> None:
    with over_processes() as engine:
        assert list(engine(doings.drawn, [])) == []


def test_no_processes_are_refused() -> None:
    with (
        pytest.raises(ConfigError, match="0 processes can do nothing"),
        over_processes(0),
    ):
        pass


def test_a_trial_that_processes_cannot_import_is_refused_at_once(
    two: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doings, "only_here", doings.drawn, raising=False)
    monkeypatch.setattr(doings.drawn, "__qualname__", "only_here")
    with pytest.raises(ImportError, match=r"cannot import: .*only_here"):
        list(two(doings.drawn, [0]))


SWEEP = """
import sys
from pathlib import Path
from tests.comparison import doings
from melisma.comparison.sweeps import over_processes
with over_processes(1) as engine:
    list(engine(doings.goes_on, [Path(sys.argv[1])]))
"""


def test_processes_of_who_is_killed_do_not_go_on(tmp_path: Path) -> None:
    asking = subprocess.Popen(
        [sys.executable, "-c", SWEEP, tmp_path], cwd=Path(__file__).parents[2]
    )
    try:
        until(lambda: (tmp_path / "pid").exists())
    finally:
        asking.kill()
        asking.wait()
    worker = int((tmp_path / "pid").read_text())
    try:
        until(lambda: not is_there(worker))
        assert not is_there(worker)
    finally:
        if is_there(worker):
            os.kill(worker, signal.SIGKILL)


FIRST = """
import signal
from tests.comparison import doings
from melisma.comparison.sweeps import over_processes
with over_processes(1) as engine:
    (_, blocked), = engine(doings.blocked_signals, [None])
assert signal.SIGINT in blocked, blocked
"""


def test_ctrl_c_is_for_who_started_even_the_first_process() -> None:
    script = [sys.executable, "-c", FIRST]
    subprocess.run(script, cwd=Path(__file__).parents[2], check=True)


def until(holds: Callable[[], bool], patience_s: float = 60.0) -> None:
    end_s = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < end_s, "it did not come to pass"
        time.sleep(0.05)


def is_there(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
