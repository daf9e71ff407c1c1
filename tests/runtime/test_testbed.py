"""Places that are as slow as devices, and gone when their testbed is.

Most of these make real namespaces, cables and cgroups, and are skipped where this
machine or user may not.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from melisma.errors import ConfigError
from melisma.runtime import testbed as module
from melisma.runtime.cgroups import Cgroups
from melisma.runtime.devices import DEVICES, Device
from melisma.runtime.testbed import Place, Testbed, bucket

LACK = module.missing()
real = pytest.mark.skipif(bool(LACK), reason=f"a testbed needs {LACK}")
PAGE = Path(__file__).parents[2] / "docs" / "testbed.md"

PLAIN = Device(name="plain")
PYTHON = [sys.executable, "-I", "-S", "-c"]
#: Connects to argv[1:3], then sends argv[3] bytes, or takes all and says how fast.
SEND = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 10) as link:
    link.sendall(bytes(int(sys.argv[3])))
"""
TAKE = """
import socket, sys, time
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 10) as link:
    size, began = len(link.recv(1 << 16)), time.monotonic()
    first = size
    while chunk := link.recv(1 << 16):
        size += len(chunk)
print(8 * (size - first) / (time.monotonic() - began))
"""


@pytest.fixture
def testbed() -> Iterator[Testbed]:
    with Testbed("test") as testbed:
        yield testbed


def things(label: str) -> set[str]:
    """Links, namespaces and cgroups whose names begin so."""
    cgroups = Cgroups.find()
    assert cgroups is not None
    return {name for name in module._names(cgroups) if name.startswith(label)}


def run(place: Place, code: str, *arguments: object) -> tuple[int, str]:
    process = place.popen(
        [*PYTHON, code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    printed, _ = process.communicate(timeout=60)
    return process.returncode, printed


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


@real
def test_data_flows_at_the_devices_rates(testbed: Testbed) -> None:
    # About half a second each. Of 1514 bytes on the cable 1448 are ours (96 %).
    slow = testbed.place(Device(name="slow", down_bps=8e6, up_bps=4e6), "slow")
    fast = testbed.place(Device(name="fast", down_bps=40e6, up_bps=20e6), "fast")
    assert down_bps(testbed, slow, 500_000) == pytest.approx(8e6, rel=0.25)
    assert up_bps(testbed, slow, 250_000) == pytest.approx(4e6, rel=0.25)
    assert down_bps(testbed, fast, 2_500_000) == pytest.approx(40e6, rel=0.25)
    assert up_bps(testbed, fast, 1_250_000) == pytest.approx(20e6, rel=0.25)


@real
def test_a_small_transfer_after_a_pause_is_not_for_free(testbed: Testbed) -> None:
    # 170 kB, a TwoNN: the first two frames may pass at once, no whole segments.
    place = testbed.place(Device(name="slow", down_bps=2e6), "slow")
    assert down_bps(testbed, place, 170_000) == pytest.approx(2e6, rel=0.25)


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
    module._ip("-n", one.label, "route", "add", two.address, "dev", "eth0")
    module._ip("-n", two.label, "route", "add", one.address, "dev", "eth0")
    # Without isolation they would find each other, and the connection be refused.
    code, printed = run(one, SEND, two.address, 9, 1)
    assert code == 1
    assert re.search("No route to host|timed out", printed)


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
    assert used_s <= 0.25 * (elapsed_s + 2 * 0.1)  # a period at either end


def quota(place: Place) -> str:
    """What the kernel says of a place's quota, in microseconds in 100,000."""
    unified = place._cgroups.unified
    file = "cpu.max" if unified else "cpu.cfs_quota_us"
    said = (place._cgroups.roots[0] / place.label / file).read_text().split()
    assert said[1:] == (["100000"] if unified else [])
    return said[0]


@real
def test_the_quota_is_in_the_kernels_file(testbed: Testbed) -> None:
    place = testbed.place(Device(name="quarter", cpu=0.25), "quarter")
    free = testbed.place(PLAIN, "free")
    assert (quota(place), quota(free) in ("max", "-1")) == ("25000", True)


@real
def test_the_quota_is_lifted_for_a_while_and_comes_back(testbed: Testbed) -> None:
    place = testbed.place(Device(name="quarter", cpu=0.25), "quarter")
    with place.full_speed():
        assert quota(place) in ("max", "-1")
    assert quota(place) == "25000"


@real
def test_a_command_in_a_place_keeps_its_process_id(testbed: Testbed) -> None:
    place = testbed.place(PLAIN, "one")
    command = place.command([*PYTHON, "import os; print(os.getpid())"])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.communicate()[0] == f"{process.pid}\n"


@real
def test_everything_is_gone_afterwards() -> None:
    with Testbed() as testbed:
        place = testbed.place(DEVICES["pi1"], "one")
        label = testbed._label
        sleeper = place.popen(["sleep", "1000"])
        assert things(label) == {label, place.label}
    assert things(label) == set()
    assert sleeper.returncode == -signal.SIGKILL


@real
def test_everything_is_gone_after_an_exception() -> None:
    testbed = Testbed()

    def fail() -> None:
        with testbed:
            testbed.place(DEVICES["pi1"], "one").popen(["sleep", "1000"])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert things(testbed._label) == set()


@real
def test_everything_is_gone_after_a_setup_that_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    labels = []

    def full(testbed: Testbed) -> None:
        module._ip("link", "add", testbed._label, "type", "bridge")
        labels.append(testbed._label)
        raise OSError("no space")

    monkeypatch.setattr(Testbed, "_make_bridge", full)
    with pytest.raises(OSError, match="no space"), Testbed():
        pass
    assert things(labels[0]) == set()


#: Owns a place with a busy process that has left its parent, and waits.
OWNER = """
import signal, sys
from melisma.runtime.devices import Device
from melisma.runtime.testbed import Testbed
signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever the tests' parent
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # had ignored
with Testbed() as testbed:
    place = testbed.place(Device(name="tiny", cpu=0.01), "one")
    place.popen(["setsid", "-f", sys.executable, "-c", "while True: pass"]).wait()
    print(testbed._label, flush=True)
    input()
"""


@pytest.fixture
def owner() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        yield process
        process.kill()
    Testbed.sweep()


def its_label(owner: subprocess.Popen[str]) -> str:
    assert owner.stdout is not None
    return owner.stdout.readline().strip()


@real
@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGTERM, 128 + signal.SIGTERM),
        (signal.SIGHUP, 128 + signal.SIGHUP),
        (signal.SIGINT, -signal.SIGINT),
    ],
)
def test_a_signal_to_the_owner_takes_everything_away(
    owner: subprocess.Popen[str], number: signal.Signals, code: int
) -> None:
    label = its_label(owner)
    assert len(things(label)) == 2
    owner.send_signal(number)
    assert owner.wait(timeout=60) == code
    assert things(label) == set()


def test_a_signal_waits_for_the_end_of_the_clean_up() -> None:
    events = []
    before = signal.signal(signal.SIGINT, lambda *_: events.append("signal"))
    with module._undisturbed():
        signal.raise_signal(signal.SIGINT)
        events.append("all gone")
    signal.signal(signal.SIGINT, before)
    assert events == ["all gone", "signal"]


@real
def test_what_a_killed_owner_left_is_swept_and_killed(
    owner: subprocess.Popen[str],
) -> None:
    label = its_label(owner)
    (place,) = things(label) - {label}
    cgroups = Cgroups.find()
    assert cgroups is not None
    (orphan,) = cgroups.processes(place)
    owner.kill()
    owner.wait()
    Testbed.sweep()
    assert things(label) == set()
    assert module._started(orphan) is None


@real
def test_the_next_testbed_sweeps_what_a_killed_one_left(
    owner: subprocess.Popen[str],
) -> None:
    label = its_label(owner)
    owner.kill()
    owner.wait()
    with Testbed() as testbed:
        assert things(label) == set()
        assert things(testbed._label) == {testbed._label}


@real
def test_a_sweep_spares_owners_that_are_alive(
    testbed: Testbed, owner: subprocess.Popen[str]
) -> None:
    testbed.place(PLAIN, "one")
    labels = testbed._label, its_label(owner)
    Testbed.sweep()
    assert [len(things(label)) for label in labels] == [2, 2]


@real
def test_a_process_with_the_owners_number_is_not_the_owner() -> None:
    pid, started = module._owner_label()[3:8], module._owner_label()[8:]
    other = module._digits(int(started, 36) + 1, 4)
    module._ip("netns", "add", f"mel{pid}{other}0")
    Testbed.sweep()
    assert things(f"mel{pid}{other}0") == set()


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
    (one, network), (two, other) = module._free_network(), module._free_network()
    with one, two:
        assert network != other


@real
def test_networks_that_the_host_has_are_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A private network of the host, and a way out that is as wide as they come.
    routes = '[{"dst": "default"}, {"dst": "10.0.0.0/8"}, {"dst": "10.77.0.0/17"}]'
    monkeypatch.setattr(module, "_ip", lambda *_: routes)
    claim, network = module._free_network()
    with claim:
        assert int(str(network).split(".")[2]) >= 128


@real
def test_a_fork_of_the_owner_takes_nothing_away(testbed: Testbed) -> None:
    testbed.place(PLAIN, "one")
    owner, testbed._owner = testbed._owner, -1  # what a fork sees: another's number
    testbed.__exit__()
    assert len(things(testbed._label)) == 2
    testbed._owner = owner


@real
def test_two_learners_of_one_name_are_named(testbed: Testbed) -> None:
    testbed.place(PLAIN, "one")
    with pytest.raises(ConfigError, match="two learners are called 'one'"):
        testbed.place(PLAIN, "one")


@real
def test_what_the_kernel_refuses_is_said(testbed: Testbed) -> None:
    with pytest.raises(ConfigError, match=r"`ip link add nowhere type .*` failed: "):
        module._ip("link", "add", "nowhere", "type", "no-such-type")


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"cpu": 0.0}, r"'odd' has cpu = 0.0: give at least 0.01 cores"),
        ({"cpu": -1.0}, "cpu = -1.0"),
        ({"cpu": float("nan")}, "cpu = nan"),
        ({"up_bps": 0.0}, r"up_bps = 0.0: give at least 1000 bit/s, or nothing"),
        ({"down_bps": float("inf")}, "down_bps = inf"),
    ],
)
def test_an_impossible_limit_is_named(limits: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Device(name="odd", **limits)


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
    there = module._tool
    monkeypatch.setattr(module, "_tool", lambda n: "" if n == tool else there(n))
    with pytest.raises(ConfigError, match=rf"needs `{tool}` \(install iproute2\)"):
        Testbed.sweep()


@real
def test_without_cgroups_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cgroups, "find", lambda: None)
    with pytest.raises(ConfigError, match="needs a writable cgroup hierarchy"):
        Testbed.sweep()


def test_quotas_are_written_as_either_version_reads_them(tmp_path: Path) -> None:
    v1, v2 = tmp_path / "v1", tmp_path / "v2"
    v1.mkdir()
    v2.mkdir()
    Cgroups((v1,), unified=False).make("pi", 0.25)
    Cgroups((v2,), unified=True).make("pi", 0.25)
    Cgroups((v2,), unified=True).make("free", None)
    assert (v1 / "pi" / "cpu.cfs_quota_us").read_text() == "25000"
    assert (v2 / "pi" / "cpu.max").read_text() == "25000 100000"
    assert (v2 / "free" / "cpu.max").read_text() == "max 100000"


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


def test_names_fit_an_interface_and_tell_the_owner() -> None:
    name = module._owner_label() + module._digits(35, 1) + module._digits(254, 2)
    assert len(name) == 15  # as much as Linux takes
    assert module._is_owned(name)
    assert not module._is_owned("eth0")


def test_the_page_shows_the_devices() -> None:
    def megabits(rate_bps: float | None) -> str:
        return "no limit" if rate_bps is None else f"{rate_bps / 1e6:,.0f}"

    rows = [
        f"| `{device.name}` | {'no limit' if device.cpu is None else device.cpu} "
        f"| {megabits(device.down_bps)} | {megabits(device.up_bps)} |"
        for device in DEVICES.values()
    ]
    shown = re.findall(r"^(\| `.*?\|.*?\|.*?\|.*?\|)", PAGE.read_text("utf-8"), re.M)
    assert shown == rows
