import asyncio
import copy
from itertools import pairwise

import numpy as np
import pytest
import torch
from tests.fleets.fleets import fleet_of, law, ran, small_data, small_model, task_of

from melisma.algorithms.averaging import Averaging, share_out
from melisma.algorithms.loop import train
from melisma.errors import ConfigError, InfeasibleError, TrainingError
from melisma.fleets.simulated import Conditions, SimulatedLearners
from melisma.learning.parameters import parameters_of
from melisma.learning.settings import Late, Training
from melisma.runs.records import (
    Aggregated,
    Allocated,
    Downloaded,
    Dropped,
    Evaluated,
    Halted,
    Joined,
    Metrics,
    Record,
    Trained,
    Uploaded,
)
from melisma.runs.store import RunWriter
from melisma.system.problem import Allocation
from melisma.system.streams import Stream

#: Two learners, one twice as fast: 0.1 and 0.2 s for a sample, 0.2 s for the model.
TWO = law([0.1, 0.2], [0.01, 0.01], [0.2, 0.2])


def of(kind: type[Record], happened: list[Record]) -> list[Record]:
    return [record for record in happened if isinstance(record, kind)]


def test_a_cycle_leaves_its_events_in_order() -> None:
    _, happened = ran(task_of("eta", 10.0, cycles=1), fleet_of(TWO))
    log = [(round(record.time_s, 6), type(record)) for record in happened]
    # 20 samples each: 20·0.01 + 0.1 = 0.3 s to come, 0.1 s to go. By 10 s the fast
    # one has done 4 steps of 2 s, the slow one 2 of 4 s: both after 8 s.
    learner = [(0.3, Downloaded), (8.3, Trained), (8.4, Uploaded)]
    assert log == [
        (0.0, Metrics),
        *[(0.0, Joined)] * 2,
        *[(0.0, Allocated)] * 2,
        *learner,
        *learner,
        (8.4, Aggregated),
        (8.4, Evaluated),
    ]


def test_predicted_and_measured_times_agree_without_noise() -> None:
    _, happened = ran(task_of("csa", 10.0, cycles=1), fleet_of(TWO))
    back_s = {r.learner: r.time_s for r in happened if isinstance(r, Uploaded)}
    given = [record for record in happened if isinstance(record, Allocated)]
    assert [r.predicted_s for r in given] == pytest.approx(
        [back_s[r.learner] for r in given]
    )


def test_the_model_is_the_mean_weighted_by_samples() -> None:
    crew = fleet_of(TWO, batch=100)
    task = task_of("eta", 10.0, cycles=1, model=copy.deepcopy(small_model()))
    start, data = small_model(), small_data()
    parameters, happened = ran(task, crew)
    assert [
        record.samples for record in happened if isinstance(record, Aggregated)
    ] == [40]
    # Whole batches: no order within. Learners 0 and 1 do 4 and 2 steps on their half.
    expected = {name: torch.zeros_like(v) for name, v in parameters.items()}
    rows = np.random.default_rng([0, Stream.ROWS, 1]).permutation(40)
    for half, steps in ((rows[:20], 4), (rows[20:], 2)):
        model = copy.deepcopy(start)
        step = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(steps):
            step.zero_grad()
            some = data.train[half]
            logits = model(some["x"])
            torch.nn.functional.cross_entropy(logits, some["y"]).backward()  # type: ignore[no-untyped-call]
            step.step()
        for name, value in parameters_of(model).items():
            expected[name] += value / 2
    for name, value in parameters.items():
        torch.testing.assert_close(value, expected[name])


def test_the_clock_goes_on_from_cycle_to_cycle() -> None:
    _, happened = ran(task_of("csa", 10.0, cycles=3), fleet_of(TWO))
    ends = [record.time_s for record in happened if isinstance(record, Evaluated)]
    lasted = [record.cycle_s for record in happened if isinstance(record, Aggregated)]
    assert np.diff([0.0, *ends]) == pytest.approx(lasted)


@pytest.mark.parametrize("scheme", ["csa", "dab"])
def test_the_same_seed_gives_the_same_records(scheme: str) -> None:
    noisy = Conditions(noise=0.2)
    one, two, other = (
        ran(task_of(scheme, 10.0, seed=seed), fleet_of(TWO, noisy, seed=seed))[1]
        for seed in (5, 5, 6)
    )
    assert one == two
    assert one != other


def test_threads_do_not_change_the_records() -> None:
    many = law(np.linspace(0.05, 0.2, 30), np.full(30, 0.01), np.full(30, 0.2))
    one, two = (ran(task_of("csa", 10.0), fleet_of(many, threads=n))[1] for n in (1, 2))
    assert one == two


def test_halted_learners_count_for_what_they_trained() -> None:
    # Allocated by the mean of its states, met by the slower one.
    states = law([[0.05, 0.35]], [[0.0, 0.0]], [[0.2, 0.2]])
    crew = fleet_of(states, Conditions(probability=np.array([[0.5, 0.5]])))
    _, happened = ran(task_of("eta", 10.0, cycles=8), crew)
    halted = [record for record in happened if isinstance(record, Halted)]
    merged = {r.cycle: r.samples for r in happened if isinstance(r, Aggregated)}
    assert halted
    for record in halted:
        assert record.samples < 40
        assert merged[record.cycle] == record.samples


def test_dab_asks_the_learners_and_their_times_stay_their_own() -> None:
    # By 10 s and 5 steps: d·(5·0.1 + 0.01) < 9.8, so 19 samples; 9.8/1.01, so 9.
    _, happened = ran(task_of("dab", 10.0, cycles=1), fleet_of(TWO))
    given = [record for record in happened if isinstance(record, Allocated)]
    assert [(r.samples, r.steps, r.predicted_s) for r in given] == [
        (19, 5, None),
        (9, 5, None),
    ]


def test_a_learner_without_time_sits_out_under_dab() -> None:
    crew = fleet_of(law([0.1, 0.1], [0.0, 0.0], [0.2, 20.0]))
    _, happened = ran(task_of("dab", 10.0, cycles=1), crew)
    given = [record for record in happened if isinstance(record, Allocated)]
    assert [(r.samples, r.steps) for r in given][1] == (0, 0)
    assert len(of(Uploaded, happened)) == 1


def test_shards_are_allocated_whole() -> None:
    _, happened = ran(task_of("csa", 10.0, shard=8, cycles=1), fleet_of(TWO))
    samples = [r.samples for r in happened if isinstance(r, Allocated)]
    assert sum(samples) == 40
    assert all(amount % 8 == 0 for amount in samples)


@pytest.mark.parametrize("shard", [1, 5])
def test_no_row_is_sent_twice_before_all_were_sent_once(shard: int) -> None:
    shards = 40 // shard
    allocation = Allocation(
        samples=np.array([shards // 2, shards, shards // 4]), steps=np.array([1, 1, 1])
    )
    orders = share_out(task_of("eta", 1.0, shard=shard), allocation, cycle=1)
    drawn = [order.rows for order in orders if order.rows is not None]
    assert sorted(np.concatenate(drawn)[:40]) == list(range(40))
    assert len(set(drawn[1].tolist())) == 40


def test_cycles_draw_different_rows() -> None:
    allocation = Allocation(samples=np.array([20, 20]), steps=np.array([1, 1]))
    first, second = (
        share_out(task_of("eta", 1.0), allocation, cycle)[0] for cycle in (1, 2)
    )
    assert not np.array_equal(first.rows, second.rows)  # type: ignore[arg-type]


def test_in_federated_mode_learners_are_told_how_much_and_not_which() -> None:
    allocation = Allocation(samples=np.array([18, 6]), steps=np.array([1, 1]))
    orders = share_out(task_of("csa", 10.0), allocation, 1, own=[30, 10])
    assert [(order.samples, order.rows) for order in orders] == [(18, None), (6, None)]


def test_in_federated_mode_all_own_rows_are_used_unless_told_otherwise() -> None:
    own = [np.arange(20), np.arange(10, 20), np.arange(5)]
    crew = fleet_of(law([0.1] * 3, [0.0] * 3, [0.2] * 3), own_rows=own)
    _, happened = ran(task_of("eta", 10.0, cycles=1), crew)
    given = [record for record in happened if isinstance(record, Allocated)]
    assert [record.samples for record in given] == [20, 10, 5]


def test_when_everyone_diverges_the_run_ends_and_says_so() -> None:
    crew = fleet_of(TWO, rate=1e38)
    with pytest.raises(
        TrainingError, match=r"not finite \(2\).*lower the learning rate"
    ):
        ran(task_of("eta", 10.0), crew)


def test_a_learner_that_trains_nothing_is_dropped_with_its_reason() -> None:
    # Its 20 samples are one batch: 9.02 s on average, but 18 s in its slow state.
    states = law([[0.1, 0.1], [0.002, 0.9]], [[0.0, 0.0]] * 2, [[0.2, 0.2]] * 2)
    gamma = np.array([[1.0, 0.0], [0.5, 0.5]])
    crew = fleet_of(states, Conditions(probability=gamma), batch=40)
    _, happened = ran(task_of("eta", 10.0, cycles=8), crew)
    dropped = [record for record in happened if isinstance(record, Dropped)]
    assert {record.reason for record in dropped} == {"nothing trained by the deadline"}
    assert {record.learner for record in dropped} == {"learner-1"}


def test_an_infeasible_task_fails_before_anything_is_recorded() -> None:
    happened: list[Record] = []
    crew, run = fleet_of(TWO), RunWriter(watch=happened.append)
    with pytest.raises(InfeasibleError, match=r"0\.05 s"):
        asyncio.run(train(task_of("csa", 0.05), crew, Averaging(crew), run))
    assert happened == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cycles": 0}, "cycles is 0"),
        ({"shard": 0}, "shard is 0"),
        ({"steps": 0}, "steps is 0"),
        ({"samples": 5, "shard": 8}, "5 samples a cycle.*shards of 8"),
    ],
)
def test_an_impossible_task_is_named(changes: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        task_of("eta", 1.0, **changes)


@pytest.mark.parametrize(("own", "there"), [(None, 40), ([9, 9], 18)])
def test_more_samples_than_there_are_is_named(
    own: list[int] | None, there: int
) -> None:
    task = task_of("eta", 1.0, samples=41)
    with pytest.raises(ConfigError, match=f"41 samples a cycle: there are {there} of"):
        task.cycle_samples(own)


def test_times_never_go_back_within_a_learner() -> None:
    _, happened = ran(
        task_of("csa", 10.0, cycles=3), fleet_of(TWO, Conditions(noise=0.1))
    )
    mine = [r for r in happened if getattr(r, "learner", "") == "learner-1"]
    assert all(a.time_s <= b.time_s for a, b in pairwise(mine))


def taken(scheme: str, slower: float, cycles: int = 6) -> tuple[list[int], list[float]]:
    """Samples of one learner in each cycle, and how long those took.

    It is known to train a sample in 0.1 s, and takes ``slower`` times as long.
    """
    known = law([0.1], [0.01], [0.2])
    true = law([slower * 0.1], [0.01], [0.2])
    crew = SimulatedLearners(
        ["learner-0"],
        true,
        known=known,
        model=small_model(),
        samples=small_data().train,
        training=Training(rate=0.1, batch=4),
        seed=0,
        conditions=Conditions(late=Late.WAIT, adaptive=scheme == "dab-adaptive"),
    )
    _, happened = ran(task_of(scheme, 10.0, cycles=cycles), crew)
    merged = [record for record in happened if isinstance(record, Aggregated)]
    return [r.samples for r in merged], [r.cycle_s for r in merged]


def test_simulated_dab_as_printed_does_not_learn_from_being_late() -> None:
    # 19 · (5 · 0.1 + 0.01) + 0.2 < 10, whatever it takes.
    samples, took_s = taken("dab", slower=1.5)
    assert samples == [19] * 6
    assert took_s == pytest.approx([19 * 0.76 + 0.2] * 6)


def test_a_simulated_adaptive_learner_has_a_margin_and_learns_from_its_cycles() -> None:
    # At first 1.2 · (0.51 d + 0.2) < 9.7: d = 15.
    samples, took_s = taken("dab-adaptive", slower=1.5)
    assert samples[0] == 15
    assert took_s[0] > 10
    assert took_s[-1] < 10
    # If it is as benchmarked, the margin goes: 0.51 d + 0.2 < 9.7: d = 18.
    samples, took_s = taken("dab-adaptive", slower=1.0, cycles=9)
    assert (samples[0], samples[-1]) == (15, 18)
    assert max(took_s) < 10
