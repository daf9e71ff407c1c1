import pytest
from tests.benchmarks.printed import row, run


@pytest.mark.slow
def test_sizes_of_core_and_extras_are_printed() -> None:
    printed = run("install_size.py")
    total, packages = row(printed, "melisma:")[:2]
    assert row(printed, "  torch")[0] > 0.3 * total
    assert packages > 20
    assert row(printed, "melisma[ray] besides:")[0] > 50
