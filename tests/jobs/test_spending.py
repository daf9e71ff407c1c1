"""Energy, money and carbon of a job: within limits, recorded, and as predicted."""

import tomllib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.algorithms.resuming import whole_and_resumed
from tests.jobs.powered import FRUGAL, HUNGRY, SLOW, powered, sums
from tests.jobs.small import small

from melisma.errors import ConfigError, InfeasibleError
from melisma.jobs.energy_table import PowerTable
from melisma.jobs.families import family_of
from melisma.jobs.files import dump, job_of, load
from melisma.jobs.schema import WorkloadTable
from melisma.jobs.wire_table import OptionTable
from melisma.launch.simulate import simulate
from melisma.runs.records import Allocated, Halted, Trained, Uploaded, Waited
from melisma.units import Bytes
from melisma.views.ledger import learner_cycles, totals

ROOT = Path(__file__).parents[2]


def test_each_cycle_keeps_within_its_energy_and_wastes_little_of_it() -> None:
    records = simulate(powered(energy="15 J"))
    predicted = np.array(sums(records, "predicted_j"))
    assert (predicted <= 15.0).all()
    assert (predicted > 14.5).all()
    # Times are by the law, so that what is measured is what was predicted.
    assert sums(records, "spent_j", Uploaded) == pytest.approx(predicted)
    assert max(sums(records, "samples")) < 400


def test_more_energy_trains_more_up_to_all() -> None:
    samples = [
        sums(simulate(powered(energy=f"{limit} J", cycles=1)), "samples")[0]
        for limit in (5, 10, 20, 40, 1000)
    ]
    assert samples == sorted(samples)
    assert samples[0] < samples[1] < samples[-1] == 400


def test_the_least_energy_is_less_than_that_of_csa_for_the_same_work() -> None:
    least = simulate(powered(scheme="energy-least", cycles=1))
    same = simulate(powered(scheme="sync", cycles=1))
    steps = {r.steps for r in same if isinstance(r, Allocated)} - {0}
    again = simulate(powered(scheme="energy-least", cycles=1, steps=min(steps)))
    assert sums(least, "samples") == sums(same, "samples") == [400]
    assert sums(again, "predicted_j")[0] < sums(same, "predicted_j")[0]


def test_who_sends_less_is_predicted_to_draw_less_for_it() -> None:
    options = (OptionTable(), OptionTable(down="int8", up="int8"))
    large = WorkloadTable(model_size=Bytes(1.3e6))
    job = powered(scheme="csa-options", options=options, workload=large, cycles=2)
    records = simulate(job)
    taken = {r.option for r in records if isinstance(r, Allocated) and r.samples}
    assert "int8 / int8" in taken
    # Times are by the law of the option that was taken, and so are joules.
    predicted = sums(records, "predicted_j")
    assert sums(records, "spent_j", Uploaded) == pytest.approx(predicted)


def test_a_run_spends_no_more_than_it_may_whatever_times_are() -> None:
    records = simulate(powered(energy="50 J", per="run", noise=0.3, cycles=8))
    spent = sums(records, "spent_j", Uploaded)
    predicted = np.array(sums(records, "predicted_j"))
    # What is left after what was measured is shared by the cycles that are left.
    for cycle in range(8):
        left_j = 50.0 - sum(spent[:cycle])
        share_j = left_j / (8 - cycle)
        assert 0.9 * share_j < predicted[cycle] <= share_j * (1 + 1e-9)


def test_a_battery_is_never_overdrawn_and_fills_again() -> None:
    phone = FRUGAL | {"battery": "6 J", "start": "4 J", "harvest": "1 W"}
    records = simulate(powered(HUNGRY, phone, SLOW, cycles=6, noise=0.1))
    orders = [r for r in records if isinstance(r, Allocated) and "jetson" in r.learner]
    spent = {
        (r.learner, r.cycle): r.spent_j for r in records if isinstance(r, Uploaded)
    }
    levels: dict[str, tuple[float, float]] = {}
    for order in orders:
        assert order.predicted_j is not None
        assert order.battery_j is not None
        time_s, level_j = levels.get(order.learner, (order.time_s, 4.0))
        level_j = min(6.0, level_j + 1.0 * (order.time_s - time_s))
        assert order.battery_j == pytest.approx(level_j - order.predicted_j, abs=1e-9)
        assert order.battery_j >= 0
        used_j = spent.get((order.learner, order.cycle)) or order.predicted_j
        levels[order.learner] = order.time_s, max(0.0, level_j - used_j)
    assert sum(order.samples > 0 for order in orders) > 6


def test_money_is_spent_on_who_is_cheap_and_carbon_on_who_is_clean() -> None:
    cheap, dear = {"per_second": 0.1}, {"per_second": 9.0}
    records = simulate(powered(dear, cheap, dear, budget=0.2, cycles=1))
    assert 0 < sums(records, "cost")[0] <= 0.2
    busy = {r.learner[:6] for r in records if isinstance(r, Uploaded)}
    assert busy == {"jetson"}
    coal, sun = {"carbon": "900 g/kWh"}, {"carbon": "20 g/kWh"}
    records = simulate(powered(coal, coal, sun, carbon="0.1 mg", cycles=1))
    assert 0 < sums(records, "cost")[0] <= 1e-4
    busy = {r.learner[:2] for r in records if isinstance(r, Uploaded)}
    assert busy == {"pi"}


def test_other_schemes_record_what_they_spend() -> None:
    for scheme in ("csa", "fedavg", "dab"):
        records = simulate(powered(scheme=scheme, cycles=1))
        assert sums(records, "spent_j", Uploaded)[0] > 0
        known = [r.predicted_j for r in records if isinstance(r, Allocated)]
        assert (None in known) == (scheme == "dab")  # nobody knows how fast it is


def test_who_halts_has_spent_less_than_was_predicted() -> None:
    records = simulate(powered(scheme="csa", cycles=2, noise=0.5))
    halted = {(r.learner, r.cycle) for r in records if isinstance(r, Halted)}
    assert halted
    assert any(isinstance(r, Trained) for r in records)
    assert all(
        r.spent_j is not None and r.spent_j > 0
        for r in records
        if isinstance(r, Uploaded)
    )


def test_a_run_without_power_is_recorded_as_before() -> None:
    records = simulate(small(cycles=1))
    assert all(r.predicted_j is None for r in records if isinstance(r, Allocated))
    assert all(r.spent_j is None for r in records if isinstance(r, Uploaded))


def test_the_example_keeps_within_its_energy() -> None:
    job = msgspec.structs.replace(load(ROOT / "examples" / "energy.toml"), cycles=2)
    predicted = sums(simulate(job), "predicted_j")
    assert all(55.0 < joules <= 60.0 for joules in predicted)


def test_a_job_with_power_is_written_and_read_back() -> None:
    job = powered(energy="15 J", per="run")
    text = dump(job)
    assert "waking = 0.5" in text

    assert job_of(tomllib.loads(text), "here") == job


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scheme": "csa", "energy": "5 J"}, "energy under 'csa', which does not plan"),
        ({"scheme": "csa", "per": "run"}, "per under 'csa'"),
        ({"energy": "0 J"}, "energy is 0.0: give a number above 0"),
        ({"deadline": "auto"}, "deadline = 'auto' and learners_at_most are not for"),
        ({"late": "carry"}, r"\[learners.power\] is for one task"),
        ({"scheme": "coded"}, r"\[learners.power\] is for one task"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    job = powered(**changes)
    with pytest.raises(ConfigError, match=message):
        family_of(job).checked(job)


def test_power_of_some_learners_alone_is_refused() -> None:
    job = powered()
    some = (*job.learners[:2], msgspec.structs.replace(job.learners[2], power=None))
    job = msgspec.structs.replace(job, learners=some)
    with pytest.raises(ConfigError, match="learners 'pi' have no power, and others do"):
        family_of(job).checked(job)
    job = small(scheme="energy-most", energy="5 J")
    with pytest.raises(ConfigError, match="energy is given, and not what learners"):
        family_of(job).checked(job)


@pytest.mark.parametrize(
    ("power", "message"),
    [
        ({"computing": "-1 W"}, "power.computing is -1.0"),
        ({"per_byte": float("inf")}, "power.per_byte is inf"),
        (
            {"battery": "5 J", "start": "6 J"},
            "power.start of 6.0 J in a battery of 5.0",
        ),
        ({"start": "6 J"}, "power.start of 6.0 J in a battery of 0.0"),
        ({"carbon": "3 g/mile"}, "unknown unit 'g/mile'"),
    ],
)
def test_power_that_cannot_be_is_refused(power: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PowerTable(**power)


def test_an_energy_that_pays_for_nobody_says_what_would() -> None:
    with pytest.raises(InfeasibleError, match="pays for nobody's least; learner"):
        simulate(powered(energy=1e-6))


@pytest.mark.slow
def test_several_limits_are_kept_at_once() -> None:
    # Joules, money and carbon are dear for one group each.
    powers = (
        {"computing": "60 W", "per_second": 0.01, "carbon": "10 g/kWh"},
        {"computing": "5 W", "per_second": 0.5, "carbon": "10 g/kWh"},
        {"computing": "5 W", "per_second": 0.01, "carbon": "900 g/kWh"},
    )
    limits: dict[str, Any] = {"energy": "30 J", "budget": 0.3, "carbon": "0.5 mg"}
    grams = {"laptop": 10 / 3.6e6, "jetson": 10 / 3.6e6, "pi": 900 / 3.6e6}
    for per, cycles in (("cycle", 1), ("run", 3)):
        job = powered(*powers, cycles=cycles, per=per, **limits)
        records = simulate(job)
        orders = [r for r in records if isinstance(r, Allocated)]
        spent = np.array(
            [
                sum(sums(records, "predicted_j")),
                sum(sums(records, "cost")),
                sum(
                    (r.predicted_j or 0.0) * grams[r.learner.partition("-")[0]]
                    for r in orders
                ),
            ]
        )
        used = spent / [30.0, 0.3, 5e-4]
        assert (used <= 1 + 1e-9).all()
        assert (used > 0.9).sum() >= 2
        for key in limits:  # which binds or not, beside each other
            alone = powered(*powers, cycles=cycles, per=per, **{key: limits[key]})
            assert sum(sums(simulate(alone), "samples")) >= sum(
                sums(records, "samples")
            )


@pytest.mark.slow
def test_a_cycle_waits_until_batteries_suffice(tmp_path: Path) -> None:
    phone = FRUGAL | {"battery": "9 J", "start": "1 J", "harvest": "0.5 W"}
    job = powered(phone, phone, phone, scheme="energy-least", cycles=3, noise=0.1)
    whole, resumed = whole_and_resumed(job, tmp_path, after=2)
    assert resumed == whole
    records = simulate(job)
    waited = {r.cycle: r for r in records if isinstance(r, Waited)}
    assert 1 in waited
    assert "and batteries" in waited[1].reason
    assert sums(records, "samples") == [400] * 3
    began_s = {r.cycle: r.time_s for r in records if isinstance(r, Allocated)}
    # Ten batteries with 1 J each, and 5 W that fill them: just as long as it takes.
    needed_j = sums(records, "predicted_j")[0]
    assert began_s[1] >= (needed_j - 10.0) / 5.0
    sooner = FRUGAL | {"battery": "9 J", "harvest": "0.5 W"}
    enough_j = 1.0 + 0.5 * began_s[1]
    for share, works in ((1.0, True), (0.98, False)):
        power = sooner | {"start": enough_j * share, "harvest": "0 W"}
        job = powered(power, power, power, scheme="energy-least", cycles=1)
        if works:
            simulate(job)
        else:
            with pytest.raises(InfeasibleError, match="and batteries"):
                simulate(job)


def test_a_cycle_does_not_wait_for_what_no_battery_can_hold() -> None:
    tiny = FRUGAL | {"battery": "1 mWh", "start": "1 J", "harvest": "1 W"}
    with pytest.raises(InfeasibleError, match=r"the budget is 0\.001"):
        simulate(powered(scheme="energy-least", energy=0.001))
    job = powered(tiny, tiny, tiny, scheme="energy-least", steps=20, deadline="9 s")
    with pytest.raises(InfeasibleError, match="and batteries"):
        simulate(job)


def test_a_run_that_was_cut_short_goes_on_with_what_is_left(tmp_path: Path) -> None:
    phone = FRUGAL | {"battery": "6 J", "start": "4 J", "harvest": "1 W"}
    limits: dict[str, Any] = {"energy": "60 J", "per": "run", "noise": 0.3}
    job = powered(HUNGRY, phone, SLOW, cycles=6, **limits)
    whole, resumed = whole_and_resumed(job, tmp_path, after=3)
    assert resumed == whole


def test_a_run_shows_what_each_learner_was_to_spend_and_did() -> None:
    records = simulate(powered(energy="15 J", noise=0.1))
    rows = [row for row in learner_cycles(records) if row.samples]
    assert all(row.predicted_j and row.spent_j for row in rows)
    spent = sum(row.spent_j or 0.0 for row in rows)
    assert spent == pytest.approx(sum(sums(records, "spent_j", Uploaded)))
    (first, *_) = [t for t in totals(rows) if t.learner == rows[0].learner]
    own = [row.predicted_j for row in rows if row.learner == first.learner]
    assert first.predicted_j == pytest.approx(np.mean(np.array(own, dtype=float)))
