"""Melisma and a plain loop end in the same weights; who is not installed is named."""

import bench_simulation
import pytest
import typer
from tests.benchmarks.printed import numbers, output, row, run


@pytest.mark.slow
def test_bench_simulation_times_a_cycle() -> None:
    engines = "melisma,melisma-2,plain"
    text = run(
        *("bench_simulation.py", "--learners", 2, "--cycles", 1),
        *("--repeats", 1, "--engines", engines),
    )
    for engine in ("melisma  ", "melisma, 2 threads", "plain PyTorch loop"):
        *figures, difference = row(text, engine)
        assert min(figures) > 0
        assert difference < 1e-6
    assert "all weights equal to 1e-05" in text


@pytest.mark.slow
def test_bench_simulation_times_melismas_own_engines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("peers.models.NETWORKS", ("TwoNN",))
    bench_simulation.main(models=True, repeats=1)
    (line,) = [line for line in output(capsys).splitlines() if "TwoNN" in line]
    *figures, difference = numbers(line)
    assert len(figures) == 4
    assert min(figures) > 0
    assert difference < 1e-4


@pytest.mark.slow
def test_bench_simulation_times_any_module(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from peers.modules import CASES

    monkeypatch.setattr(bench_simulation, "BARS_AT", 3)
    with pytest.raises(typer.Exit) as ended:
        bench_simulation.main(modules=True, repeats=1)
    assert ended.value.exit_code == 0
    text = output(capsys)
    for case in CASES:
        assert min(row(text, case.title)[:-1]) > 0
    assert "in double, all weights equal to 1e-09" in text
