"""Other papers' allocators: optimal themselves, and beside ours."""

from itertools import product

import bench_allocators
import numpy as np
import pytest
from peers.allocators import ecmtc, ecmtc_loops, fed_lbap, mc2mkp, olar
from tests.benchmarks.printed import output, row


@pytest.mark.parametrize("seed", range(30))
def test_the_peers_are_optimal_on_any_costs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    workers, number = 3, int(rng.integers(1, 7))
    times = np.cumsum(rng.uniform(0.1, 3, (workers, number + 1)), axis=1)
    times[:, 0] = 0.0
    costs = rng.uniform(0, 5, (workers, number + 1))
    costs[:, 0] = 0.0
    ways = [
        np.array(w)
        for w in product(range(number + 1), repeat=workers)
        if sum(w) == number
    ]
    place = np.arange(workers)
    soonest = min(times[place, w].max() for w in ways)
    for peer in (olar, fed_lbap):
        assert times[place, peer(times, number)].max() == soonest
    least = min(costs[place, w].sum() for w in ways)
    assert costs[place, mc2mkp(costs, number)].sum() == pytest.approx(least)
    deadline = 1.5 * soonest
    in_time = [w for w in ways if times[place, w].max() <= deadline]
    least = min(costs[place, w].sum() for w in in_time)
    for program in (ecmtc, ecmtc_loops):
        found = program(costs, times, deadline, number)
        assert costs[place, found].sum() == pytest.approx(least)
        assert times[place, found].max() <= deadline


def test_bench_allocators_has_every_peer(capsys: pytest.CaptureFixture[str]) -> None:
    bench_allocators.main(quick=True)
    text = output(capsys)
    for name in ("OLAR", "Fed-LBAP", "(MC)²MKP", "ECMTC"):
        assert row(text, name)[-1] > 0
    assert "All optima are the same." in text


def test_another_optimum_would_be_found_out() -> None:
    with pytest.raises(RuntimeError, match=r"OLAR: ours is 1\.0, theirs 1\.1"):
        bench_allocators.same(1.0, 1.1, "OLAR")
