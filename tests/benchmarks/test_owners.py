"""What owners cost is measured on emulated devices, where there may be some."""

import bench_owners
import pytest
from tests.benchmarks.printed import output, row

from melisma import testbed

LACK = testbed.missing()
DEVICES = "jetson-nano,ideapad"  # the fastest that have a quota

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(LACK), reason=f"a testbed needs {LACK}"),
]


def test_bench_owners_measures_what_an_owner_costs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bench_owners.main(only="costs", devices=DEVICES, samples=200, activities="idle")
    training_s, transfers_s = row(output(capsys), "idle")
    assert training_s > 0
    assert transfers_s > 0


@pytest.mark.long
def test_bench_owners_compares_schemes(capsys: pytest.CaptureFixture[str]) -> None:
    bench_owners.main(
        only="schemes", devices=DEVICES, samples=200, cycles=1, schemes="mmtt"
    )
    assert row(output(capsys), "mmtt")[0] > 0
