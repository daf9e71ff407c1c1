"""A device that benchmarks itself beside other work says so."""

import logging
from itertools import chain, repeat
from pathlib import Path

import pytest

from melisma import cgroups
from melisma.learner.measuring import told_if_busy
from melisma.learner.throttle import Throttle


def said(
    caplog: pytest.LogCaptureFixture, took_s: float, core_s: float, watched: bool
) -> str:
    wall, core = (iter(chain([5.0], repeat(5.0 + s))) for s in (took_s, core_s))
    with (
        caplog.at_level(logging.WARNING, "melisma.learner"),
        told_if_busy(watched, clock=wall.__next__, cpu_clock=core.__next__),
    ):
        pass
    return caplog.text


def test_a_benchmark_that_had_a_third_of_a_core_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert "it had 33 % of a core" in said(caplog, 3.0, 1.0, True)


@pytest.mark.parametrize(
    ("took_s", "core_s", "watched"),
    [(3.0, 2.9, True), (3.0, 1.0, False), (0.01, 0.0, True)],
)
def test_one_that_had_a_core_or_was_slowed_down_on_purpose_or_short_is_not(
    caplog: pytest.LogCaptureFixture, took_s: float, core_s: float, watched: bool
) -> None:
    assert said(caplog, took_s, core_s, watched) == ""


@pytest.mark.parametrize(("quota", "warned"), [("35000", False), ("70000", True)])
def test_a_device_with_a_quota_is_busy_below_its_quota(
    quota: str,
    warned: bool,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "own").write_text("0::/\n")
    (tmp_path / "cpu.max").write_text(f"{quota} 100000\n")
    monkeypatch.setattr(cgroups, "OWN", tmp_path / "own")
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    assert bool(said(caplog, 3.0, 1.0, True)) is warned


def test_a_throttle_without_a_rate_is_free() -> None:
    assert Throttle(bytes_per_s=10.0).is_free
    assert not Throttle(samples_per_s=10.0).is_free
