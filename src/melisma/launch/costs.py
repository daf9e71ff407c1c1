"""Measure a fog's costs on emulated devices: how long a sample takes, slot by slot.

In each slot every device sends samples to every other, by way of the orchestrator, and
trains all the while. So what is measured has the contention of a fog at work: for the
quota of CPU time, for the links, and for the orchestrator.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from melisma import rpc
from melisma.errors import ConfigError
from melisma.fog import traces
from melisma.jobs.building import task_of
from melisma.jobs.files import dump
from melisma.jobs.schema import Job
from melisma.launch.probe import JOIN
from melisma.learning.shards import Shard
from melisma.maths.arrays import Floats
from melisma.provenance import provenance
from melisma.testbed import Device, Place, Testbed, missing

#: Longest that devices may take to start, and that a slot may last.
START_S, SLOT_LIMIT_S = 120.0, 300.0
#: Significant digits that are kept: a clock's noise is far above the fifth.
DIGITS = 4


class Relay:
    """Hands samples of one device on to another."""

    def __init__(self) -> None:
        self.server: rpc.Server | None = None

    @rpc.expose
    async def relay(self, receiver: str, shard: Shard) -> None:
        """Return once the receiver has them."""
        assert self.server is not None
        await self.server.peers[receiver].take(shard)


def measure(
    job: Job,
    devices: Sequence[Device],
    path: Path,
    *,
    slots: int,
    samples: int = 20,
    slot_s: float = 1.0,
    watch: Callable[[int], None] = lambda slots: None,
) -> None:
    """Write a trace of these devices to a new file, slot by slot; needs root.

    ``samples`` of the job's are sent to each device in a slot, which lasts ``slot_s``
    at least. ``watch`` is called with the number of slots so far. Whatever ends it, the
    file has whole slots. ConfigError if the file is there, or nothing can be measured.
    """
    if lack := missing():
        raise ConfigError(f"emulated devices need {lack}")
    if len(devices) < 2:
        raise ConfigError(f"{len(devices)} devices: give two at least, and a comma")
    if path.exists():
        raise ConfigError(f"{path} is there: give a new file, or remove it")
    if not path.parent.is_dir():
        raise ConfigError(f"{path.parent} is no folder: make it first")
    task = task_of(job)
    if samples > (there := len(task.data.train)):
        raise ConfigError(f"{samples} samples: the job has {there}: give fewer")
    names = [f"{device.name}-{n}" for n, device in enumerate(devices, start=1)]
    with probes(job, dict(zip(names, devices, strict=True)), samples) as peers:
        one_slot(peers, names)  # first calls and batches are slower than all others
        notes = [
            f"measured by `melisma costs`, {provenance()}",
            f"{job.model} on {job.data.name}, batches of {task.training.batch}, "
            f"{samples} samples to each device in a slot",
            *(f"device {k}: {described(device)}" for k, device in enumerate(devices)),
        ]
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write("".join(traces.head(notes)))
            for slot in range(slots):
                ends = time.monotonic() + slot_s
                file.write("".join(traces.lines(slot, one_slot(peers, names))))
                file.flush()
                watch(slot + 1)
                time.sleep(max(0.0, ends - time.monotonic()))


@contextmanager
def probes(job: Job, devices: dict[str, Device], samples: int) -> Iterator[rpc.Group]:
    """Start a probe on each device, by name; yield them as peers."""
    relay = Relay()
    with Testbed("costs") as testbed, TemporaryDirectory(prefix="melisma-") as folder:
        Path(folder, "job.toml").write_text(dump(job), encoding="utf-8")
        places = [testbed.place(device, name) for name, device in devices.items()]
        with rpc.serve(
            relay, host=testbed.address, port=0, folder=folder, say=lambda text: None
        ) as relay.server:
            with ExitStack() as unhurried:
                for place in places:
                    # Importing torch under a low CPU quota would take long.
                    unhurried.enter_context(place.full_speed())
                    place.open(relay.server.port)
                    start(place, Path(folder, "job.toml"), samples, relay.server)
                relay.server.wait_until(len(places), timeout_s=START_S)
            yield relay.server.peers


def start(place: Place, job: Path, samples: int, server: rpc.Server) -> None:
    """Start the probe of a place."""
    # -P: no module of the current folder takes the place of an installed one.
    command = [sys.executable, "-P", "-m", "melisma.launch.probe"]
    command += [str(job), place.name, str(samples)]
    place.popen(
        command,
        env={**os.environ, JOIN: server.invite()},
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the orchestrator, which ends them all
    )


def one_slot(peers: rpc.Group, names: Sequence[str]) -> Floats:
    """Return the seconds of a sample in one slot, n × n; MelismaError if it fails.

    Devices send in turns: the first to the second while that sends to the third.
    """
    n = len(names)
    calls = {
        name: peers[name]
        .slot.within(SLOT_LIMIT_S)
        .submit([names[(k + r) % n] for r in range(1, n)])
        for k, name in enumerate(names)
    }
    table = np.empty((n, n))
    for i, name in enumerate(names):
        process_s, sent_s = calls[name].result()
        for j, other in enumerate(names):
            table[i, j] = process_s if i == j else sent_s[other]
    return np.array([[float(f"{s:.{DIGITS}g}") for s in row] for row in table])


def described(device: Device) -> str:
    """Return what a device is limited to, in words."""
    cpu = "no limit" if device.cpu is None else f"{device.cpu:g} cores"
    link = device.link.name if device.link else "cable"
    ends = ", ".join(
        f"{rate_bps / 1e6:g} Mbit/s {way}" if rate_bps else f"no limit {way}"
        for rate_bps, way in ((device.up_bps, "up"), (device.down_bps, "down"))
    )
    return f"{device.name}, {cpu}, {link}, {ends}"
