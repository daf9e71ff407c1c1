"""Unlike devices, emulated on one machine: real sockets, real training, real limits.

A testbed is a bridge that has the orchestrator's address. A place is a network
namespace and a cgroup for one learner: a link (veth) to the bridge with a token bucket
at either end, no route but to the orchestrator, a quota of CPU time and a limit of
memory. Any command can be started in a place.

A device that says what its link is like has a relay (``relay``) in place of the veth:
the orchestrator's address is then the place's own, and whoever connects to it there is
connected to the orchestrator over the link.
"""

import contextlib
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from melisma.errors import ConfigError, MelismaError
from melisma.testbed import network, ownership, relay, signals
from melisma.testbed.cgroups import Cgroups
from melisma.testbed.devices import Device

#: Runs in the place's first process: join the groups, then become ``ip netns exec``.
_ENTER = """
import os, sys
end = sys.argv.index("--")
for entrance in sys.argv[1:end]:
    with open(entrance, "w") as file:
        file.write("0")
os.execv(sys.argv[end + 1], sys.argv[end + 1 :])
"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Place:
    """Where one learner runs, as slow and as far away as its device."""

    name: str
    device: Device
    address: str  #: the learner's own; it reaches the orchestrator's alone
    orchestrator: str  #: the orchestrator's address
    label: str  #: of its namespace, link and cgroup
    _cgroups: Cgroups
    _started: list[subprocess.Popen[Any]] = field(repr=False)

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return the command that runs ``argv`` here, under the same process id."""
        inside = [network.tool("ip"), "netns", "exec", self.label, *argv]
        outside = [sys.executable, "-I", "-S", "-c", _ENTER]
        return [*outside, *self._cgroups.entrances(self.label), "--", *inside]

    def popen(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start ``argv`` here, with the options of subprocess.Popen.

        It is killed and waited for when the testbed ends.
        """
        process = subprocess.Popen(self.command(argv), **options)
        self._started.append(process)
        return process

    def open(self, port: int) -> None:
        """Make a port of the orchestrator reachable from here, over the device's link.

        A device without one reaches every port as it is. ConfigError if it is open.
        """
        device = self.device
        if device.link is None:
            return
        try:
            listener = network.listen(self.label, self.orchestrator, port)
        except OSError as error:
            raise ConfigError(
                f"{self.name!r} cannot open port {port}: {error}; open a port once"
            ) from error
        with listener:
            command = relay.command(
                listener,
                (self.orchestrator, port),
                device.link,
                up_bps=device.up_bps,
                down_bps=device.down_bps,
                seed=f"{self.name} {port}",
            )
            # Its standard input ends with this process, and the relay with that.
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[listener.fileno()],
            )
        self._started.append(process)
        assert process.stdout is not None
        with process.stdout as said:
            if not said.readline():
                raise MelismaError(
                    f"the relay of {self.name!r} ended: {process.wait()}"
                )

    @contextlib.contextmanager
    def full_speed(self) -> Iterator[None]:
        """Lift the CPU quota within the block: for imports, which devices do once."""
        self._cgroups.limit(self.label, None)
        try:
            yield
        finally:
            self._cgroups.limit(self.label, self.device.cpu)

    def cpu_s(self) -> float:
        """Seconds of CPU time used here so far."""
        return self._cgroups.used_s(self.label)


class Testbed:
    """Emulated devices around one orchestrator: this process, in its own network.

    with Testbed() as testbed:
        learner = testbed.place(DEVICES["pi1"], "pi1")
        learner.popen(["melisma", "join", testbed.address])

    Whatever ends the block, places and what runs in them end with it: an exception,
    SIGINT, and SIGTERM or SIGHUP where nobody else handles them (the main thread takes
    them as exits). Only SIGKILL leaves them, to the next testbed or to ``sweep``.

    ConfigError if this machine or user cannot do it.
    """

    __test__ = False  # or pytest takes it for a test

    _numbers = itertools.count()

    def __init__(self, name: str = "testbed") -> None:
        self.name = name
        self.address = ""  #: the orchestrator's, for learners; set within the block
        self.places: dict[str, Place] = {}

    def __enter__(self) -> Self:
        self._cgroups = _needed()
        self._owner = os.getpid()
        number = ownership.digits(next(self._numbers), 1)
        self._label = ownership.owner_label() + number
        self._hosts = itertools.count(2)
        self._started: list[subprocess.Popen[Any]] = []
        self._exits = contextlib.ExitStack()
        try:
            self._exits.enter_context(signals.exiting())
            self.sweep()
            claim, self._network = network.claim_network()
            self._exits.enter_context(claim)
            self._exits.callback(self._remove)
            self.address = str(self._network[1])
            network.add_bridge(self._label, self._network, f"melisma {self.name}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # A fork of the owner that leaves its copy of the block owns nothing.
        if os.getpid() == self._owner:
            self._exits.close()

    def _remove(self) -> None:
        with signals.deferred():
            for process in self._started:
                process.kill()
            names = ownership.names(self._cgroups)
            own = {name for name in names if name.startswith(self._label)}
            ownership.remove(own, self._cgroups)
            for process in self._started:
                process.wait()
                if process.stdin is not None:
                    with contextlib.suppress(OSError):  # there is nobody to flush to
                        process.stdin.close()

    def place(self, device: Device, name: str) -> Place:
        """Make a place like ``device``; ConfigError if the name is taken, or all are.

        There is room for 253.
        """
        if name in self.places:
            raise ConfigError(f"two learners are called {name!r}: rename one")
        host = next(self._hosts)
        if host > 254:
            raise ConfigError("a testbed has room for 253 learners: no more fit")
        label, address = self._label + ownership.digits(host, 2), self._network[host]
        self._cgroups.make(label, device.cpu, device.memory_bytes)
        alias = f"melisma {self.name}: {name}"
        network.add_namespace(label, str(address), self._label, self.address, alias)
        network.limit_rates(label, device.down_bps, device.up_bps)
        if device.link is not None:
            network.impersonate(label, self.address)
        self.places[name] = Place(
            name=name,
            device=device,
            address=str(address),
            orchestrator=self.address,
            label=label,
            _cgroups=self._cgroups,
            _started=self._started,
        )
        return self.places[name]

    @staticmethod
    def sweep() -> list[str]:
        """Remove what killed owners left, kill what still runs in it; return its names.

        ConfigError if this machine or user cannot do it.
        """
        cgroups = _needed()
        left = {n for n in ownership.names(cgroups) if not ownership.is_owned(n)}
        ownership.remove(left, cgroups)
        return sorted(left)


def missing() -> str:
    """Return what a testbed needs and is not here; empty if nothing."""
    if sys.platform != "linux":
        return f"Linux (this is {sys.platform})"
    if os.geteuid() != 0:
        return f"root (this is user {os.geteuid()})"
    status = Path("/proc/self/status").read_text()
    capable = int(re.findall(r"CapEff:\s*(\w+)", status)[0], 16)
    for capability, bit in (("CAP_NET_ADMIN", 12), ("CAP_SYS_ADMIN", 21)):
        if not capable >> bit & 1:
            return f"the capability {capability} (containers often lack it)"
    for tool in ("ip", "tc"):
        if not network.tool(tool):
            return f"`{tool}` (install iproute2)"
    if Cgroups.find() is None:
        return "a writable cgroup hierarchy with the cpu controller"
    return ""


def _needed() -> Cgroups:
    """Return where CPU quotas are kept; ConfigError if anything is missing."""
    if lack := missing():
        raise ConfigError(
            f"a testbed needs {lack}; the local fleet needs nothing of the kind: its "
            "learners throttle themselves"
        )
    cgroups = Cgroups.find()
    assert cgroups is not None
    return cgroups
