"""The thesis's own programs, unchanged but for their import."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from melisma import rpc
from melisma.rpc import axon

ALGORITHM_4 = """\
from melisma.rpc import axon

@axon.worker.rpc()
def simple_hello(name):
    greeting = f"Hello {name}!!"
    print(greeting)
    return greeting

axon.worker.init()
"""

ALGORITHM_5 = """\
from melisma.rpc import axon

stub = axon.client.SyncSimplexStub(worker_ip="127.0.0.1", rpc_name="simple_hello")
greeting = stub("John")
"""

ALGORITHM_8 = """\
from melisma.rpc import axon
import asyncio

stub = axon.client.CoroSimplexStub(worker_ip="127.0.0.1", rpc_name="simple_hello")

async def main():
    await stub("John")

asyncio.run(main())
"""

ALGORITHM_9 = """\
from melisma.rpc import axon

stub = axon.client.AsyncSimplexStub(worker_ip="127.0.0.1", rpc_name="simple_hello")
handle = stub("John")
result = handle.join()
"""

#: Runs a listing on another port than 8000, and prints one of its names.
RUN = """\
import runpy, sys
from melisma.rpc import axon
axon.config.port = int(sys.argv[2])
print(runpy.run_path(sys.argv[1]).get(sys.argv[3]))
"""


def command(listing: str, folder: Path, port: int, shown: str = "") -> list[str]:
    file = folder / "listing.py"
    file.write_text(listing)
    return [sys.executable, "-u", "-c", RUN, str(file), str(port), shown]


class Worker:
    """Algorithm 4 in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr
        assert process.stdout
        self.printed = process.stdout
        self.port = int(process.stderr.readline().split(",")[0].rpartition(":")[2])


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    words = command(ALGORITHM_4, tmp_path_factory.mktemp("worker"), port=0)
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Worker(process)
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("listing", "shown", "value"),
    [
        (ALGORITHM_5, "greeting", "Hello John!!"),
        (ALGORITHM_8, "none", "None"),
        (ALGORITHM_9, "result", "Hello John!!"),
        (ALGORITHM_5.replace("Simplex", "Duplex"), "greeting", "Hello John!!"),
        (ALGORITHM_9.replace("Simplex", "Duplex"), "result", "Hello John!!"),
    ],
    ids=["algorithm 5", "algorithm 8", "algorithm 9", "5, duplex", "9, duplex"],
)
def test_the_thesiss_listings_greet_john(
    worker: Worker, tmp_path: Path, listing: str, shown: str, value: str
) -> None:
    done = subprocess.run(
        command(listing, tmp_path, worker.port, shown),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{value}\n", "")
    assert worker.printed.readline() == "Hello John!!\n"


class Meeting:
    """A function that returns once four calls of it are under way."""

    def __init__(self) -> None:
        self.all_there = threading.Barrier(4)
        self.ran = 0

    @rpc.expose
    def meet(self) -> int:
        return self.all_there.wait(30)

    @rpc.expose
    def count(self) -> int:
        self.ran += 1
        return self.ran


@pytest.fixture
def meeting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Meeting]:
    """A meeting where stubs of this process find it."""
    held, connections = Meeting(), dict[str, rpc.Connection]()
    monkeypatch.setattr(axon, "_connections", connections)
    with rpc.serve(held, port=0, say=len) as server:
        monkeypatch.setattr(axon.config, "port", server.port)
        yield held
        for connection in connections.values():
            connection.close()


def test_calls_of_an_async_stub_overlap(meeting: Meeting) -> None:
    stub = axon.client.AsyncSimplexStub(worker_ip="127.0.0.1", rpc_name="meet")
    handles = [stub() for _ in range(4)]
    assert sorted(handle.join() for handle in handles) == [0, 1, 2, 3]


def test_calls_of_a_coroutine_stub_overlap(meeting: Meeting) -> None:
    async def main() -> Any:
        return await asyncio.gather(*(stub() for _ in range(4)))

    stub = axon.client.CoroDuplexStub(worker_ip="127.0.0.1", rpc_name="meet")
    assert sorted(asyncio.run(main())) == [0, 1, 2, 3]


def test_a_handle_joined_twice_ran_once(meeting: Meeting) -> None:
    stub = axon.client.AsyncDuplexStub(worker_ip="127.0.0.1", rpc_name="count")
    handle = stub()
    assert (handle.join(), handle.join(), meeting.ran) == (1, 1, 1)


def test_a_call_runs_though_nobody_joins_it(meeting: Meeting) -> None:
    stub = axon.client.AsyncSimplexStub(worker_ip="127.0.0.1", rpc_name="meet")
    waited_for = [stub() for _ in range(4)][-1]  # ends only if all four have begun
    assert waited_for.join() in range(4)


def test_stubs_of_one_worker_share_a_connection(meeting: Meeting) -> None:
    for _ in range(3):
        axon.client.SyncSimplexStub(worker_ip="127.0.0.1", rpc_name="count")()
    assert len(axon._connections) == 1
    assert meeting.ran == 3


def test_axons_port_is_the_default() -> None:
    assert axon.Config.port == 8000
