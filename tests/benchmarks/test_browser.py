"""How fast browsers train, measured."""

import pytest
from tests.benchmarks.printed import row, run
from tests.web.browser import found


@pytest.mark.slow
@pytest.mark.browser
def test_bench_browser_has_a_row_for_each_network_and_engine() -> None:
    found()  # or skip
    text = run("bench_browser.py", "--seconds", "0.05", "--rounds", "1")
    for network in ("TwoNN", "ConvNet"):
        for engine in ("PyTorch, one core", "ours, wasm", "ours, js"):
            speed, share, usual = row(text, f"│ {network} ", f"│ {engine}")
            assert speed >= usual > 0
            assert share > 0
