"""The thesis's devices, as limits that a kernel and a relay can keep."""

import math
from dataclasses import dataclass

from melisma.errors import ConfigError
from melisma.testbed.links import ETHERNET, WIFI, Link

LEAST_CPU = 0.01  #: a millisecond in 100; the kernel grants none below one in 1,000
LEAST_BPS = 1_000.0
LEAST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What a place is limited to; ConfigError if no kernel could keep the limit."""

    name: str
    cpu: float | None = None  #: cores' worth of CPU time; None is no limit
    up_bps: float | None = None  #: to the orchestrator, bits/s; None is no limit
    down_bps: float | None = None  #: from the orchestrator, bits/s; None is no limit
    #: What the way to the orchestrator is like; None: a cable at these rates, no more.
    link: Link | None = None
    memory_bytes: int | None = None  #: of all its processes; None is no limit

    def __post_init__(self) -> None:
        for what, value, least, unit in (
            ("cpu", self.cpu, LEAST_CPU, "cores"),
            ("up_bps", self.up_bps, LEAST_BPS, "bit/s"),
            ("down_bps", self.down_bps, LEAST_BPS, "bit/s"),
            ("memory_bytes", self.memory_bytes, LEAST_BYTES, "bytes"),
        ):
            if value is not None and not least <= value < math.inf:
                raise ConfigError(
                    f"device {self.name!r} has {what} = {value}: give at least "
                    f"{least:g} {unit}, or nothing for no limit"
                )


#: The devices of Mays's thesis (Table 3.1). It prints clocks, cores and networks, but
#: no speed of a single device; where each number comes from is said beside it.
#:
#: CPU: c / 100, where c is the device's training rate in shards/s (500 MNIST samples,
#: one pass of TwoNN), because an ordinary core trains about 100 (111 in the plain loop
#: of docs/simulator.md). Network: one rate both ways, as in the thesis's eqs. 3.1 and
#: 3.3; a shard is 500 · 784 · 4 B = 12.5 Mbit. Links and memory: Table 3.1.
DEVICES: dict[str, Device] = {
    device.name: device
    for device in (
        # 1.4 GHz, 512 MB, WiFi: a Pi 3 A+. Calibrated, not measured: with c 20 and b 2
        # shards/s for Pi1, 30 and 3.5 for Pi2, 25 and 3 for Pi3, and c 60 for the Nano,
        # two devices take fewer than the 120 shards and four take more, as the thesis
        # explains its results. Pi2 : Pi3 is also the ratio of their clocks.
        Device(
            name="pi1",
            cpu=0.20,
            up_bps=25e6,
            down_bps=25e6,
            link=WIFI,
            memory_bytes=512 << 20,
        ),
        # 1.8 GHz, 4 GB, WiFi: a later Pi 4 B. Calibrated, see pi1.
        Device(
            name="pi2",
            cpu=0.30,
            up_bps=44e6,
            down_bps=44e6,
            link=WIFI,
            memory_bytes=4 << 30,
        ),
        # 1.5 GHz, 4 GB, WiFi: a Pi 4 B. Calibrated, see pi1.
        Device(
            name="pi3",
            cpu=0.25,
            up_bps=38e6,
            down_bps=38e6,
            link=WIFI,
            memory_bytes=4 << 30,
        ),
        # 128 GPU cores of 920 MHz, Ethernet. CPU calibrated, see pi1. Network measured,
        # on the ten Nanos of chapter 4: the author's stored benchmarks have 0.13 s for
        # a shard, and 12.5 Mbit / 0.13 s is far below the port's gigabit.
        Device(
            name="jetson-nano",
            cpu=0.60,
            up_bps=96e6,
            down_bps=96e6,
            link=ETHERNET,
            memory_bytes=2 << 30,
        ),
        # 128 cores of 1200 MHz, WiFi. Assumed: the Nano's rate times 1200 / 920, for as
        # many cores; twice the best Pi's WiFi, for two antennas.
        Device(
            name="ideapad",
            cpu=0.78,
            up_bps=88e6,
            down_bps=88e6,
            link=WIFI,
            memory_bytes=8 << 30,
        ),
        # 2560 GPU cores of 1605 MHz, Ethernet. Assumed: whatever this machine can do,
        # since no quota makes it faster; a gigabit port.
        Device(
            name="2070-super",
            cpu=None,
            up_bps=1e9,
            down_bps=1e9,
            link=ETHERNET,
            memory_bytes=8 << 30,
        ),
    )
}
