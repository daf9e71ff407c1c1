"""What a testbed made is gone when it ends, however that is.

Most of these make real namespaces, links and cgroups, and are skipped where this
machine or user may not.
"""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.testbed.places import PLAIN, real, things

from melisma.testbed import DEVICES, Testbed, network, ownership, signals
from melisma.testbed.cgroups import Cgroups


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
def test_relays_end_with_the_testbed() -> None:
    with Testbed() as testbed, socket.create_server((testbed.address, 0)) as server:
        testbed.place(DEVICES["pi1"], "one").open(server.getsockname()[1])
        (relay,) = testbed._started
        assert relay.poll() is None
    assert relay.returncode == -signal.SIGKILL


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

    def full(bridge: str, *_: object) -> None:
        network.ip("link", "add", bridge, "type", "bridge")
        labels.append(bridge)
        raise OSError("no space")

    monkeypatch.setattr(network, "add_bridge", full)
    with pytest.raises(OSError, match="no space"), Testbed():
        pass
    assert things(labels[0]) == set()


#: Owns a place with a busy process that has left its parent, and waits.
OWNER = """
import signal, sys
from melisma.testbed import Device, Testbed
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
    with signals.deferred():
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
    assert ownership.started(orphan) is None


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
    pid, started = ownership.owner_label()[3:8], ownership.owner_label()[8:]
    other = ownership.digits(int(started, 36) + 1, 4)
    network.ip("netns", "add", f"mel{pid}{other}0")
    Testbed.sweep()
    assert things(f"mel{pid}{other}0") == set()


@real
def test_a_fork_of_the_owner_takes_nothing_away(testbed: Testbed) -> None:
    testbed.place(PLAIN, "one")
    owner, testbed._owner = testbed._owner, -1  # what a fork sees: another's number
    testbed.__exit__()
    assert len(things(testbed._label)) == 2
    testbed._owner = owner


def test_names_fit_an_interface_and_tell_the_owner() -> None:
    name = ownership.owner_label() + ownership.digits(35, 1) + ownership.digits(254, 2)
    assert len(name) == 15  # as much as Linux takes
    assert ownership.is_owned(name)
    assert not ownership.is_owned("eth0")
