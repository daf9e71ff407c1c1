"""Deadlines and predictions are measured on an emulated device, where there may be."""

import bench_testbed
import pytest
from tests.benchmarks.printed import output, row

from melisma import testbed

LACK = testbed.missing()


@pytest.mark.slow
@pytest.mark.skipif(bool(LACK), reason=f"a testbed needs {LACK}")
def test_bench_testbed_measures_truancy_and_foresight(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):  # by which bars are met: not here
        bench_testbed.main(
            deadlines="4",
            cycles=1,
            samples=200,
            data="mnist-5k",
            model="TwoNN",
            devices="jetson-nano",
            foresee=200,
            shard=50,
        )
    text = output(capsys)
    assert row(text, "jetson-nano")[0] > 0
    for scheme in ("dab-adaptive", "csa-testbed"):
        deadline_s, *_, samples = row(text, scheme)
        assert deadline_s == 4
        assert samples > 0
