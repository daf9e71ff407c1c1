"""What a report says of coded workers' batteries."""

from melisma.runs.records import Powered
from melisma.views.batteries import Battery, batteries


def powered(cycle: int, name: str, battery_j: float, lowest_j: float) -> Powered:
    return Powered(
        task="made",
        time_s=float(cycle),
        cycle=cycle,
        learner=name,
        battery_j=battery_j,
        lowest_j=lowest_j,
        harvested_j=3.0,
        stored_j=2.0,
        computing_j=1.0,
        sending_j=0.5,
        waited_s=0.25,
        waiting=1.0,
        owed=1.0,
    )


def test_a_battery_has_its_end_its_lowest_and_the_sums_of_its_cycles() -> None:
    rows = [powered(1, "b", 9.0, 4.0), powered(1, "a", 5.0, 5.0)]
    found = batteries([*rows, powered(2, "b", 8.0, 6.0)])
    assert list(found) == ["b", "a"]
    assert found["b"] == Battery(
        end_j=8.0,
        lowest_j=4.0,
        stored_j=4.0,
        computing_j=2.0,
        sending_j=1.0,
        waited_s=0.5,
    )


def test_without_batteries_there_are_none() -> None:
    assert batteries([]) == {}
