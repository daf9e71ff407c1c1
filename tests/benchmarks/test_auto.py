"""Fixed deadlines and "auto" are run until the target, and kept as they end."""

import json
from pathlib import Path

import bench_auto
import pytest
from tests.benchmarks.printed import numbers, output

QUICK = bench_auto.Setting("mnist-5k", "TwoNN", 0.4, 3.0)


def test_bench_auto_has_a_row_for_each_setting_and_keeps_its_runs(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench_auto, "SETTINGS", (QUICK,))
    monkeypatch.setattr(bench_auto, "SEEDS", 1)
    file = tmp_path / "results.jsonl"

    def measure(*, anew: bool) -> list[float]:
        bench_auto.main(
            settings="1",
            seeds=1,
            deadlines=2,
            results=file,
            anew=anew,
            workers=1,
            quick=True,
        )
        return numbers(output(capsys).splitlines()[-2])

    first = measure(anew=False)
    lines = file.read_text().splitlines()
    assert [json.loads(line)["deadline"] for line in lines][-1] == "auto"
    assert len(lines) == 3
    assert measure(anew=False) == first
    assert file.read_text().splitlines() == lines  # nothing was run again
    assert measure(anew=True) == first  # runs are the same from the same seed
    assert len(file.read_text().splitlines()) == 4


def test_a_run_that_does_not_come_to_its_target_counts_as_the_limit(
    tmp_path: Path,
) -> None:
    bench_auto.write(["mnist-5k"], tmp_path)
    never = QUICK._replace(target=0.999, limit_s=0.8)
    run = bench_auto.measured(never, bench_auto.Run(never.name, 0.3, 0), tmp_path)
    assert (run.time_s, run.reached) == (0.8, False)
    too_long = bench_auto.Run(never.name, 5.0, 0)
    assert bench_auto.measured(never, too_long, tmp_path).time_s == 0.8
    assert bench_auto.shown([run]) == ">0.8 (0.3)"
