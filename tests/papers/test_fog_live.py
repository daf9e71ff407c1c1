"""Fog's exhibits of theorems, networks and measured costs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from papers import fog_live, fog_theory
from papers.claims import Claim, Verdict
from papers.kit import in_order


def explained(claim: Claim) -> bool:
    return claim.verdict == Verdict.HOLDS or claim.why != "unexplained"


def test_theorems_are_judged_as_they_are() -> None:
    study = fog_theory.TheoremsStudy(seeds=10, samples=20_000)
    data = fog_theory.run_theorems(study, in_order)
    claims = fog_theory.claims_of_theorems(data)
    assert all(explained(claim) for claim in claims)
    verdicts = {claim.what.split(",")[0]: claim.verdict for claim in claims}
    assert verdicts["Theorem 3: cost of the cheapest ways"] == Verdict.HOLDS
    assert verdicts["Theorem 5: saving by the formula"] == Verdict.HOLDS
    # It takes the mean load of a degree for the load of each.
    what = "Theorem 6: devices over capacity by the formula"
    assert verdicts[what] == Verdict.FAILS
    assert (data["loss"] <= 1.0).all()


def test_the_search_finds_the_closed_form_where_there_is_much_data() -> None:
    assert fog_theory.hierarchy_of_optimum(fog_theory.MUCH) == pytest.approx(1.0)
    assert fog_theory.hierarchy_of_optimum(fog_theory.LITTLE) > 2.0


SMALL = replace(fog_live.COSTS_QUICK, seeds=2, cycles=2, samples=200)


def test_moving_costs_no_more_than_working_alone() -> None:
    data = fog_live.run_costs(SMALL, in_order)
    assert (data["fog:known/cost"] <= data["fog:alone/cost"]).all()
    assert (data["fog:alone/sent"] == 0.0).all()
    assert all(explained(claim) for claim in fog_live.claims_of_costs(data))


@pytest.mark.slow
def test_all_plans_run_on_all_networks() -> None:
    networks = (("mobile", "waypoint", 0.0, 0.0), ("V(t)", "full", 0.1, 0.2))
    study = replace(
        fog_live.NETWORKS, seeds=2, cycles=2, samples=200, networks=networks
    )
    data = fog_live.run_networks(study, in_order)
    rows = fog_live.table_of_networks(data)
    assert [row[:2] for row in rows[1:]] == [
        [name, text] for name, *_ in networks for text in fog_live.PLANS.values()
    ]
    claims = fog_live.claims_of_networks(data)
    assert len(claims) == 4
    assert all(explained(claim) for claim in claims)


def test_a_trace_is_read_by_slot_source_and_target(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(
        "# who\nslot,source,target,sample_s\n"
        "0,0,0,1.0\n0,0,1,2.0\n0,1,0,3.0\n0,1,1,4.0\n"
    )
    seconds = fog_live._seconds(path, 2)
    np.testing.assert_array_equal(seconds, [[[1.0, 2.0], [3.0, 4.0]]])
