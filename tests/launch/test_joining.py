"""Joining: what a device owner allows, from a script and for local processes."""

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from tests.learner.test_orders import FOG, own

from melisma import rpc
from melisma.errors import RemoteError
from melisma.jobs.schema import Job
from melisma.launch.joining import join
from melisma.launch.local import join_command
from melisma.learning.data import save_own
from melisma.system.law import Mode

GUARD_S = 60.0  # against hanging; nothing is measured with it


@contextmanager
def joined(folder: Path, **options: Any) -> Iterator[Any]:
    """A device with data of its own that joined, as the orchestrator calls it."""
    save_own(own().train[:], folder)
    connections: SimpleQueue[rpc.Connection] = SimpleQueue()

    def be_a_learner() -> None:
        with suppress(CancelledError):  # closed below
            join(server.address, name="pi", data=folder, joined=keep, **options)

    def keep(name: str, connection: rpc.Connection) -> None:
        connections.put(connection)

    with rpc.serve(port=0, say=len) as server:
        device = threading.Thread(target=be_a_learner, daemon=True)
        device.start()
        yield server.wait_for("pi", timeout_s=GUARD_S)["pi"]
        # The server may know of it before the device itself does.
        connections.get(timeout=GUARD_S).close()
        device.join(GUARD_S)
        assert not device.is_alive()


def test_a_device_takes_part_in_a_fog_if_its_owner_shares_data(tmp_path: Path) -> None:
    with joined(tmp_path, share_data=True) as pi:
        assert pi.prepare(FOG).samples == 20


def test_and_not_otherwise(tmp_path: Path) -> None:
    with joined(tmp_path) as pi, pytest.raises(RemoteError, match="--share-data"):
        pi.prepare(FOG)


def command(**job: Any) -> list[str]:
    return join_command(Job(**job), "127.0.0.1:1", "a", None, None)


def test_local_learners_of_a_fog_share_the_jobs_data() -> None:
    fog = command(scheme="fog", mode=Mode.FEDERATED, model="FogMLP")
    assert "--share-data" in fog
    assert "--share-data" not in command(scheme="dab")


def test_local_learners_import_nothing_of_the_current_folder() -> None:
    assert command(scheme="dab")[1] == "-P"
