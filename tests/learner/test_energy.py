"""Sensors of energy, on made-up trees of files, and the battery that uses them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.learner.test_source import KEYS, SPEC, source

from melisma.errors import ConfigError, DataError, TrainingError
from melisma.fleets.judge import wrong_charge
from melisma.fleets.messages import Budget, GradientRequest
from melisma.launch import joining
from melisma.learner import energy
from melisma.learner.battery import Battery
from melisma.learner.energy import Ina3221, Metering, PowerSupply, Rapl, sensors
from melisma.learner.learner import Learner
from melisma.learner.source import Caller
from melisma.learning.benchmark import Line


def tree(root: Path, **files: object) -> Path:
    for name, value in files.items():
        path = root / name.replace("__", "/").replace("_COLON_", ":")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")
    return root


def rapl(root: Path, number: int, uj: int, most: int = 1_000_000) -> Path:
    zone = root / "powercap" / f"intel-rapl:{number}"
    return tree(zone, energy_uj=uj, max_energy_range_uj=most)


def never() -> bool:
    return False


def test_a_battery_says_how_full_it_is(tmp_path: Path) -> None:
    tree(tmp_path / "power_supply" / "AC", type="Mains", online=1)
    bat = tmp_path / "power_supply" / "BAT0"
    tree(bat, type="Battery", energy_now=12_000_000, energy_full=48_000_000)
    supply = sensors(tmp_path)
    assert isinstance(supply, PowerSupply)
    assert supply.share() == 0.25
    tree(bat, energy_now="full")
    with pytest.raises(DataError, match="cannot be read as a number"):
        supply.share()
    tree(bat, energy_now=-5)
    with pytest.raises(DataError, match=r"has -5\.0"):
        supply.share()


def test_a_battery_may_count_its_charge(tmp_path: Path) -> None:
    bat = tmp_path / "power_supply" / "battery"
    tree(bat, type="Battery", charge_now=3_000_000, charge_full=4_000_000)
    supply = PowerSupply.find(tmp_path)
    assert supply is not None
    assert supply.share() == 0.75


def test_counters_of_all_packages_are_added_and_may_wrap(tmp_path: Path) -> None:
    rapl(tmp_path, 0, 999_000)
    rapl(tmp_path, 1, 100_000)
    tree(tmp_path / "powercap" / "intel-rapl:0:0", energy_uj=5, max_energy_range_uj=9)
    meter = Rapl.find(tmp_path)
    assert meter is not None
    assert meter.spent_j() == 0.0
    rapl(tmp_path, 1, 600_000)
    assert meter.spent_j() == pytest.approx(0.5)
    rapl(tmp_path, 0, 250_000)  # 1,001 µJ to the first value after the last, 0
    assert meter.spent_j() == pytest.approx(0.5 + 0.251001)
    rapl(tmp_path, 0, 2_000_000)
    with pytest.raises(DataError, match="energy_uj has"):
        meter.spent_j()


def test_power_is_summed_over_time(tmp_path: Path) -> None:
    rail = tmp_path / "hwmon" / "hwmon3"
    tree(rail, name="ina3221", in1_input=5000, curr1_input=400)  # 2 W
    now = 10.0
    meter = Ina3221(rail, lambda: now)
    now = 12.0
    tree(rail, curr1_input=800)
    assert meter.spent_j() == pytest.approx(2 * 3.0)
    tree(rail, power1_input=1_000_000)
    now = 13.0
    assert meter.spent_j() == pytest.approx(6 + 2.5)
    assert isinstance(sensors(tmp_path), Ina3221)


def test_without_a_sensor_it_says_so(tmp_path: Path) -> None:
    tree(tmp_path / "hwmon" / "hwmon0", name="coretemp")
    with pytest.raises(ConfigError, match="leave --sensors out"):
        sensors(tmp_path)


BUDGET = Budget(
    battery_j=10.0,
    start_j=4.0,
    harvest_w=1.0,
    steady=True,
    slot_s=0.1,
    sample_j=0.5,
    sending_w=2.0,
    above_j=0.0,
)


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def battery(**changes: Any) -> tuple[Battery, Clock]:
    clock = Clock()
    sensor = changes.pop("sensor", None)
    budget = msgspec.structs.replace(BUDGET, **changes)
    return Battery(budget, sensor, clock), clock


def test_work_is_paid_before_it_begins_and_books_balance() -> None:
    own, clock = battery()
    assert own.compute(6, lambda: own.charge().battery_j, never) == pytest.approx(1.0)
    clock.now_s = 2.0
    own.send(1.0)
    charge = own.charge()
    assert charge.battery_j == pytest.approx(4 - 3 + 2 - 2)
    assert (charge.computing_j, charge.sending_j) == (3.0, 2.0)
    assert wrong_charge(charge, 10.0) == ""


def test_who_cannot_pay_waits_or_is_told() -> None:
    own, _ = battery()
    with pytest.raises(TrainingError, match="battery was low"):
        own.compute(9, lambda: 1.0, lambda: True)
    with pytest.raises(TrainingError, match="6 J to send, and 4 J"):
        own.send(3.0)
    assert own.charge().battery_j == 4.0


def test_it_waits_for_the_level_that_it_was_told() -> None:
    own, clock = battery(above_j=5.0)
    looks = []

    def cancelled() -> bool:
        looks.append(clock.now_s)
        clock.now_s += 0.4
        return False

    assert own.compute(1, lambda: 7.0, cancelled) == 7.0
    assert clock.now_s >= 1.0  # 1 J at 1 W
    assert looks


def test_a_full_battery_takes_no_more() -> None:
    own, clock = battery()
    clock.now_s = 60.0
    assert own.level_j() == 10.0
    charge = own.charge()
    assert (charge.harvested_j, charge.stored_j) == (60.0, 6.0)


def test_uniform_harvest_has_its_mean() -> None:
    own, clock = battery(steady=False, battery_j=1e6)
    clock.now_s = 2000.0
    assert own.level_j() - 4.0 == pytest.approx(2000, rel=0.05)


@pytest.mark.parametrize(("uj", "left_j"), [(1_000_000, 3.0), (9_000_000, 0.0)])
def test_a_meter_corrects_what_was_paid(tmp_path: Path, uj: int, left_j: float) -> None:
    rapl(tmp_path, 0, 0, 10**9)
    own, _ = battery(sensor=Rapl.find(tmp_path))

    def work() -> float:
        rapl(tmp_path, 0, uj, 10**9)
        return 1.0

    own.compute(4, work, never)  # 2 J are paid
    assert own.charge().battery_j == pytest.approx(left_j)
    assert wrong_charge(own.charge(), 10.0) == ""


def test_a_devices_own_battery_counts_by_how_full_it_is(tmp_path: Path) -> None:
    bat = tmp_path / "power_supply" / "BAT0"
    tree(bat, type="Battery", energy_now=50, energy_full=100)
    own, _ = battery(sensor=PowerSupply.find(tmp_path))
    assert own.level_j() == 5.0
    own.compute(2, lambda: 0.0, never)
    tree(bat, energy_now=40)
    assert own.level_j() == pytest.approx(4.0)
    assert own.charge().computing_j == pytest.approx(1.0)
    assert wrong_charge(own.charge(), 10.0) == ""


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda c: None, "no account"),
        (lambda c: msgspec.structs.replace(c, battery_j=float("nan")), "battery_j"),
        (lambda c: msgspec.structs.replace(c, battery_j=11.0), "11 J of 10 J"),
        (lambda c: msgspec.structs.replace(c, lowest_j=-1.0), "lowest_j = -1.0"),
        (lambda c: msgspec.structs.replace(c, sending_j=1.0), "wrong by -1 J"),
        (lambda c: msgspec.structs.replace(c, stored_j="much"), "stored_j = 'much'"),
    ],
)
def test_false_books_are_refused(change: Callable[[Any], Any], why: str) -> None:
    own, _ = battery()
    assert why in wrong_charge(change(own.charge()), 10.0)


def test_a_mouse_and_what_cannot_be_read_are_no_sensors(tmp_path: Path) -> None:
    mouse = tmp_path / "power_supply" / "mouse"
    tree(mouse, type="Battery", scope="Device", energy_now=1, energy_full=2)
    (odd := tmp_path / "power_supply" / "odd").mkdir()
    (odd / "type").write_bytes(b"\xff")
    (hwmon := tmp_path / "hwmon" / "hwmon0").mkdir(parents=True)
    (hwmon / "name").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="no energy sensor"):
        sensors(tmp_path)


def one_part(budget: Budget) -> GradientRequest:
    """50 samples."""
    return GradientRequest(
        task="t",
        cycle=1,
        parts=[KEYS[:1]],
        coefficients=[1.0],
        wide=False,
        budget=budget,
    )


class FreeAir:
    """Gives a channel to whoever asks."""

    def __init__(self) -> None:
        self.levels_j: list[float] = []

    def leave(self, task: str, cycle: int, battery_j: float) -> float:
        self.levels_j.append(battery_j)
        return 0.25


@pytest.mark.parametrize(("sensed", "left_j"), [(True, 5.0), (False, 0.5)])
def test_a_worker_computes_and_sends_by_its_devices_sensor(
    tmp_path: Path, sensed: bool, left_j: float
) -> None:
    bat = tmp_path / "power_supply" / "BAT0"
    tree(bat, type="Battery", energy_now=50, energy_full=100)
    learner = Learner(name="a", sensor=sensors(tmp_path) if sensed else None)
    learner.prepare(SPEC)
    # By the model 50 samples take 3 J of 4 J, and a quarter second of sending 0.5 J.
    budget = msgspec.structs.replace(BUDGET, harvest_w=0.0, sample_j=0.06)
    air = FreeAir()
    charge = learner.gradient(one_part(budget), Caller(source(), air=air)).charge
    assert charge is not None
    assert charge.battery_j == pytest.approx(left_j)
    assert air.levels_j == [pytest.approx(5.0 if sensed else 1.0)]
    assert wrong_charge(charge, BUDGET.battery_j) == ""


def test_a_wait_for_the_battery_does_not_make_a_device_slower() -> None:
    learner = Learner(name="a")
    learner.prepare(SPEC)
    speed = learner._tasks["t"].speed
    speed.compute = Line(latency_s=0.0, rate=500.0)  # 50 samples: 0.1 s
    # 4 J at 3 W: it begins after more than a second.
    budget = msgspec.structs.replace(
        BUDGET, start_j=0.0, harvest_w=3.0, sample_j=0.06, above_j=4.0
    )
    done = learner.gradient(one_part(budget), Caller(source(), air=FreeAir()))
    assert done.trained_s >= 1.0
    assert speed.compute_drift.mean < 4.0  # with the wait, 10 times as long and more


def test_a_device_joins_with_its_sensors_if_its_owner_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none() -> None:
        raise ConfigError("no energy sensor here")

    monkeypatch.setattr(energy, "sensors", none)
    with pytest.raises(ConfigError, match="no energy sensor here"):
        joining.join("127.0.0.1:1", name="pi", sensors=True)


def test_an_order_is_metered_from_its_begin(tmp_path: Path) -> None:
    rapl(tmp_path, 0, 100_000)
    metering = Metering(sensors(tmp_path), lambda: 0.0)
    rapl(tmp_path, 0, 400_000)
    assert metering.spent_j() == pytest.approx(0.3)


def test_power_is_read_while_work_is_done(tmp_path: Path) -> None:
    board = tmp_path / "hwmon" / "hwmon1"
    tree(board, name="ina3221", power1_input=2_000_000)
    now = [0.0]
    meter = Ina3221(board, lambda: now[0])
    metering = Metering(meter, lambda: now[0])
    tree(board, power1_input=10_000_000)
    for tick in range(1, 11):
        now[0] = 0.2 * tick
        metering.read()
    tree(board, power1_input=2_000_000)
    # 0.2 s from 2 to 10 W, 1.8 s at 10 W, and none of the fall to 2 W.
    assert metering.spent_j() == pytest.approx(0.2 * 6.0 + 1.8 * 10.0)


def test_a_sensor_that_fails_leaves_it_unknown(tmp_path: Path) -> None:
    zone = rapl(tmp_path, 0, 100_000)
    metering = Metering(sensors(tmp_path), lambda: 0.0)
    (zone / "energy_uj").unlink()
    assert metering.spent_j() is None
    assert metering.spent_j() is None


def test_without_a_meter_nothing_is_known(tmp_path: Path) -> None:
    bat = tmp_path / "power_supply" / "BAT0"
    tree(bat, type="Battery", energy_now=12_000_000, energy_full=48_000_000)
    assert Metering(sensors(tmp_path), lambda: 0.0).spent_j() is None
    assert Metering(None, lambda: 0.0).spent_j() is None
