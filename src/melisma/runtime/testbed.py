"""Unlike devices, emulated on one machine: real sockets, real training, real limits.

A testbed is a bridge that carries the orchestrator's address. A place is a network
namespace and a cgroup for one learner: a cable (veth) to the bridge with a token bucket
at either end, no route but to the orchestrator, and a quota of CPU time. Any command
can be started in a place.

Every link, namespace and cgroup has a name that says whose it is, so that what a killed
owner left is found without any record of it:

    mel 000ka 1x3w 0 02
     │    │    │   │  └─ which place; not there for the bridge
     │    │    │   └──── which testbed of its owner
     │    │    └──────── when the owner started: clock ticks, the last four digits
     │    └───────────── the owner's process id
     └────────────────── ours                             (numbers are in base 36)
"""

import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path
from types import FrameType
from typing import Any, Self

import numpy as np

from melisma.errors import ConfigError, MelismaError
from melisma.runtime.cgroups import Cgroups
from melisma.runtime.devices import Device

BURST_S = 0.004  #: tokens a bucket holds: one tick of most kernels (250 Hz)
QUEUE_S = 0.05  #: what may wait for tokens before packets are dropped
FRAME = 1514  #: bytes: the longest Ethernet frame
SEGMENT = 65_536  #: bytes a socket hands down at once; the bucket cuts it into frames


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
    label: str  #: of its namespace, cable and cgroup
    _cgroups: Cgroups
    _started: list[subprocess.Popen[Any]] = field(repr=False)

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return the command that runs ``argv`` here, under the same process id."""
        inside = [_tool("ip"), "netns", "exec", self.label, *argv]
        outside = [sys.executable, "-I", "-S", "-c", _ENTER]
        return [*outside, *self._cgroups.entrances(self.label), "--", *inside]

    def popen(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start ``argv`` here, with the options of subprocess.Popen.

        It is killed and waited for when the testbed ends.
        """
        process = subprocess.Popen(self.command(argv), **options)
        self._started.append(process)
        return process

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
        self._label = _owner_label() + _digits(next(self._numbers), 1)
        self._hosts = itertools.count(2)
        self._started: list[subprocess.Popen[Any]] = []
        self._exits = contextlib.ExitStack()
        try:
            self._exits.enter_context(_exit_on_signals())
            self.sweep()
            claim, self._network = _free_network()
            self._exits.enter_context(claim)
            self._exits.callback(self._remove)
            self._make_bridge()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # A fork of the owner that leaves its copy of the block owns nothing.
        if os.getpid() == self._owner:
            self._exits.close()

    def _remove(self) -> None:
        with _undisturbed():
            for process in self._started:
                process.kill()
            names = _names(self._cgroups)
            _remove({n for n in names if n.startswith(self._label)}, self._cgroups)
            for process in self._started:
                process.wait()

    def _make_bridge(self) -> None:
        self.address = str(self._network[1])
        bridge = self._label
        # An address of its own, or it takes the lowest of its cables', a new one with
        # some new cables, and learners that know the old one are not heard.
        mac = bytes((2, 0, *self._network[1].packed)).hex(":")
        _ip("link", "add", bridge, "address", mac, "type", "bridge")
        _ip("link", "set", bridge, "alias", f"melisma {self.name}")
        _no_ipv6(bridge)
        _ip("address", "add", f"{self.address}/24", "dev", bridge)
        _ip("link", "set", bridge, "up")

    def place(self, device: Device, name: str) -> Place:
        """Make a place like ``device``; ConfigError if the name is taken, or all are.

        There is room for 253.
        """
        if name in self.places:
            raise ConfigError(f"two learners are called {name!r}: rename one")
        host = next(self._hosts)
        if host > 254:
            raise ConfigError("a testbed has room for 253 learners: no more fit")
        label, address = self._label + _digits(host, 2), str(self._network[host])
        self._cgroups.make(label, device.cpu)
        self._lay_cable(label, address, name)
        for rate_bps, namespace, end in (
            (device.down_bps, (), label),
            (device.up_bps, ("-n", label), "eth0"),
        ):
            if rate_bps is not None:
                _tc(*namespace, "qdisc", "add", "dev", end, "root", *bucket(rate_bps))
        self.places[name] = Place(
            name=name,
            device=device,
            address=address,
            label=label,
            _cgroups=self._cgroups,
            _started=self._started,
        )
        return self.places[name]

    def _lay_cable(self, label: str, address: str, name: str) -> None:
        inside = ("-n", label)
        _ip("netns", "add", label)
        _ip("link", "add", label, "type", "veth", "peer", "eth0", "netns", label)
        _ip("link", "set", label, "alias", f"melisma {self.name}: {name}")
        _no_ipv6(label)
        _no_ipv6("eth0", *inside)
        _ip("link", "set", label, "master", self._label)
        _ip("link", "set", label, "type", "bridge_slave", "isolated", "on")
        _ip("link", "set", label, "up")
        _ip(*inside, "link", "set", "lo", "up")
        _ip(*inside, "address", "add", f"{address}/32", "dev", "eth0")
        _ip(*inside, "link", "set", "eth0", "up")
        _ip(*inside, "route", "add", self.address, "dev", "eth0")

    @staticmethod
    def sweep() -> list[str]:
        """Remove what killed owners left, kill what still runs in it; return its names.

        ConfigError if this machine or user cannot do it.
        """
        cgroups = _needed()
        left = {name for name in _names(cgroups) if not _is_owned(name)}
        _remove(left, cgroups)
        return sorted(left)


def bucket(rate_bps: float) -> list[str]:
    """Return tc's words for a token bucket of ``rate_bps``, headers included.

    It holds 4 ms of tokens, not one of the segments of 64 KiB that sockets hand down:
    the kernel cuts those into frames. A larger bucket would let the first part of every
    transfer pass at once, for small models the most of it.
    """
    burst = max(round(rate_bps * BURST_S / 8), 2 * FRAME)
    queue = max(round(rate_bps * QUEUE_S / 8), 2 * SEGMENT)
    return f"tbf rate {round(rate_bps)}bit burst {burst} limit {burst + queue}".split()


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
        if not _tool(tool):
            return f"`{tool}` (install iproute2)"
    if Cgroups.find() is None:
        return "a writable cgroup hierarchy with the cpu controller"
    return ""


def _needed() -> Cgroups:
    if lack := missing():
        raise ConfigError(
            f"a testbed needs {lack}; the local fleet needs nothing of the kind: its "
            "learners throttle themselves"
        )
    cgroups = Cgroups.find()
    assert cgroups is not None
    return cgroups


def _tool(name: str) -> str:
    # Not every user's PATH, nor every service's, has the administrator's folders.
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
    return shutil.which(name, path=path) or ""


def _ip(*words: str, check: bool = True) -> str:
    return _run([_tool("ip"), *words], check)


def _tc(*words: str) -> str:
    return _run([_tool("tc"), *words], True)


def _run(argv: Sequence[str], check: bool) -> str:
    # In a session of its own: Ctrl-C must not kill the tool that is cleaning up.
    done = subprocess.run(argv, capture_output=True, text=True, start_new_session=True)
    if check and done.returncode:
        raise ConfigError(
            f"`{Path(argv[0]).name} {' '.join(argv[1:])}` failed: "
            f"{done.stderr.strip() or done.returncode}; a testbed needs a kernel with "
            "network namespaces, veth, bridge and tbf"
        )
    return done.stdout


def _no_ipv6(link: str, *namespace: str) -> None:
    if Path("/proc/sys/net/ipv6").exists():
        _ip(*namespace, "link", "set", link, "addrgenmode", "none")


def _free_network() -> tuple[socket.socket, IPv4Network]:
    """Claim 10.77.x.0/24; it is ours while the socket is open.

    The kernel lets one process alone bind a name, and frees it however that one ends.
    """
    routes = json.loads(_ip("-j", "-4", "route", "show"))
    used = [IPv4Network(r["dst"]) for r in routes if r["dst"] != "default"]
    for x in range(1, 255):
        network = IPv4Network(f"10.77.{x}.0/24")
        # A route as wide as 10.0.0.0/8 is a way out, not a neighbour.
        if any(other.prefixlen > 8 and network.overlaps(other) for other in used):
            continue
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0melisma testbed {network}")
        except OSError:
            claim.close()
        else:
            return claim, network
    raise ConfigError("no 10.77.x.0/24 is free: end other testbeds, or their routes")


_NAME = re.compile("mel([0-9a-z]{5})([0-9a-z]{4})[0-9a-z]([0-9a-z]{2})?")


def _digits(number: int, width: int) -> str:
    """Return the last ``width`` digits of a number in base 36.

    >>> _digits(35, 2), _digits(36**2 + 1, 2)
    ('0z', '01')
    """
    return np.base_repr(number % 36**width, 36).lower().zfill(width)


def _owner_label() -> str:
    return f"mel{_digits(os.getpid(), 5)}{_started(os.getpid())}"


def _started(pid: int) -> str | None:
    """When a process started, as in names; None if it no longer runs."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in brackets, and may hold anything.
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in ("Z", "X") else _digits(int(fields[18]), 4)


def _is_owned(name: str) -> bool:
    """Whether the process that made this still runs: the same, not just its number."""
    parts = _NAME.fullmatch(name)
    return parts is not None and _started(int(parts[1], 36)) == parts[2]


def _names(cgroups: Cgroups) -> set[str]:
    """Everything of a testbed that is there, of whatever owner."""
    links = {name for _, name in socket.if_nameindex()}
    spaces = {line.split()[0] for line in _ip("netns", "list").splitlines()}
    return {n for n in links | spaces | cgroups.names() if _NAME.fullmatch(n)}


def _remove(names: Collection[str], cgroups: Cgroups) -> None:
    """Kill what runs in places and take them away; MelismaError if they stay.

    The kernel ends processes and namespaces by and by, so this goes round until all is
    gone, for ten seconds at least.
    """
    for _ in range(1000):
        left = _names(cgroups).intersection(names)
        if not left:
            return
        for name in left:
            cgroups.unleash(name)
            pids = _ip("netns", "pids", name, check=False).split()
            _kill(cgroups.processes(name).union(map(int, pids)))
            cgroups.remove(name)
            _ip("link", "delete", name, check=False)
            _ip("netns", "delete", name, check=False)
        time.sleep(0.01)
    raise MelismaError(f"cannot remove {', '.join(left)}: see `ip link` and `ip netns`")


def _kill(pids: Collection[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Turn signals that would end the process at once into SystemExit."""

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    unhandled = [s for s in _ENDING if signal.getsignal(s) is signal.SIG_DFL]
    if not _in_main_thread():
        unhandled = []
    for number in unhandled:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in unhandled:
            if signal.getsignal(number) is leave:
                signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Put such signals off to the end of the block."""
    late: list[int] = []
    before = {s: signal.getsignal(s) for s in _ENDING if _in_main_thread()}
    for number, handler in before.items():
        if handler is not None:  # else it is not Python's to put back
            signal.signal(number, lambda number, _: late.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)
        for put_off in late:
            signal.raise_signal(put_off)
