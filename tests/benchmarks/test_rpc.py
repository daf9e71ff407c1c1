"""Each stack answers calls; one that is not installed is named and left out."""

import bench_rpc
import pytest
import typer
from tests.benchmarks.printed import row, run


@pytest.mark.slow
def test_bench_rpc_times_calls_and_arrays() -> None:
    text = run(
        *("bench_rpc.py", "--only", "raw,melisma,melisma-blocking", "--rounds", 1),
        *("--calls-s", 0.05, "--array-mb", 2),
    )
    table, mixed = text.split("small calls while 8 MB")
    for stack in ("raw TCP socket", "melisma  ", "melisma, blocking │"):
        figures = row(table, stack)
        assert len(figures) == 8
        assert min(figures) > 0
    assert min(row(mixed, "melisma")) > 0


def test_a_stack_that_is_not_installed_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_rpc, "lack_of", lambda packages: "axon-ecrg is missing")
    with pytest.raises(typer.Exit):
        bench_rpc.main(only="axon", rounds=1)
    captured = capsys.readouterr()
    assert "axon is left out: axon-ecrg is missing" in captured.err


def test_a_stack_that_nobody_knows_is_refused() -> None:
    with pytest.raises(typer.BadParameter, match="telegraph is none of raw, melisma"):
        bench_rpc.main(only="telegraph")
