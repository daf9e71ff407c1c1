"""DAB's figures: how errors are made of times, and what the simulator promises."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure
from papers import dab, dab_claims, dab_runs, dab_testbed
from papers.claims import Claim, Kind, Verdict
from papers.kit import Data, Exhibit, in_order

from melisma.testbed import missing

LACK = missing()
EXHIBITS = {exhibit.name: exhibit for exhibit in dab.PAPER.exhibits}


def test_one_size_charges_latency_to_every_shard_and_two_do_not() -> None:
    # 3 s for a call and 1 s for a shard: 2 shards promise 5/2 s a shard, 10 are 13 s.
    seconds = {n: 3.0 + n for n in (1, 2, 10)}
    one, two = dab_runs.errors(seconds, [2], 10)
    assert one == pytest.approx(100 * (25 / 13 - 1))
    assert two == pytest.approx(0.0)


def test_a_device_without_noise_takes_its_latency_and_shards() -> None:
    times = dab_runs.Times(latency=0.5)
    assert times.draw(4, np.random.default_rng(0)) == pytest.approx(4.5)


@pytest.fixture(scope="module")
def deadlines() -> Data:
    return dab_runs.run_deadlines(
        dab_runs.DeadlineStudy(
            dataset="mnist-5k",
            model="TwoNN",
            shard=33,
            cycles=2,
            noise=0.0,
            deadlines=(21.0, 30.0),
            trials=2,
        )
    )


@pytest.mark.paper
def test_without_noise_dab_is_in_time_and_csa_is_as_late_as_its_data(
    deadlines: Data,
) -> None:
    assert not dab_claims.truancy(deadlines, "dab").any()
    # 2 · 6.16/4 s for the model, 30 shards at 1/4 + 1/1.4 s: 32.0 s a cycle.
    np.testing.assert_allclose(deadlines["csa-testbed/time_s"], 2 * 32.0086, rtol=1e-4)


def test_dab_takes_more_shards_by_a_later_deadline(deadlines: Data) -> None:
    # (21 − 3.08) / 0.964 = 18.6 and (30 − 3.08) / 0.964 = 27.9, of each of four.
    assert deadlines["dab/shards"].tolist() == [[72.0, 72.0], [108.0, 108.0]]
    assert (deadlines["csa-testbed/shards"] == 120).all()


def verdicts(claims: list[Claim]) -> dict[str, Verdict]:
    return {claim.what: claim.verdict for claim in claims}


def late(dab_share: float, csa_share: float) -> Data:
    """A task that ends so late as a share of its deadlines."""
    deadlines_s = np.array([105.0, 150.0])
    noise = np.array([[0.99, 1.0, 1.01]])
    return {
        "deadlines_s": deadlines_s,
        "testbed": np.ones(1),
        "dab/time_s": dab_share * deadlines_s[:, None] * noise,
        "csa-testbed/time_s": csa_share * np.full((2, 1), 105.0) * noise,
        "dab/staleness": np.zeros((2, 3)),
    }


@pytest.mark.parametrize(
    ("dab_share", "csa_share", "expected"),
    [
        (1.06, 1.64, "holds"),
        (1.14, 1.5, "holds weaker"),
        (1.3, 1.2, "does not hold"),
    ],
)
def test_truancy_is_judged_at_the_tightest_deadline(
    dab_share: float, csa_share: float, expected: str
) -> None:
    data = late(dab_share, csa_share)
    found = verdicts([*dab_claims.of_time(data), *dab_claims.of_truancy(data)])
    for what in (
        "DAB's time at the tightest deadline, in % of it",
        "CSA's time at the tightest deadline, in % of it",
        "CSA is further past the deadline than DAB, by",
    ):
        assert found[what] == expected, what


@pytest.mark.parametrize("name", ["3.2", "3.3"])
def test_the_simulated_benchmarks_are_drawn_and_judged(name: str) -> None:
    exhibit = EXHIBITS[name]
    data = exhibit.run(replace(exhibit.quick, trials=50), in_order)
    drawing = Figure()
    assert exhibit.draw is not None
    exhibit.draw(drawing, data)
    assert len(drawing.axes) == 1
    # Levels are put in here, and measured on the testbed.
    assert exhibit.claims(data)[0].kind == Kind.GIVEN
    measured = data | {"testbed": np.ones(1)}
    assert exhibit.claims(measured)[0].kind == Kind.PAPER


@pytest.mark.slow
def test_two_devices_take_fewer_than_120_shards_and_four_more() -> None:
    exhibit: Exhibit[dab_runs.ClusterStudy] = EXHIBITS["3.4"]
    small = replace(exhibit.quick, dataset="mnist-5k", shard=8, cycles=1, trials=2)
    found = verdicts(dab_claims.of_loss(dab_runs.run_clusters(small)))
    assert found["2 devices: shards that DAB takes of CSA's 120"] == "holds"
    assert found["4 devices: shards that DAB takes of CSA's 120"] == "holds"


needs_testbed = pytest.mark.skipif(bool(LACK), reason=f"a testbed needs {LACK}")


@pytest.mark.slow
@needs_testbed
def test_downloads_are_timed_over_a_place_s_own_cable() -> None:
    (trials,) = dab_testbed.download_times(
        ["pi1"], sizes=[1, 4], shard_bytes=392_000, trials=2
    )
    assert len(trials) == 2  # one of each copy of the link
    for seconds in trials:
        # 25 Mbit/s in the mean: 392 kB take 0.125 s, 1.6 MB 0.5 s, and half of it
        # while the channel is at its best.
        assert seconds[1] > 0.05
        assert seconds[4] > 0.2


@pytest.mark.long
@pytest.mark.slow
@needs_testbed
def test_training_is_timed_in_a_place_of_each_device() -> None:
    devices = ["2070-super", "pi1"]
    seconds, by_flops = dab_testbed.training_times(
        devices, sizes=[1, 2], predicted=[4, 8], shard=500, trials=2, dataset="mnist-5k"
    )
    # The reference trains what others are predicted from.
    assert [sorted(one) for one in seconds[0]] == [[1, 2, 4, 8]] * 2
    assert [sorted(one) for one in seconds[1]] == [[1, 2, 8]] * 2
    assert all(s > 0 for device in seconds for one in device for s in one.values())
    assert {way: e.shape for way, e in by_flops.items()} == {
        "flops": (1, 2),
        "flops_inverted": (1, 2),
    }
