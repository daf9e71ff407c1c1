"""Comparisons over engines: the same files, whatever stops them in between."""

import multiprocessing
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from melisma.comparison.outcomes import Comparison, compare
from melisma.comparison.sweeps import Engine, Tick, in_turn, over_processes
from melisma.comparison.trials import simulated
from melisma.errors import ConfigError, DataError, LostError, TrainingError
from melisma.jobs.schema import DataTable, Job
from melisma.units import Seconds

JOB = Job(name="quick", cycles=2)
SCHEMES = ["csa", "eta", "sync"]


def files(folder: Path) -> dict[str, bytes]:
    """Everything below a folder, by name."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison that nothing stopped, one run after another."""
    folder = tmp_path_factory.mktemp("whole")
    compared(folder)
    return folder


def compared(folder: Path, engine: Engine = in_turn, **options: Any) -> bytes:
    """Compare, and leave the result where the report does."""
    results = msgspec.json.encode(compare(JOB, SCHEMES, 1, folder, engine, **options))
    (folder / "comparison.json").write_bytes(results)
    return results


def stopped_after(ended: int, done: list[Job]) -> Engine:
    """An engine that Ctrl-C ends, and the jobs that it did."""

    def engine(
        trial: Callable[..., Any], todo: Sequence[Any], tick: Tick = lambda: None
    ) -> Iterator[tuple[int, Any]]:
        for place, result in in_turn(trial, todo, tick):
            if place == ended:
                raise KeyboardInterrupt
            done.append(todo[place])
            yield place, result

    return engine


@pytest.mark.slow
def test_every_run_is_left_with_config_records_model_and_result(whole: Path) -> None:
    names = {path.name for path in whole.glob("csa-seed0/*")}
    assert names == {
        *("config.toml", "run.toml", "records.jsonl", "model.safetensors"),
        "result.msgpack",
    }
    assert {path.name for path in whole.iterdir() if path.is_dir()} == {
        f"{scheme}-seed0" for scheme in SCHEMES
    }


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_files_are_the_same_bit_for_bit_over_processes(
    whole: Path, tmp_path: Path, processes: int
) -> None:
    with over_processes(processes) as engine:
        compared(tmp_path, engine)
    assert files(tmp_path) == files(whole)


@pytest.mark.slow
def test_files_are_the_same_though_a_process_is_killed(
    whole: Path, tmp_path: Path
) -> None:
    before = set(multiprocessing.active_children())
    cycles: list[None] = []

    def begin(total: int) -> Tick:
        assert total == 3 * 2  # schemes, cycles

        def tick() -> None:
            cycles.append(None)
            if len(cycles) == 1:
                victim, *_ = set(multiprocessing.active_children()) - before
                victim.kill()

        return tick

    with over_processes(2) as engine:
        compared(tmp_path, engine, begin=begin)
    assert files(tmp_path) == files(whole)
    assert len(cycles) == 6


@pytest.mark.slow
def test_what_was_stopped_goes_on_with_what_is_missing(
    whole: Path, tmp_path: Path
) -> None:
    first: list[Job] = []
    rest: list[Job] = []
    with pytest.raises(KeyboardInterrupt):
        compared(tmp_path, stopped_after(2, first))
    left: list[int] = []

    def begin(cycles: int) -> Tick:
        left.append(cycles)
        return lambda: None

    compared(tmp_path, stopped_after(99, rest), begin=begin)
    assert [job.scheme for job in first] == ["csa", "eta"]
    assert [job.scheme for job in rest] == ["sync"]
    assert left == [JOB.cycles]
    assert files(tmp_path) == files(whole)


def test_a_run_that_is_there_by_half_is_begun_anew(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    (tmp_path / "eta-seed0/result.msgpack").unlink()
    (tmp_path / "eta-seed0/records.jsonl").write_bytes(b'{"event":"allo')
    (tmp_path / ".eta-seed0").mkdir()
    (tmp_path / ".eta-seed0/stray").touch()
    done: list[Job] = []
    compared(tmp_path, stopped_after(99, done))
    assert [job.scheme for job in done] == ["eta"]
    assert files(tmp_path) == files(whole)


def test_a_damaged_result_is_named(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    (tmp_path / "eta-seed0/result.msgpack").write_bytes(b"\xc1")
    with pytest.raises(DataError, match=r"eta-seed0/result\.msgpack.*done again"):
        compared(tmp_path)


@pytest.mark.parametrize(
    ("changes", "schemes", "seeds", "says"),
    [
        ({}, ["dab"], 1, r"schemes is \['dab'\], was \['csa', 'eta', 'sync'\]"),
        ({}, SCHEMES, 3, "seeds is 3, was 1"),
        ({"seed": 7}, SCHEMES, 1, r"job\.seed is 7, was 0"),
        ({"deadline": Seconds(9.0)}, SCHEMES, 1, r"job\.deadline is 9\.0, was 1\.0"),
        ({"budget": 5.0}, SCHEMES, 1, r"job\.budget is 5\.0, was not given"),
    ],
)
def test_another_comparison_is_refused_by_what_differs(
    whole: Path,
    changes: dict[str, Any],
    schemes: list[str],
    seeds: int,
    says: str,
) -> None:
    before = files(whole)
    with pytest.raises(ConfigError, match=rf"another comparison: {says}\. Give what"):
        compare(msgspec.structs.replace(JOB, **changes), schemes, seeds, whole)
    assert files(whole) == before


def test_a_note_of_what_is_compared_that_is_no_toml_is_named(tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_text("schemes = [")
    with pytest.raises(ConfigError, match=r"sweep\.toml is not TOML.*begin anew"):
        compared(tmp_path)


def losing(*names: str) -> Engine:
    """An engine that loses the runs of some schemes."""

    def engine(
        trial: Callable[..., Any], todo: Sequence[Any], tick: Tick = lambda: None
    ) -> Iterator[tuple[int, Any]]:
        for place, item in enumerate(todo):
            lost = LostError("lost 3 times: no memory")
            yield place, lost if item.scheme in names else trial(item, tick)

    return engine


def test_a_scheme_whose_runs_are_lost_has_failed_and_is_tried_when_resumed(
    whole: Path, tmp_path: Path
) -> None:
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    shutil.rmtree(tmp_path / "eta-seed0")
    found: Comparison = compare(JOB, SCHEMES, 1, tmp_path, losing("eta"))
    assert [outcome.failed for outcome in found.outcomes] == [
        *("", "lost 3 times: no memory", "")
    ]
    compared(tmp_path)
    assert files(tmp_path) == files(whole)


def test_schemes_that_are_all_lost_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="csa: lost 3 times: no memory; eta: lost"):
        compare(JOB, SCHEMES, 1, tmp_path, losing(*SCHEMES))


def test_a_machine_without_the_data_set_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MELISMA_DATA", str(tmp_path))
    monkeypatch.setattr("socket.gethostname", lambda: "node-7")
    job = msgspec.structs.replace(JOB, data=DataTable(name="mnist"))
    with pytest.raises(DataError, match=r"^on node-7: .*mnist.* MELISMA_DATA folder"):
        simulated(job, lambda: None)
