import pytest

from melisma.errors import ConfigError
from melisma.units import (
    Bytes,
    BytesPerSecond,
    Decibels,
    Hertz,
    Metres,
    Quantity,
    Seconds,
    Watts,
    WattsPerHertz,
)


@pytest.mark.parametrize(
    ("kind", "written", "value"),
    [
        (Seconds, "15 s", 15.0),
        (Seconds, "1.5min", 90.0),
        (Seconds, 7, 7.0),
        (Hertz, "2.4 GHz", 2.4e9),
        (Metres, "0.05 km", 50.0),
        (Decibels, "-3 dB", -3.0),
        (Bytes, "8974080 bit", 1_121_760.0),
        (BytesPerSecond, "20 Mbit/s", 2.5e6),
        (Watts, "23 dBm", 0.19952623149688797),
        (Watts, "1e2 mW", 0.1),
        (WattsPerHertz, "-174 dBm/Hz", 3.981071705534985e-21),
    ],
)
def test_what_people_write_becomes_si(
    kind: type[Quantity], written: object, value: float
) -> None:
    assert kind.of(written) == pytest.approx(value, rel=1e-12)


def test_an_unknown_unit_lists_the_known_ones() -> None:
    with pytest.raises(
        ConfigError, match=r"unknown unit 'parsec' in '3 parsec'.*s, ms"
    ):
        Seconds.of("3 parsec")


@pytest.mark.parametrize("written", ["", "s", "fifteen s", "1-2 s", "15", True, None])
def test_what_is_no_quantity_is_named(written: object) -> None:
    with pytest.raises(ConfigError, match="is not a number and a unit"):
        Seconds.of(written)
