"""Figures say of which commit, on which CPU and when."""

import re
import subprocess
from pathlib import Path

import pytest
from tests.benchmarks.printed import PROVENANCE

from melisma import provenance

ROOT = Path(__file__).parents[1]
X86 = "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Platinum\n" * 2
ARM = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n" * 2


@pytest.fixture
def cpuinfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the kernel's text is to be put; no command is found."""
    monkeypatch.setattr(provenance, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / "cpuinfo"


def test_the_line_has_commit_cpu_torch_and_date() -> None:
    assert re.fullmatch(PROVENANCE, provenance.provenance())


def test_the_commit_is_the_one_that_is_checked_out() -> None:
    head = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True
    )
    commit = provenance.provenance().split()[1].removesuffix("-dirty")
    # Where the tests run from an archive there is none.
    assert head.stdout.startswith(commit) if head.stdout else commit == "unknown"


def test_an_x86_kernel_names_the_cpu(cpuinfo: Path) -> None:
    cpuinfo.write_text(X86)
    assert provenance.cpu_name() == "Intel(R) Xeon(R) Platinum"


def test_lscpu_names_an_arm_cpu_and_unlike_cores(cpuinfo: Path) -> None:
    cpuinfo.write_text(ARM)
    lscpu = cpuinfo.with_name("lscpu")
    names = "Model name:  Cortex-A55\nModel name:  Cortex-A76"
    lscpu.write_text(f"#!/bin/sh\necho '{names}'\n")
    lscpu.chmod(0o755)
    assert provenance.cpu_name() == "Cortex-A55 + Cortex-A76"


def test_an_arm_cpu_without_lscpu_is_named_by_its_numbers(cpuinfo: Path) -> None:
    cpuinfo.write_text(ARM)
    assert provenance.cpu_name() == "CPU 0x41/0xd0c"


def test_no_commit_is_called_unknown(cpuinfo: Path) -> None:
    assert provenance.provenance().startswith("commit unknown · ")


def test_gpus_are_named_where_there_are_some(cpuinfo: Path) -> None:
    assert provenance.gpu_names() == []
    smi = cpuinfo.with_name("nvidia-smi")
    smi.write_text("#!/bin/sh\necho 'NVIDIA H200'; echo 'NVIDIA H200'\n")
    smi.chmod(0o755)
    assert " · NVIDIA H200 · torch " in provenance.provenance()
