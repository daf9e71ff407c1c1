"""Coded training ends in the model of plain descent, whoever is dead."""

import bench_coded_training
import pytest
from tests.benchmarks.printed import output, row


@pytest.mark.slow
def test_bench_coded_training_ends_in_the_same_model(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bench_coded_training.main(iterations=2, only="digits", troubles="1 dead")
    text = output(capsys)
    assert row(text, "plain descent")[0] > 0
    for scheme in bench_coded_training.SCHEMES:
        if scheme != "uncoded":  # waits for the dead for ever
            time, _, accuracy, off, _ = row(text, f"    {scheme}  ")
            assert time > 1
            assert accuracy > 0
            assert off < 1e-6
