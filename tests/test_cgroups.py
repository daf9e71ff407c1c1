"""Limits are read off the cgroups that hold for this process, and off their parents."""

from pathlib import Path

import pytest

from melisma import cgroups

Limits = tuple[list[int], float | None]


@pytest.fixture
def limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cgroups, "OWN", tmp_path / "own")
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    return tmp_path


def limits(root: Path, own: str, files: dict[str, str]) -> Limits:
    (root / "own").write_text(own + "\n")
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return list(cgroups.memory_limits()), cgroups.quota_cores()


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/", {}, ([], None)),
        ("0::/a/b", {"a/cpu.max": "max 100000", "a/memory.max": "max"}, ([], None)),
        ("0::/a/b", {"a/b/cpu.max": "200000 100000", "cpu.max": "3 4"}, ([], 0.75)),
        (
            "0::/a/b",
            {"a/b/memory.max": "300", "a/memory.max": "200"},
            ([300, 200], None),
        ),
        ("0::/a", {"a/cpu.max": "1000 0"}, ([], None)),
        (
            "4:cpu,cpuacct:/b\n3:memory:/c",
            {
                "cpu/b/cpu.cfs_quota_us": "1750",  # as the emulated testbed has it
                "cpu/b/cpu.cfs_period_us": "5000",
                "cpu/cpu.cfs_quota_us": "-1",
                "cpu/cpu.cfs_period_us": "100000",
                "memory/c/memory.limit_in_bytes": "500",
            },
            ([500], 0.35),
        ),
    ],
)
def test_limits_are_those_of_a_group_and_its_parents(
    limited: Path, own: str, files: dict[str, str], expected: Limits
) -> None:
    assert limits(limited, own, files) == expected


def test_a_system_without_cgroups_limits_nothing(limited: Path) -> None:
    assert (list(cgroups.memory_limits()), cgroups.quota_cores()) == ([], None)
