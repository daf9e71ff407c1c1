"""Costs measured on emulated devices: real gradients, real links."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.testbed.places import real, things

from melisma.fog import traces
from melisma.jobs.files import load
from melisma.launch.costs import measure
from melisma.testbed import Device, ownership

JOB = """
model = "FogMLP"
mode = "federated"
scheme = "fog"
training = { batch = 4 }
"""
SAMPLES, BITS = 20, 8 * 785  # of MNIST: 28 · 28 bytes and a label
SLOW, FAST = 1e6, 8e6
LIMIT_S = 150.0  # guards against hanging; nothing is measured with it


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "job.toml").write_text(JOB)
    return tmp_path / "job.toml"


@real
@pytest.mark.slow
def test_times_are_those_of_the_quotas_and_the_links(job: Path) -> None:
    devices = [
        Device(name="slow", cpu=0.1, up_bps=SLOW, down_bps=FAST),
        Device(name="fast", cpu=0.5, up_bps=FAST, down_bps=FAST),
    ]
    path, seen = job.with_name("costs.csv"), list[int]()
    measure(
        load(job),
        devices,
        path,
        slots=3,
        samples=SAMPLES,
        slot_s=0.1,
        watch=seen.append,
    )
    trace = traces.read(path)
    assert (trace.slots, trace.devices, seen) == (3, 2, [1, 2, 3])
    assert "slow, 0.1 cores, cable, 1 Mbit/s up, 8 Mbit/s down" in trace.notes[2]
    slow_s, fast_s = np.median(trace.process_s(3), axis=0)
    assert slow_s > 1.5 * fast_s  # by the quotas, 5 times on an idle machine
    # A sample goes up one link and then down the other; buckets start full.
    there, back = np.median(trace.sample_s[:, [0, 1], [1, 0]], axis=0)
    assert there > 0.9 * BITS * (1 / SLOW + 1 / FAST)
    assert back > 0.5 * BITS * (1 / FAST + 1 / FAST)


@real
@pytest.mark.slow
def test_ctrl_c_keeps_whole_slots_and_ends_the_devices(job: Path) -> None:
    path = job.with_name("costs.csv")
    words = ["costs", str(job), "--out", str(path), "--devices", "jetson-nano,pi2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "melisma", *words, "--slots", "1000"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until = time.monotonic() + LIMIT_S
        while not (path.exists() and path.read_text().count("\n") > 5 + 4):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.1)
        started = ownership.started(process.pid)
        label = f"mel{ownership.digits(process.pid, 5)}{started}"
        assert things(label)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode not in (0, -signal.SIGKILL)
    assert f"the slots so far are in {path}" in told
    assert traces.read(path).slots >= 1
    assert things(label) == set()
