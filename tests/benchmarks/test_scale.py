"""What a learner and a trial cost is measured, and kept with its provenance."""

import re
from pathlib import Path

import bench_scale
import msgspec
import pytest
import scale_million
import typer
from bench_scale import Figures
from peers.live_cost import Cost
from tests.benchmarks.printed import PROVENANCE, output, row


def cost(learners: int) -> Cost:
    """What so many learners cost, each as much as the others."""
    return Cost(
        model="TwoNN",
        model_bytes=162_040,
        learners=learners,
        lost=0,
        join_cpu_s=0.01 * learners,
        ready_cpu_s=0.0002 * learners,
        exchange_cpu_s=0.0018 * learners,
        rest_cpu_s=0.01,
        cycle_s=0.01 * learners,
        sent_bytes=162_400 * learners,
        received_bytes=162_300 * learners,
        records_bytes=500 * learners,
        connected_bytes=200_000 * learners,
        cycle_bytes=100_000 * learners,
    )


@pytest.mark.slow
def test_bench_scale_measures_learners(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "scale.json"
    with pytest.raises(typer.Exit) as ended:
        bench_scale.main(only="live", learners=[2], models="TwoNN", turns=1, json=file)
    assert ended.value.exit_code == 0
    assert "yes: grows no faster than learners do" in output(capsys)
    figures = msgspec.json.decode(file.read_bytes(), type=Figures)
    (measured,) = figures.live
    assert re.fullmatch(PROVENANCE, figures.provenance)
    assert (measured.learners, measured.lost) == (2, 0)
    assert measured.cpu_s > 0
    assert measured.sent_bytes > 2 * measured.model_bytes
    assert measured.received_bytes > 2 * measured.model_bytes


@pytest.mark.slow
def test_bench_scale_measures_sweeps_and_names_who_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_scale, "lack_of", lambda packages: "ray is missing")
    with pytest.raises(typer.Exit):
        bench_scale.main(only="sweeps", trials=2)
    captured = capsys.readouterr()
    assert "Ray is left out: ray is missing" in captured.err
    for engine in ("one process", "two processes"):
        start_s, empty_ms, busy_s, _, trial_ms, _ = row(captured.out, engine)
        assert min(start_s, empty_ms, busy_s, trial_ms) > 0


@pytest.mark.slow
def test_scale_million_finds_the_walls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, where = tmp_path / "scale.json", "commit 1a2b3c4"
    figures = Figures(provenance=where, live=[cost(100), cost(500)])
    file.write_bytes(msgspec.json.encode(figures))
    scale_million.main(file, tmp_path / "scale.png")
    text = capsys.readouterr().out
    assert text.startswith(f"{where}\n")
    # 60 s at 0.2 + 1.8 ms a learner.
    assert row(text, "CPU of a cycle")[1:3] == [2.0, 30_000]
    assert (tmp_path / "scale.png").stat().st_size > 0
