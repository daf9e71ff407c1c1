"""Coded training on harvested energy."""

from dataclasses import replace

import pytest
from papers.claims import Verdict
from papers.kit import in_order
from papers.tsdcfl_harvest import (
    NAMES,
    HarvestStudy,
    claims_of_harvest,
    run_harvest,
    table_of_harvest,
)

SMALL = replace(HarvestStudy(), harvest_w=(1.0,), cycles=3, samples=400, seeds=2)


@pytest.mark.slow
def test_no_battery_is_ever_below_zero_or_above_its_size() -> None:
    data = run_harvest(SMALL, in_order)
    least, fullest, *_ = claims_of_harvest(data)
    assert (least.verdict, fullest.verdict) == (Verdict.HOLDS, Verdict.HOLDS)
    assert 0.0 < least.ours.value < 20.0
    assert (data["fractional/spent_j"] > data["uncoded/spent_j"]).all()
    assert [row[0] for row in table_of_harvest(data)[1:]] == list(NAMES.values())
