"""Places are as slow as their devices, and reach the orchestrator alone.

Most of these make real namespaces, links and cgroups, and are skipped where this
machine or user may not.
"""

import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import TypeVar

import pytest
from tests.testbed.places import LACK, PLAIN, PYTHON, SEND, real, run

from melisma.errors import ConfigError
from melisma.testbed import LINKS, Device, Link, Place, Testbed, network
from melisma.testbed.cgroups import Cgroups

#: Connects to argv[1:3], takes all that comes and says how fast it came.
TAKE = """
import socket, sys, time
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 10) as link:
    size, began = len(link.recv(1 << 16)), time.monotonic()
    first = size
    while chunk := link.recv(1 << 16):
        size += len(chunk)
print(8 * (size - first) / (time.monotonic() - began))
"""


def down_bps(testbed: Testbed, place: Place, size: int) -> float:
    """Bits/s that arrive at a place, by its own clock."""
    with closing(socket.create_server((testbed.address, 0))) as server:
        server.settimeout(30)

        def feed() -> None:
            link, _ = server.accept()
            with link:
                link.sendall(bytes(size))

        feeder = threading.Thread(target=feed)
        feeder.start()
        _, printed = run(place, TAKE, testbed.address, server.getsockname()[1])
        feeder.join()
    return float(printed)


def up_bps(testbed: Testbed, place: Place, size: int) -> float:
    """Bits/s that arrive from a place."""
    with closing(socket.create_server((testbed.address, 0))) as server:
        server.settimeout(30)
        port = server.getsockname()[1]
        sender = place.popen([*PYTHON, SEND, testbed.address, str(port), str(size)])
        link, _ = server.accept()
        with link:
            first, began = len(link.recv(1 << 16)), time.monotonic()
            rest = 0
            while chunk := link.recv(1 << 16):
                rest += len(chunk)
            took_s = time.monotonic() - began
        sender.wait()
    assert first + rest == size
    return 8 * rest / took_s


T = TypeVar("T")


def measured(measure: Callable[[], T], right: Callable[[T], bool]) -> T:
    """Measure again while it is not right, for a minute: a machine may be busy."""
    until = time.monotonic() + 60
    while not right(found := measure()) and time.monotonic() < until:
        pass
    return found


def check(rate_bps: Callable[[], float], expected: float) -> None:
    right = pytest.approx(expected, rel=0.25)
    assert measured(rate_bps, lambda found: found == right) == right


@pytest.mark.slow
@real
def test_data_flows_at_the_devices_rates(testbed: Testbed) -> None:
    # About half a second each. Of 1514 bytes on the link 1448 are ours (96 %).
    slow = testbed.place(Device(name="slow", down_bps=8e6, up_bps=4e6), "slow")
    fast = testbed.place(Device(name="fast", down_bps=40e6, up_bps=20e6), "fast")
    check(lambda: down_bps(testbed, slow, 500_000), 8e6)
    check(lambda: up_bps(testbed, slow, 250_000), 4e6)
    check(lambda: down_bps(testbed, fast, 2_500_000), 40e6)
    check(lambda: up_bps(testbed, fast, 1_250_000), 20e6)


@real
def test_a_small_transfer_after_a_pause_is_not_for_free(testbed: Testbed) -> None:
    # 170 kB, a TwoNN: the first two frames may pass at once, no whole segments.
    place = testbed.place(Device(name="slow", down_bps=2e6), "slow")
    check(lambda: down_bps(testbed, place, 170_000), 2e6)


#: Like TAKE, from before the connection, which costs a round trip.
WHOLE = TAKE.replace("with", "whole = time.monotonic()\nwith", 1).replace(
    "print(8 * (size - first) / (time.monotonic() - began))",
    "print(time.monotonic() - whole)",
)


@real
def test_a_link_makes_data_late_and_slow(testbed: Testbed) -> None:
    far = Link(name="far", latency_s=0.1)
    device = Device(name="far", down_bps=8e6, up_bps=8e6, link=far)
    place = testbed.place(device, "far")
    with closing(socket.create_server((testbed.address, 0))) as server:
        server.settimeout(30)
        port = server.getsockname()[1]
        place.open(port)

        def feed() -> None:
            link, _ = server.accept()
            with link:
                link.sendall(bytes(300_000))

        def took_s() -> float:
            feeder = threading.Thread(target=feed)
            feeder.start()
            _, printed = run(place, WHOLE, testbed.address, port)
            feeder.join()
            return float(printed)

        found = measured(took_s, lambda found: 1.0 < found < 1.6)
    # A round trip to connect, 21 first windows in windows that double, which takes 4
    # more, half a one to arrive, and the last window's 80 ms at 8 Mbit/s.
    assert 1.0 < found < 1.6


@real
def test_a_place_with_a_link_reaches_the_ports_that_are_open(testbed: Testbed) -> None:
    place = testbed.place(Device(name="far", link=LINKS["ethernet"]), "far")
    with (
        closing(socket.create_server((testbed.address, 0))) as server,
        closing(socket.create_server((testbed.address, 0))) as closed,
    ):
        port = server.getsockname()[1]
        place.open(port)
        assert run(place, SEND, testbed.address, port, 1) == (0, "")
        code, printed = run(place, SEND, testbed.address, closed.getsockname()[1], 1)
        assert code == 1
        assert "Connection refused" in printed
        with pytest.raises(ConfigError, match=f"'far' cannot open port {port}: .*once"):
            place.open(port)


@real
@pytest.mark.skipif(
    not LACK and Cgroups.find().memory is None,  # type: ignore[union-attr]
    reason="the kernel has no memory controller",
)
def test_a_process_that_takes_more_memory_than_its_device_has_is_killed(
    testbed: Testbed,
) -> None:
    place = testbed.place(Device(name="small", memory_bytes=64 << 20), "small")
    fill = "import sys; kept = bytearray(b'1' * (int(sys.argv[1]) << 20)); print(1)"
    assert run(place, fill, 8) == (0, "1\n")
    assert run(place, fill, 200) == (-signal.SIGKILL, "")


@real
def test_learners_reach_the_orchestrator_and_nobody_else(testbed: Testbed) -> None:
    one, two = (testbed.place(PLAIN, name) for name in ("one", "two"))
    with closing(socket.create_server(("0.0.0.0", 0))) as server:
        port = server.getsockname()[1]
        assert run(one, SEND, testbed.address, port, 1) == (0, "")
        assert run(two, SEND, testbed.address, port, 1) == (0, "")
        # The last is a documentation address: a default route would lead there.
        for stranger in (two.address, "192.0.2.1"):
            code, printed = run(one, SEND, stranger, port, 1)
            assert code == 1
            assert "Network is unreachable" in printed


@real
@pytest.mark.slow  # the kernel looks for the neighbour for three seconds
def test_a_route_of_its_own_does_not_lead_a_learner_to_another(
    testbed: Testbed,
) -> None:
    one, two = (testbed.place(PLAIN, name) for name in ("one", "two"))
    network.ip("-n", one.label, "route", "add", two.address, "dev", "eth0")
    network.ip("-n", two.label, "route", "add", one.address, "dev", "eth0")
    # Without isolation they would find each other, and the connection be refused.
    code, printed = run(one, SEND, two.address, 9, 1)
    assert code == 1
    assert re.search("No route to host|timed out", printed)


@pytest.mark.slow
@real
def test_a_place_uses_no_more_cpu_than_its_quota(testbed: Testbed) -> None:
    place = testbed.place(Device(name="quarter", cpu=0.25), "quarter")
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    began = time.monotonic()
    for process in [place.popen([*PYTHON, burn]) for _ in range(2)]:
        process.wait()
    used_s, elapsed_s = place.cpu_s(), time.monotonic() - began
    # Both were in it and had work enough; the two accounts of CPU time differ a bit.
    assert used_s > 0.35
    # A period and the kernel's tick at either end.
    assert used_s <= 0.25 * (elapsed_s + 2 * 0.01)


@pytest.mark.slow
@real
def test_short_work_is_as_slow_as_its_device(testbed: Testbed) -> None:
    # 20 ms of work at a quarter take 80 ms. Over periods of 100 ms it would be done
    # within the first quarter of one, or wait for the next.
    place = testbed.place(Device(name="quarter", cpu=0.25), "quarter")
    work = """
import time
while time.process_time() < 0.5: pass
times = []
for _ in range(9):
    began, done = time.monotonic(), time.process_time() + 0.02
    while time.process_time() < done: pass
    times.append(time.monotonic() - began)
print(*sorted(times))
"""

    def times() -> list[float]:
        return [float(word) for word in run(place, work)[1].split()]

    found = measured(times, lambda found: found[4] < 0.12)
    assert found[0] > 0.055
    assert found[4] < 0.12


def quota(place: Place) -> str:
    """What the kernel says of a place's quota, in microseconds in 5,000."""
    unified = place._cgroups.unified
    file = "cpu.max" if unified else "cpu.cfs_quota_us"
    said = (place._cgroups.roots[0] / place.label / file).read_text().split()
    assert said[1:] == (["5000"] if unified else [])
    return said[0]


@real
def test_the_quota_is_in_the_kernels_file(testbed: Testbed) -> None:
    place = testbed.place(Device(name="quarter", cpu=0.25), "quarter")
    free = testbed.place(PLAIN, "free")
    assert (quota(place), quota(free) in ("max", "-1")) == ("1250", True)


@real
def test_the_quota_is_lifted_for_a_while_and_comes_back(testbed: Testbed) -> None:
    place = testbed.place(Device(name="quarter", cpu=0.25), "quarter")
    with place.full_speed():
        assert quota(place) in ("max", "-1")
    assert quota(place) == "1250"


@real
def test_a_command_in_a_place_keeps_its_process_id(testbed: Testbed) -> None:
    place = testbed.place(PLAIN, "one")
    command = place.command([*PYTHON, "import os; print(os.getpid())"])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.communicate()[0] == f"{process.pid}\n"


@real
def test_testbeds_side_by_side_do_not_meet(testbed: Testbed) -> None:
    one = testbed.place(PLAIN, "one")
    with Testbed() as other:
        two = other.place(PLAIN, "one")
        assert other.address != testbed.address
        with closing(socket.create_server(("0.0.0.0", 0))) as server:
            port = server.getsockname()[1]
            assert run(two, SEND, other.address, port, 1) == (0, "")
            assert run(two, SEND, testbed.address, port, 1)[0] == 1
    with closing(socket.create_server((testbed.address, 0))) as server:
        port = server.getsockname()[1]
        assert run(one, SEND, testbed.address, port, 1) == (0, "")


@real
def test_a_network_is_claimed_once() -> None:
    (one, mine), (two, other) = network.claim_network(), network.claim_network()
    with one, two:
        assert mine != other


@real
def test_networks_that_the_host_has_are_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A private network of the host, and a way out that is as wide as they come.
    routes = '[{"dst": "default"}, {"dst": "10.0.0.0/8"}, {"dst": "10.77.0.0/17"}]'
    monkeypatch.setattr(network, "ip", lambda *_: routes)
    claim, free = network.claim_network()
    with claim:
        assert int(str(free).split(".")[2]) >= 128


@real
def test_two_learners_of_one_name_are_named(testbed: Testbed) -> None:
    testbed.place(PLAIN, "one")
    with pytest.raises(ConfigError, match="two learners are called 'one'"):
        testbed.place(PLAIN, "one")


@real
def test_what_the_kernel_refuses_is_said(testbed: Testbed) -> None:
    with pytest.raises(ConfigError, match=r"`ip link add nowhere type .*` failed: "):
        network.ip("link", "add", "nowhere", "type", "no-such-type")


def test_without_root_it_says_so_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    says = r"needs root \(this is user 1000\); the local fleet .* throttle themselves"
    with pytest.raises(ConfigError, match=says), Testbed():
        pass
    with pytest.raises(ConfigError, match=says):
        Testbed.sweep()


@real
@pytest.mark.parametrize("tool", ["ip", "tc"])
def test_without_its_tools_it_says_so(
    monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    there = network.tool
    monkeypatch.setattr(network, "tool", lambda n: "" if n == tool else there(n))
    with pytest.raises(ConfigError, match=rf"needs `{tool}` \(install iproute2\)"):
        Testbed.sweep()


@real
def test_without_cgroups_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cgroups, "find", lambda: None)
    with pytest.raises(ConfigError, match="needs a writable cgroup hierarchy"):
        Testbed.sweep()
