"""Processes that die, freeze and come back, on real sockets."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest

from melisma import rpc
from melisma.errors import TransportError

#: Nothing here takes this long; it only keeps a broken test from hanging.
GUARD_S = 60.0
HASTY = rpc.Limits(ping_s=0.1, silence_s=0.6, grace_s=0.4)
#: Notices silence soon, and waits long for the far side to come back.
PATIENT = rpc.Limits(ping_s=0.1, silence_s=0.6, grace_s=GUARD_S)

#: A process that serves, or dials in under a name. Its functions say ``begun`` to
#: whoever calls, and then hang, unless the process was told to answer at once.
SCRIPT = """
import os, sys, threading
from melisma import rpc

def end_with_the_test():
    sys.stdin.read()
    os._exit(1)

threading.Thread(target=end_with_the_test, daemon=True).start()

role, place, mood, limits, count = sys.argv[1:]
limits = eval(limits, {"Limits": rpc.Limits})

def work():
    with open(count, "a") as file:
        file.write("x")
    rpc.current().peer.begun(os.getpid())
    if mood == "hangs":
        threading.Event().wait()
    return os.getpid()

@rpc.expose
def once():
    return work()

@rpc.expose(idempotent=True)
def again():
    return work()

@rpc.expose
def ask():
    rpc.current().peer.begun(os.getpid())
    return rpc.current().peer.gate()

@rpc.expose(idempotent=True)
def pid():
    return os.getpid()

@rpc.expose
def hold_the_lock(turns):
    return sum(range(turns))

@rpc.expose
def reconnections():
    return connection.metrics.reconnections

if role == "server":
    server = rpc.serve(port=int(place), limits=limits, say=lambda _: None)
    print(server.port, flush=True)
    server.wait()
else:
    connection = rpc.connect(place, name=role, limits=limits, patience_s=30)
    print("connected", flush=True)
    if mood == "calls":
        connection.work.submit()
    connection.wait()
"""


class Start(Protocol):
    def __call__(
        self, role: str, place: object, mood: str = ..., limits: rpc.Limits = ...
    ) -> subprocess.Popen[str]: ...


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    script = tmp_path / "process.py"
    script.write_text(SCRIPT)
    running: list[subprocess.Popen[str]] = []

    def start(
        role: str,
        place: object,
        mood: str = "answers",
        limits: rpc.Limits = PATIENT,
    ) -> subprocess.Popen[str]:
        words = [role, str(place), mood, repr(limits), str(tmp_path / "count")]
        process = subprocess.Popen(
            [sys.executable, str(script), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


class Here:
    """What this process exposes; its events tell which function was called."""

    def __init__(self) -> None:
        self.heard = threading.Event()
        self.opened = threading.Event()
        self.noticed: list[bool] = []
        self.over = threading.Event()

    @rpc.expose
    def begun(self, _: int) -> None:
        self.heard.set()

    @rpc.expose
    def gate(self) -> str:
        assert self.opened.wait(GUARD_S)
        return "open"

    @rpc.expose
    def work(self) -> None:
        request = rpc.current()
        self.heard.set()
        request.sleep(GUARD_S)
        self.noticed.append(request.cancelled)
        self.over.set()

    def wait(self) -> None:
        """Wait until a function begins."""
        assert self.heard.wait(GUARD_S)
        self.heard.clear()


def serving(tmp_path: Path, here: Here, **options: Any) -> rpc.Server:
    quiet = {"port": 0, "folder": tmp_path, "say": lambda _: None}
    return rpc.serve(here, **(quiet | options))


def freeze(process: subprocess.Popen[str], seconds: float | None = None) -> None:
    """Suspend a process by a signal; resume it after ``seconds``."""
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)
    if seconds is not None:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(seconds)
        process.send_signal(signal.SIGCONT)


# Killed


def test_a_call_to_a_server_that_is_killed_fails_after_the_grace(start: Start) -> None:
    server, here = start("server", 0, "hangs"), Here()
    with rpc.connect(f"127.0.0.1:{line_of(server)}", here, limits=HASTY) as connection:
        call = connection.once.submit()
        here.wait()
        server.kill()
        with pytest.raises(TransportError, match=r"not reconnect within 0\.4 s"):
            call.result(GUARD_S)
        with pytest.raises(TransportError, match="not reconnect"):
            connection.pid()


@pytest.mark.slow
def test_a_connection_is_dialled_again_once_there_is_a_server(start: Start) -> None:
    server, here = start("server", 0, "hangs"), Here()
    port = line_of(server)
    with rpc.connect(f"127.0.0.1:{port}", here, limits=PATIENT) as connection:
        server.kill()
        server.wait()
        following = start("server", port)
        assert connection.pid.within(GUARD_S)() == following.pid


@pytest.mark.slow
def test_a_new_server_answers_what_may_run_again_and_fails_what_may_have_run(
    start: Start,
) -> None:
    server, here = start("server", 0, "hangs"), Here()
    port = line_of(server)
    with rpc.connect(f"127.0.0.1:{port}", here, limits=PATIENT) as connection:
        again = connection.again.submit()
        here.wait()
        once = connection.once.submit()
        here.wait()
        server.kill()
        server.wait()
        following = start("server", port)
        assert again.result(GUARD_S) == following.pid
        with pytest.raises(TransportError, match="may or may not have run"):
            once.result(GUARD_S)


@pytest.mark.slow
def test_a_function_learns_that_the_client_that_called_it_was_killed(
    start: Start, tmp_path: Path
) -> None:
    here = Here()
    with serving(tmp_path, here, limits=HASTY) as server:
        client = start("client", server.address, "calls")
        here.wait()
        client.kill()
        assert here.over.wait(GUARD_S)
        assert here.noticed == [True]
        _until(lambda: not server.peers)
        other = start("other", server.address)
        server.wait_for("other", timeout_s=GUARD_S)
        assert server.peers["other"].pid() == other.pid


@pytest.mark.slow
def test_a_device_that_is_killed_in_mid_call_can_be_called_once_it_is_back(
    start: Start, tmp_path: Path
) -> None:
    here = Here()
    with serving(tmp_path, here, limits=HASTY) as server:
        device = start("device", server.address, "hangs")
        server.wait_for("device", timeout_s=GUARD_S)
        call = server.peers["device"].once.submit()
        here.wait()
        device.kill()
        with pytest.raises(TransportError, match="not reconnect"):
            call.result(GUARD_S)
        device = start("device", server.address)
        server.wait_for("device", timeout_s=GUARD_S)
        assert server.peers["device"].pid() == device.pid


def test_a_device_that_restarts_within_the_grace_fails_what_it_may_have_run(
    start: Start, tmp_path: Path
) -> None:
    here = Here()
    with serving(tmp_path, here, limits=PATIENT) as server:
        device = start("device", server.address, "hangs")
        server.wait_for("device", timeout_s=GUARD_S)
        call = server.peers["device"].once.submit()
        here.wait()
        device.kill()
        device = start("device", server.address)
        with pytest.raises(TransportError, match="may or may not have run"):
            call.result(GUARD_S)
        assert server.peers["device"].pid.within(GUARD_S)() == device.pid


# Frozen: nothing closes, nothing answers


@pytest.mark.slow
def test_a_call_to_a_frozen_server_fails_after_silence_and_grace(start: Start) -> None:
    server, here = start("server", 0, "hangs"), Here()
    with rpc.connect(f"127.0.0.1:{line_of(server)}", here, limits=HASTY) as connection:
        call = connection.once.submit()
        here.wait()
        freeze(server)
        with pytest.raises(TransportError, match="not reconnect"):
            call.result(GUARD_S)


def test_a_call_to_a_frozen_device_fails_after_silence_and_grace(
    start: Start, tmp_path: Path
) -> None:
    here = Here()
    with serving(tmp_path, here, limits=HASTY) as server:
        device = start("device", server.address, "hangs")
        server.wait_for("device", timeout_s=GUARD_S)
        call = server.peers["device"].once.submit()
        here.wait()
        freeze(device)
        with pytest.raises(TransportError, match="not reconnect"):
            call.result(GUARD_S)
        _until(lambda: not server.peers)


@pytest.mark.slow
def test_a_transfer_to_a_frozen_device_fails_too(start: Start, tmp_path: Path) -> None:
    with serving(tmp_path, Here(), limits=HASTY) as server:
        device = start("device", server.address)
        server.wait_for("device", timeout_s=GUARD_S)
        freeze(device)
        call = server.peers["device"].pid.submit(np.zeros(50_000_000, np.uint8))
        with pytest.raises(TransportError, match="not reconnect"):
            call.result(GUARD_S)
        _until(lambda: not server.peers)


def test_a_function_learns_that_the_client_that_called_it_is_frozen(
    start: Start, tmp_path: Path
) -> None:
    here = Here()
    with serving(tmp_path, here, limits=HASTY) as server:
        client = start("client", server.address, "calls")
        here.wait()
        freeze(client)
        assert here.over.wait(GUARD_S)
        assert here.noticed == [True]
        _until(lambda: not server.peers)


def test_a_server_that_thaws_within_the_grace_answers_once_what_it_ran_once(
    start: Start, tmp_path: Path
) -> None:
    server, here = start("server", 0), Here()
    with rpc.connect(
        f"127.0.0.1:{line_of(server)}", here, limits=PATIENT
    ) as connection:
        call = connection.ask.submit()
        here.wait()
        freeze(server)
        _until(lambda: not connection.connected)
        server.send_signal(signal.SIGCONT)
        here.opened.set()
        assert call.result(GUARD_S) == "open"
        assert connection.once.within(GUARD_S)() == server.pid
        assert connection.metrics.reconnections >= 1
    assert (tmp_path / "count").read_text() == "x"


def test_a_call_made_to_a_frozen_server_runs_once_after_it_thaws(
    start: Start, tmp_path: Path
) -> None:
    server, here = start("server", 0), Here()
    with rpc.connect(
        f"127.0.0.1:{line_of(server)}", here, limits=PATIENT
    ) as connection:
        freeze(server)
        call = connection.once.submit()
        _until(lambda: not connection.connected)
        server.send_signal(signal.SIGCONT)
        assert call.result(GUARD_S) == server.pid
    assert (tmp_path / "count").read_text() == "x"


def test_a_device_that_thaws_within_the_grace_answers_once_what_it_ran_once(
    start: Start, tmp_path: Path
) -> None:
    here = Here()
    with serving(tmp_path, here, limits=PATIENT) as server:
        device = start("device", server.address)
        server.wait_for("device", timeout_s=GUARD_S)
        peer = server.peers["device"]
        calls = [peer.ask.submit(), peer.once.submit()]
        here.wait()
        freeze(device)
        _until(lambda: not peer.connected)
        device.send_signal(signal.SIGCONT)
        here.opened.set()
        assert [call.result(GUARD_S) for call in calls] == ["open", device.pid]
    assert (tmp_path / "count").read_text() == "x"


@pytest.mark.slow
def test_who_was_frozen_does_not_blame_the_other_side(
    start: Start, tmp_path: Path
) -> None:
    limits = rpc.Limits(ping_s=0.1, silence_s=GUARD_S)
    with serving(tmp_path, Here(), limits=limits) as server:
        device = start("device", server.address, limits=HASTY)
        assert line_of(device) == "connected"
        freeze(device, seconds=1.5)
        assert server.peers["device"].reconnections.within(GUARD_S)() == 0


def test_a_function_that_holds_the_interpreter_does_not_lose_the_connection(
    start: Start,
) -> None:
    server = start("server", 0, limits=rpc.Limits(ping_s=0.05, silence_s=20.0))
    address, turns = f"127.0.0.1:{line_of(server)}", 20_000_000
    limits = rpc.Limits(ping_s=0.05, silence_s=20.0)
    with rpc.connect(address, limits=limits) as connection:
        assert connection.hold_the_lock(turns) == turns * (turns - 1) // 2
        assert connection.metrics.reconnections == 0


def _until(true: Any) -> None:
    """Poll for a condition that has no event."""
    waiting = threading.Event()
    for _ in range(int(GUARD_S / 0.01)):
        if true():
            return
        waiting.wait(0.01)
    pytest.fail("it never happened")
