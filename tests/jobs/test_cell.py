"""A job's cell: learners that are placed, walk and fade, and share a bandwidth."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from melisma.errors import ConfigError
from melisma.jobs.channel_table import ChannelTable
from melisma.jobs.families import family_of
from melisma.jobs.files import load
from melisma.jobs.schema import Job, LearnersTable
from melisma.launch.simulate import build, simulate
from melisma.runs.records import Allocated, Evaluated, Left, Record, Uploaded
from melisma.schemes import SCHEMES, SPENDING
from melisma.system.law import Mode
from melisma.units import Hertz

ROOT = Path(__file__).parents[2]


def job_of(channel: dict[str, Any], **changes: Any) -> Job:
    """Twelve learners, half of them fast, in a cell of one's own."""
    placed: dict[str, Any] = {"distance": 40.0}
    if channel.get("placement") == "uniform":
        placed = {}
    fast, slow = (
        LearnersTable(name=name, count=6, clock=Hertz(clock), **placed)
        for name, clock in (("fast", 2.4e9), ("slow", 0.7e9))
    )
    given: dict[str, Any] = {
        "learners": (fast, slow),
        "samples": 600,
        "cycles": 4,
        "channel": ChannelTable(**channel),
        "workload": {"cycles": 3.2e6},
    }
    return Job(**(given | changes))


def allocated(records: list[Record]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Samples, cycles × learners."""
    rows = [r for r in records if isinstance(r, Allocated)]
    cycles = max(r.cycle for r in rows)
    return np.array([r.samples for r in rows]).reshape(cycles, -1)


FADING = {
    "placement": "uniform",
    "mobility": "waypoint",
    "fading": "rayleigh",
    "slope": 21.0,
}


def test_each_cycle_is_allocated_from_its_channel() -> None:
    # 1 µW, so that a fade is felt: at 23 dBm the signal is 90 dB above the noise.
    records = simulate(job_of(FADING | {"power": 1e-6}))
    samples = allocated(records)
    assert all((samples[0] != row).any() for row in samples[1:])
    assert (samples.sum(axis=1) == 600).all()
    # It knows the channel of this very cycle: all happens as predicted.
    began_s = {r.cycle: r.time_s for r in records if isinstance(r, Allocated)}
    predicted = {
        (r.cycle, r.learner): r.predicted_s
        for r in records
        if isinstance(r, Allocated) and r.samples
    }
    took = {
        (r.cycle, r.learner): r.time_s - began_s[r.cycle]
        for r in records
        if isinstance(r, Uploaded)
    }
    assert took == pytest.approx(predicted)
    assert len(took) == 48


def test_without_change_the_records_are_those_of_no_cell() -> None:
    limited, plain = job_of({"total": 60e6}), job_of({})
    assert simulate(limited) == simulate(plain)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_that_averages_works_in_a_cell(scheme: str) -> None:
    channel = FADING | {"total": 50e6, "beyond": "turns"}
    records = simulate(job_of(channel, scheme=scheme, cycles=2, steps=1))
    samples = allocated(records)
    # One that plans by what is spent has no need of all who are on the air.
    least = 1 if scheme in SPENDING else 10
    busy = (samples > 0).sum(axis=1)
    assert ((busy >= least) & (busy <= 10)).all()
    assert isinstance(records[-1], Evaluated)


@pytest.mark.parametrize("mode", Mode)
def test_learners_take_turns_and_stay_on_the_roster(mode: Mode) -> None:
    channel = {"total": 40e6, "beyond": "turns"}  # 8 of 12
    records = simulate(job_of(channel, cycles=3, mode=mode, samples=None))
    busy = allocated(records) > 0
    assert busy.sum(axis=1).tolist() == [8, 8, 8]
    assert (busy.sum(axis=0) == 2).all()
    assert not any(isinstance(r, Left) for r in records)


def test_learners_who_share_all_take_part_and_are_slower_to_reach() -> None:
    shared = build(job_of({"total": 30e6, "beyond": "share"}))
    alone = build(job_of({}))
    for built in (shared, alone):
        assert (allocated(built.run()) > 0).all()
    ratio = shared.built.crew._law.fixed_s / alone.built.crew._law.fixed_s
    assert (ratio > 1.9).all()  # half the bandwidth, and less noise
    assert (ratio < 2.0).all()


def test_who_is_in_a_deep_fade_sits_out_and_comes_back() -> None:
    # 1 nW: at 40 m about 7 bit a hertz, and σ = 30 dB takes many of them to nothing.
    channel = {"fading": "lognormal", "spread": 30.0, "power": 1e-9, "slope": 21.0}
    records = simulate(job_of(channel, cycles=12, samples=300))
    busy = allocated(records) > 0
    assert (busy.any(axis=1)).all()
    assert 0 < (~busy).sum() < busy.size
    assert (np.diff(busy.astype(int), axis=0) == 1).any()


def test_samples_that_do_not_fit_in_a_bad_cycle_are_left_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Two of twelve at a time: fast ones train 750 samples a second, slow ones 219.
    channel = {"total": 10e6, "beyond": "turns"}
    samples = allocated(simulate(job_of(channel, cycles=6, samples=1000)))
    assert samples.sum(axis=1).max() == 1000
    assert 300 < samples.sum(axis=1).min() < 500
    assert "of 1000 shards can be trained on by the deadline of 1 s" in caplog.text


@pytest.mark.parametrize(
    ("channel", "learners", "why"),
    [
        ({"radius": 9.0}, {}, "radius has no effect without placement"),
        ({"speed": 2.0}, {}, "speed has no effect without mobility"),
        ({"pause": 2.0}, {}, "pause has no effect without mobility"),
        ({"spread": 2.0}, {}, "spread has no effect without fading = 'lognormal'"),
        (
            {"spread": 2.0, "fading": "rayleigh"},
            {},
            "spread has no effect without fading = 'lognormal'",
        ),
        ({"beyond": "turns"}, {}, "beyond has no effect without a total"),
        ({"total": -1.0}, {}, "total = -1.0: give a finite number above 0"),
        ({"bandwidth": 0.0}, {}, "bandwidth = 0.0: give a finite number above 0"),
        (
            {"mobility": "waypoint", "speed": "inf"},
            {},
            "'inf' is not a number and a unit",
        ),
        ({"fading": "rician"}, {}, "unknown fading 'rician'"),
        ({"total": 1e6}, {}, "want 5 MHz of channel.total = 1 MHz: give channel.be"),
        (
            {"total": 1e6, "beyond": "turns"},
            {},
            "bandwidth of 5 MHz is more than the total of 1 MHz: nobody",
        ),
        ({"placement": "uniform"}, {}, "have distance, and channel.placement"),
        ({}, {"distance": None}, "have clock: give clock and distance, or"),
        (
            {"mobility": "waypoint", "radius": 10.0},
            {},
            "are 40 m away, and walk within 10 m: give a larger",
        ),
        (
            {"mobility": "waypoint", "speed": 1e9},
            {},
            "leads 1e+09 m a cycle in a cell of 50 m",
        ),
        (
            {"fading": "rayleigh"},
            {"clock": None, "distance": None, "rate": 9.0, "bandwidth": 9.0},
            "channel.fading has no effect on learners 'a', whose speed of data is",
        ),
        ({}, {"rate": 9.0, "distance": None}, "have clock, rate: give clock and"),
    ],
)
def test_a_cell_that_cannot_be_is_refused_in_one_line(
    channel: dict[str, Any], learners: dict[str, Any], why: str
) -> None:
    given: dict[str, Any] = {"name": "a", "clock": 1e9, "distance": 40.0} | learners
    with pytest.raises(ConfigError) as raised:
        Job(channel=ChannelTable(**channel), learners=(LearnersTable(**given),))
    assert why in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"scheme": "coded"},
        {"scheme": "fog", "mode": "federated"},
        {"scheme": "med", "tasks": ({"name": "a"}, {"name": "b"})},
    ],
    ids=["coded", "fog", "tasks"],
)
def test_other_families_say_that_they_know_no_cell(changes: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigError, match=r"placement, mobility, fading of \[channel\]"
    ):
        build(job_of(FADING, **changes))


def test_a_live_run_says_that_its_network_is_real() -> None:
    job = job_of({"fading": "rayleigh"})
    with pytest.raises(ConfigError, match=r"fading of \[channel\] are simulated"):
        family_of(job).checked(job, live=True)


def test_the_example_is_a_cell_with_turns(tmp_path: Path) -> None:
    job = msgspec.structs.replace(load(ROOT / "examples" / "cell.toml"), cycles=3)
    records = build(job).run(tmp_path)
    assert ((allocated(records) > 0).sum(axis=1) == 20).all()
    assert load(tmp_path / "config.toml") == job


def test_the_page_of_jobs_has_every_key() -> None:
    page = (ROOT / "docs" / "jobs.md").read_text(encoding="utf-8")
    table = page.partition("`[channel]`")[2].partition("`[benchmark]`")[0]
    for key in ChannelTable.__struct_fields__:
        assert f"`{key}`" in table, key


def test_the_overhead_of_a_cycle_is_in_a_cells_law() -> None:
    plain, slowed = (
        build(job_of({"total": 60e6}, overhead=overhead)).built.crew._law.fixed_s
        for overhead in (0.0, 0.25)
    )
    assert slowed == pytest.approx(plain + 0.25)


def test_a_cell_is_known_and_not_measured() -> None:
    with pytest.raises(ConfigError, match="'measured' in a cell"):
        build(job_of(FADING, benchmark={"known": "measured"}))
