"""What updates count, measured."""

import bench_weights
import pytest
from tests.benchmarks.printed import output, row

from melisma.learning.settings import Weights


@pytest.mark.slow
def test_bench_weights_has_a_row_for_each_rule(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_weights, "LIMIT", 2)
    bench_weights.main(quick=True, jobs=1)
    text = output(capsys)
    for weights in Weights:
        assert row(text, f"│ {weights.value} ")[0] > 0


@pytest.mark.slow
def test_a_run_that_does_not_come_to_its_target_counts_as_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench_weights, "LIMIT", 3)
    setting = bench_weights.SETTINGS[0]
    easy, hard = setting._replace(target=0.0), setting._replace(target=1.0)
    first_s, _ = easy.run(Weights.DATA, 0)
    last_s, accuracy = hard.run(Weights.DATA, 0)
    assert last_s == pytest.approx(3 * first_s, rel=0.05)
    assert 0 < accuracy < 1
