"""The examples of docs/rpc.md, signals, forks and exit."""

import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs" / "rpc.md"
PATIENCE_S = 60.0  # guards against hanging; nothing is measured with it


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        number: int = probe.getsockname()[1]
    return number


@contextmanager
def running(code: str, says: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process, once it has said something that contains ``says``."""
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        heard = process.stdout.readline()
        assert says in heard, heard + process.stdout.read()
        yield process
    finally:
        process.kill()
        process.communicate()


def output_of(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def examples(port: int) -> list[str]:
    text = DOCS.read_text(encoding="utf-8").replace("8765", str(port))
    return re.findall(r"```\w*\n(.*?)```", text, flags=re.DOTALL)


@pytest.mark.slow
def test_the_first_example_prints_what_it_says(port: int) -> None:
    device, orchestrator, printed = examples(port)[:3]
    with running(device, "for this machine only"):
        answer = output_of(orchestrator)
    assert printed == f"$ python device.py &\n$ python orchestrator.py\n{answer}"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_call_with_curl_prints_what_it_says(port: int) -> None:
    (example,) = [block for block in examples(port) if block.startswith("curl")]
    command, printed = example.splitlines()
    server = f"""
from melisma import rpc

@rpc.expose
def add(a, b):
    return a + b

rpc.serve(port={port}).wait()
"""
    with running(server, "listening"):
        done = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, timeout=PATIENCE_S
        )
    assert done.stdout == printed


def test_remote_calls_do_not_load_torch() -> None:
    assert output_of("import sys, melisma.rpc; print('torch' in sys.modules)") == (
        "False\n"
    )


@pytest.mark.slow
def test_a_tensor_is_received_by_who_has_not_loaded_torch(port: int) -> None:
    receiver = f"""
import sys
from melisma import rpc

@rpc.expose
def take(tensor):
    return type(tensor).__name__, tensor.sum().item()

rpc.serve(port={port}).wait()
"""
    sender = f"""
import torch
from melisma import rpc
print(rpc.connect("127.0.0.1:{port}").take(torch.ones(5)))
"""
    with running(receiver, "listening"):
        assert output_of(sender) == "('Tensor', 5.0)\n"


@pytest.mark.slow
@pytest.mark.parametrize("busy", [False, True])
def test_ctrl_c_ends_a_server_quietly_even_in_mid_call(port: int, busy: bool) -> None:
    server = f"""
import time
from melisma import rpc

@rpc.expose
def sleeps():
    print("sleeping", flush=True)
    time.sleep(1000)

@rpc.expose
def nothing(): ...

rpc.serve(port={port}).wait()
"""
    caller = f"""
from melisma import rpc
peer = rpc.connect("127.0.0.1:{port}")
peer.sleeps.submit()
print("called", flush=True)
peer.wait()
"""
    with running(server, "listening") as process:
        assert process.stdout is not None
        if busy:
            with running(caller, "called"):
                assert process.stdout.readline() == "sleeping\n"
                process.send_signal(signal.SIGINT)
                assert process.wait(PATIENCE_S) == 0
        else:
            answered = f"rpc.connect('127.0.0.1:{port}').nothing()"
            output_of(f"from melisma import rpc; {answered}")  # it waits by now
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 0
        assert "Traceback" not in process.stdout.read()


def test_a_forked_process_makes_its_own_connections(port: int) -> None:
    code = f"""
import os
from melisma import rpc

@rpc.expose
def add(a, b):
    return a + b

server = rpc.serve(port={port}, say=lambda _: None)
assert rpc.connect(server.address).add(1, 2) == 3
child = os.fork()
if child == 0:
    assert rpc.connect(server.address).add(3, 4) == 7
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert output_of(code) == "0\n"
