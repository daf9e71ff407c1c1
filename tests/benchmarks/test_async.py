"""FedBuff is simulated for real; a peer is beside it, or left out by name."""

import sys
from pathlib import Path

import bench_async
import pytest
import typer
from bench_async import Runs
from peers import environments
from tests.benchmarks.printed import output, row


def runs(rate: float, weight: float = 1.0) -> Runs:
    return Runs(
        title="FLSim",
        python=Path("python"),
        script="none.py",
        rates=[rate, rate / 2],
        cpu_rates=[rate, rate],
        weights={"w": weight},
    )


@pytest.mark.slow
def test_bench_async_simulates_and_names_a_peer_that_is_not_there(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    find = environments.python_of
    monkeypatch.setattr(bench_async, "python_of", lambda name: find(name, tmp_path))
    monkeypatch.setattr(bench_async, "EPOCHS", (1,))
    with pytest.raises(typer.Exit) as ended:
        bench_async.main(quick=True)
    assert ended.value.exit_code == 0
    text = output(capsys)
    assert "FLSim is left out: .venv-flsim is not set up" in text
    for engine in ("melisma  ", "melisma, unlike learners"):
        assert min(row(text, engine)) > 0


def test_updates_that_do_not_fill_buffers_are_refused() -> None:
    with pytest.raises(typer.BadParameter, match="not a multiple of 10"):
        bench_async.main(learners=11, rounds=1)


def test_an_engine_that_breaks_off_says_why() -> None:
    broken = Runs("FLSim", Path(sys.executable), "no_such_script.py")
    with pytest.raises(RuntimeError, match=r"FLSim broke off:\n.*no_such_script\.py"):
        broken.run(bench_async.problem_of(10, 1, 1))


@pytest.mark.parametrize(
    ("peer", "sound"),
    [(runs(10.0), True), (runs(10.1), False), (runs(10.0, 1.1), False)],
)
def test_the_bar_is_ten_times_the_speed_in_the_same_weights(
    peer: Runs, sound: bool
) -> None:
    assert bench_async.verdicts(runs(100.0), peer, bar=True) is sound


@pytest.mark.slow
def test_bench_async_ends_in_the_weights_of_flsim(
    capsys: pytest.CaptureFixture[str],
) -> None:
    try:
        environments.python_of("flsim")
    except FileNotFoundError as error:
        pytest.skip(str(error))
    assert bench_async.compare(20, 2, 2, 1, "flsim")
    assert row(capsys.readouterr().out, "FLSim  ")[-1] < 1e-6
