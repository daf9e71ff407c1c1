"""Limits as the kernel reads them, and as the page shows them."""

import re
from pathlib import Path
from typing import Any

import pytest

from melisma.errors import ConfigError
from melisma.testbed import DEVICES, LINKS, Device, Link
from melisma.testbed.cgroups import Cgroups
from melisma.testbed.network import bucket

PAGE = Path(__file__).parents[2] / "docs" / "testbed.md"


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"cpu": 0.0}, r"'odd' has cpu = 0.0: give at least 0.01 cores"),
        ({"cpu": -1.0}, "cpu = -1.0"),
        ({"cpu": float("nan")}, "cpu = nan"),
        ({"up_bps": 0.0}, r"up_bps = 0.0: give at least 1000 bit/s, or nothing"),
        ({"down_bps": float("inf")}, "down_bps = inf"),
        ({"memory_bytes": 1000}, "memory_bytes = 1000: give at least 1.04858e.06 b"),
    ],
)
def test_an_impossible_limit_is_named(limits: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Device(name="odd", **limits)


def test_quotas_are_written_as_either_version_reads_them(tmp_path: Path) -> None:
    v1, v2 = tmp_path / "v1", tmp_path / "v2"
    v1.mkdir()
    v2.mkdir()
    Cgroups((v1,), unified=False).make("pi", 0.25)
    Cgroups((v2,), unified=True).make("pi", 0.25)
    Cgroups((v2,), unified=True).make("free", None)
    assert (v1 / "pi" / "cpu.cfs_quota_us").read_text() == "1250"
    assert (v1 / "pi" / "cpu.cfs_period_us").read_text() == "5000"
    assert (v2 / "pi" / "cpu.max").read_text() == "1250 5000"
    assert (v2 / "free" / "cpu.max").read_text() == "max 5000"


def test_a_small_quota_is_the_kernels_least_in_a_longer_period(tmp_path: Path) -> None:
    Cgroups((tmp_path,), unified=True).make("tiny", 0.01)
    assert (tmp_path / "tiny" / "cpu.max").read_text() == "1000 100000"


def test_memory_is_limited_where_either_version_keeps_it(tmp_path: Path) -> None:
    v1, v2, memory = (tmp_path / name for name in ("v1", "v2", "memory"))
    for root in (v1, v2, memory):
        root.mkdir()
    Cgroups((v1,), unified=False, memory=memory).make("pi", 0.25, 512 << 20)
    Cgroups((v2,), unified=True, memory=v2).make("pi", 0.25, 512 << 20)
    assert (memory / "pi" / "memory.limit_in_bytes").read_text() == "536870912"
    assert (v2 / "pi" / "memory.max").read_text() == "536870912"
    assert (v2 / "cgroup.subtree_control").read_text() == "+cpu +memory"


def test_a_kernel_without_a_memory_controller_says_so(tmp_path: Path) -> None:
    cgroups = Cgroups((tmp_path,), unified=True)
    with pytest.raises(ConfigError, match=r"no limit of 1048576 bytes.*memory_bytes"):
        cgroups.make("pi", None, 1 << 20)


def test_cpu_time_is_read_from_either_versions_account(tmp_path: Path) -> None:
    (tmp_path / "pi").mkdir()
    (tmp_path / "pi" / "cpuacct.usage").write_text("1500000000\n")
    (tmp_path / "pi" / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    assert Cgroups((tmp_path,), unified=False).used_s("pi") == pytest.approx(1.5)
    assert Cgroups((tmp_path,), unified=True).used_s("pi") == pytest.approx(2.5)


def test_a_bucket_holds_a_tick_and_its_queue_two_segments() -> None:
    # 8 Mbit/s: 4 ms are 4,000 bytes; 50 ms are 50,000, less than two segments.
    assert " ".join(bucket(8e6)) == "tbf rate 8000000bit burst 4000 limit 135072"
    # 1 Gbit/s: 0.5 MB and 6.25 MB. 1 kbit/s: two frames.
    assert bucket(1e9)[4::2] == ["500000", "6750000"]
    assert bucket(1e3)[4] == "3028"


def test_the_page_shows_the_devices() -> None:
    def megabits(rate_bps: float | None) -> str:
        return "no limit" if rate_bps is None else f"{rate_bps / 1e6:,.0f}"

    def memory(size: int | None) -> str:
        return "no limit" if size is None else f"{size >> 20:,}"

    rows = [
        f"| `{device.name}` | {'no limit' if device.cpu is None else device.cpu} "
        f"| {memory(device.memory_bytes)} "
        f"| {megabits(device.down_bps)} | {megabits(device.up_bps)} "
        f"| {device.link.name if device.link else 'cable'} |"
        for device in DEVICES.values()
    ]
    assert table("## Devices", 6) == rows


def test_the_page_shows_the_links() -> None:
    def others(link: Link) -> str:
        if not link.cross:
            return "none"
        return f"{link.cross:.0%} for {link.busy_s:g} s, then {link.idle_s:g} s none"

    rows = [
        f"| `{link.name}` | {1000 * link.latency_s:g} | {link.jitter:g} "
        f"| {link.fading:g} | {1000 * link.hold_s:g} | {others(link)} "
        f"| {'one medium' if link.half_duplex else 'apart'} |"
        for link in LINKS.values()
    ]
    assert table("## Links", 7) == rows


def table(title: str, columns: int) -> list[str]:
    """The first columns of the rows that name something, under a title of the page."""
    section = PAGE.read_text("utf-8").split(f"\n{title}\n")[1].split("\n## ")[0]
    return re.findall(rf"^(\| `[^|]*\|(?:[^|\n]*\|){{{columns - 1}}})", section, re.M)
