"""A set is served from its files, and every row is compared with what was written."""

from pathlib import Path

import bench_larger_than_memory
import pytest
import torch
import typer
from peers import large_set
from tests.benchmarks.printed import output


def test_a_row_with_a_changed_bit_is_counted(tmp_path: Path) -> None:
    places = torch.arange(500, 504)
    x = torch.zeros(4, *large_set.SHAPE)
    x[0] = torch.from_numpy(large_set.random_row(500))
    shard = {"x": x, "y": places % large_set.CLASSES, "place": places}
    assert large_set.wrong_rows(shard) == 0
    x[0, 0, 27, 27] = torch.nextafter(x[0, 0, 27, 27], torch.tensor(9.0))
    x[3, 0, 0, 0] = -0.0
    assert large_set.wrong_rows(shard) == 2


@pytest.mark.slow
def test_bench_larger_than_memory_sends_every_row(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(bench_larger_than_memory, "LEARNERS", 2)
    with pytest.raises(typer.Exit) as ended:
        bench_larger_than_memory.main(gigabytes=0.02, sent=0.01, folder=tmp_path)
    assert ended.value.exit_code == 0
    text = output(capsys)
    assert "0 of them changed" in text
    assert "missed" not in text
    assert not list(tmp_path.iterdir())
