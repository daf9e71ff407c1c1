"""DAB's figures: how errors are made of times, and what the simulator promises."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from papers import dab, dab_claims, dab_runs, dab_testbed, networks
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
            network="two_nn",
            dataset="mnist-5k",
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
    # 2 · 6.16/4 s and 18 or 27 shards at 0.964 s: 20.44 of 21 s, and 29.12 of 30.
    early = dab_claims.truancy(deadlines, "dab")
    np.testing.assert_allclose(early.mean(axis=1), [-2.7, -2.9], atol=0.1)
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


def test_truancy_is_below_0_where_a_task_is_early() -> None:
    found = dab_claims.truancy(late(0.9, 1.5), "dab")
    np.testing.assert_allclose(found[:, 1], -10.0)


@pytest.mark.parametrize(
    ("error", "verdict"),
    [(0.9, "holds"), (1.5, "holds weaker"), (2.6, "does not hold")],
)
def test_an_error_of_sb_within_1_percent_is_a_claim(error: float, verdict: str) -> None:
    data = {
        "sizes": np.array([2.0, 8.0, 10.0]),
        "testbed": np.ones(1),
        "sb": np.full((2, 2, 3, 5), error),
        "flops": np.full((2, 5), 30.0),
    }
    found = verdicts(dab_claims.of_benchmark(data))
    assert found["Error of SB at its best size"] == verdict


def test_an_error_of_downloads_within_10_percent_is_of_both_links() -> None:
    # 12 % over Ethernet and 7 over WiFi at the best size, 9.5 in the mean.
    errors = np.array([[16.0, 13.0, 12.5, 12.0], [32.0, 11.0, 8.0, 7.0]])
    data = {
        "sizes": np.array([2.0, 6.0, 8.0, 10.0]),
        "testbed": np.ones(1),
        "sb": np.tile(errors[:, None, :, None], (1, 2, 1, 3)),
    }
    found = {claim.what: claim for claim in dab_claims.of_download(data)}
    row = found["Error of the download time at the best size, mean over both links"]
    assert row.ours.value == pytest.approx(9.5)
    assert row.verdict == Verdict.HOLDS


def test_accuracy_is_judged_as_the_paper_says_and_shown_as_its_code_has_it() -> None:
    course = np.tile([[0.8], [0.9]], (1, 3)).T  # trials × cycles
    data = {"testbed": np.ones(1)} | {
        f"{n}/{scheme}/{what}": course - less
        for n in (2, 4)
        for scheme in dab_runs.SCHEMES
        for what, less in (("accuracy", 0.0), (networks.PROBABILITY, 0.1))
    }
    found = {claim.what: claim for claim in dab_claims.of_accuracy(data)}
    what = "2 devices: DAB's accuracy in the end"
    told, probable = (
        found[what],
        found[f"{what}, as mean probability of the right class"],
    )
    assert told.ours.value == pytest.approx(90.0)
    assert probable.ours.value == pytest.approx(80.0)
    assert [told.kind, probable.kind] == [Kind.PAPER, Kind.OWN]


def test_the_probability_of_the_right_class_is_of_logits_or_of_a_softmax() -> None:
    # Logits 0 and ln 3: 1/4 and 3/4, of which the right ones are 3/4 and 1/4.
    logits = torch.tensor([[0.0, math.log(3.0)], [0.0, math.log(3.0)]])
    batches = [{"x": logits, "y": torch.tensor([1, 0])}]
    same, last = torch.nn.Identity(), torch.nn.Softmax(dim=1)
    assert networks.mean_probability(same, batches, softmax=False) == pytest.approx(0.5)
    assert networks.mean_probability(last, batches, softmax=True) == pytest.approx(0.5)
    only_one = [{"x": logits[:1], "y": torch.tensor([1])}]
    assert networks.mean_probability(last, only_one, softmax=True) == pytest.approx(
        0.75
    )


@pytest.mark.parametrize(
    "task", [networks.soft_two_nn_mnist, networks.deadline_cnn_mnist]
)
def test_networks_of_the_testbed_end_in_softmax(task: Callable[[], Any]) -> None:
    outputs = task().build(0)(torch.rand(3, 1, 28, 28))
    torch.testing.assert_close(outputs.sum(dim=1), torch.ones(3))


def test_what_was_kept_of_a_few_trials_is_kept_for_more() -> None:
    def jobs_of(trials: int) -> list[Any]:
        asked: list[Any] = []

        def spread(trial: Callable[[Any], Any], todo: Sequence[Any]) -> list[Any]:
            asked.extend(todo)
            raise InterruptedError

        with pytest.raises(InterruptedError):
            dab_runs.run_deadlines(replace(dab.TIMES, trials=trials), spread)
        return asked

    few, more = jobs_of(2), jobs_of(3)
    assert more[: len(few)] == few


def test_rounds_of_a_measured_benchmark_are_put_together() -> None:
    def spread(trial: Callable[[Any], Any], todo: Sequence[Any]) -> list[Any]:
        return [
            dab_testbed.TrainingTimes(
                seconds=[[{1: 1.0, 2: 2.0, 5: 5.0 + first}] * trials],
                flops=np.zeros((1, trials)),
                flops_inverted=np.ones((1, trials)),
            )
            for _, first, trials in todo
        ]

    study = dab_runs.BenchmarkStudy(
        testbed=True, devices=("pi1",), sizes=(2,), predicted=(5,), trials=12
    )
    data = dab_runs.run_benchmark(study, spread)
    # 5 s are promised, and the second round, of two trials, takes 15.
    one = data["sb"][0, dab_claims.ONE, 0]
    np.testing.assert_allclose(one, [0.0] * 10 + [200 / 3] * 2)
    assert data["flops_inverted"].shape == (1, 12)


def drawn(name: str, data: Data) -> Figure:
    drawing, exhibit = Figure(), EXHIBITS[name]
    assert exhibit.draw is not None
    exhibit.draw(drawing, data)
    return drawing


@pytest.mark.parametrize("name", ["3.6", "3.7", "3.8"])
def test_pictures_have_the_papers_names_printed_values_and_deadlines(
    deadlines: Data, name: str
) -> None:
    ax = drawn(name, deadlines).axes[0]
    assert {"DAB", "CSA"} <= {text.get_text() for text in ax.texts}
    ticks = [text.get_text() for text in ax.get_xticklabels()]
    assert ticks == ["42", "60"]  # two cycles of 21 and of 30 s
    marks = [line for line in ax.lines if line.get_markerfacecolor() == "none"]
    assert len(marks) == 3  # DAB's, CSA's and the legend's
    ys: dict[str, float] = {"3.6": 112 / 105 * 42, "3.7": 7.0, "3.8": 0.91}
    assert np.asarray(marks[0].get_ydata())[0] == pytest.approx(ys[name])


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
    timed = dab_testbed.training_times(
        devices, sizes=[1, 2], predicted=[4, 8], shard=500, trials=2, dataset="mnist-5k"
    )
    # The reference trains what others are predicted from.
    assert [sorted(one) for one in timed.seconds[0]] == [[1, 2, 4, 8]] * 2
    assert [sorted(one) for one in timed.seconds[1]] == [[1, 2, 8]] * 2
    assert all(
        s > 0 for device in timed.seconds for one in device for s in one.values()
    )
    assert timed.flops.shape == timed.flops_inverted.shape == (1, 2)
