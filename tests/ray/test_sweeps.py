"""Trials over a real Ray cluster of this machine: a head and two nodes."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import numpy as np
import pytest
import ray
from papers import store
from ray.cluster_utils import Cluster
from tests.comparison import doings
from tests.comparison.doings import Item
from tests.papers import toy

from melisma.comparison.outcomes import compare
from melisma.comparison.sweeps import TRIES, Engine, in_turn
from melisma.errors import ConfigError, LostError, RemoteError
from melisma.jobs.schema import Job
from melisma.ray.sweeps import over_ray

pytestmark = pytest.mark.slow

NODE: dict[str, Any] = {
    "node_ip_address": "127.0.0.1",
    "include_dashboard": False,
    "object_store_memory": 80 << 20,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        made = Cluster()
        try:
            made.add_node(num_cpus=0, **NODE)
            made.add_node(num_cpus=2, **NODE)
            yield made
        finally:
            made.shutdown()  # type: ignore[no-untyped-call]


def test_leaving_a_cluster_does_not_end_it(cluster: Cluster) -> None:
    for _ in range(2):
        with over_ray(cluster.address) as over:
            assert len(list(over(doings.drawn, range(2)))) == 2
        assert not ray.is_initialized()


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_what_listens_and_is_no_cluster_is_told_from_one(says: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()

        def answer() -> None:
            line, _ = listener.accept()
            with line:
                line.recv(99)
                line.sendall(says)

        Thread(target=answer).start()
        address = f"{host}:{port}"
        with pytest.raises(ConfigError, match="something else"), over_ray(address):
            pass


def test_without_an_address_a_cluster_of_this_machine_is_started_and_ended() -> None:
    with over_ray(cpus=1) as over:
        found = dict(over(doings.drawn, range(2)))
        address = ray.get_runtime_context().gcs_address
    for place, result in in_turn(doings.drawn, range(2)):
        np.testing.assert_array_equal(found[place], result)
    assert "127.0.0.1]:" in address
    with pytest.raises(ConfigError, match="no Ray cluster answers"), over_ray(address):
        pass


@pytest.fixture(scope="module")
def over(cluster: Cluster) -> Iterator[Engine]:
    """Joined once, after the tests above, for those below."""
    with over_ray(cluster.address) as engine:
        yield engine


def files(folder: Path) -> dict[str, bytes]:
    """Everything below a folder, by name."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_files_of_a_comparison_are_those_of_one_process_bit_for_bit(
    over: Engine, tmp_path: Path
) -> None:
    ticks: list[None] = []
    told = []
    for name, engine in (("here", in_turn), ("there", over)):
        (tmp_path / name).mkdir()
        found = compare(
            *(Job(name="quick", cycles=2), ["csa", "eta"], 2, tmp_path / name, engine),
            begin=lambda cycles: lambda: ticks.append(None),
        )
        told.append(msgspec.json.encode(found))
    assert told[0] == told[1]
    assert files(tmp_path / "here") == files(tmp_path / "there")
    assert len(ticks) == 2 * 8  # two times two schemes, seeds, cycles


def test_results_of_a_paper_are_those_of_one_process(
    over: Engine, tmp_path: Path
) -> None:
    here = toy.run(toy.Study(trials=5))["drawn"]
    there = store.result(tmp_path, toy.run, toy.Study(trials=5), over)["drawn"]
    np.testing.assert_array_equal(here, there)


def test_what_a_dead_worker_did_is_done_again(over: Engine, tmp_path: Path) -> None:
    ticks: list[None] = []
    todo = [Item(number, tmp_path) for number in range(3)]
    found = over(doings.dies_at_first, todo, lambda: ticks.append(None))
    assert dict(found) == {0: 0, 1: 1, 2: 2}
    assert len(ticks) == 3 * 2


def test_a_trial_that_always_kills_its_worker_is_lost_and_the_others_are_not(
    over: Engine, tmp_path: Path
) -> None:
    found = dict(over(doings.first_dies, [Item(n, tmp_path) for n in range(4)]))
    lost = found.pop(0)
    assert found == {1: 1, 2: 2, 3: 3}
    assert isinstance(lost, LostError)
    assert "lost 3 times" in str(lost)
    assert len((tmp_path / "tries").read_text()) == TRIES


def test_what_a_trial_raises_is_raised_with_where(over: Engine) -> None:
    with pytest.raises(ConfigError, match="trial 3 cannot be") as raised:
        list(over(doings.refuses, [3]))
    assert raised.value.__notes__[-1] == f"on {socket.gethostname()}"
    with pytest.raises(RemoteError, match="RemoteError: KeyError: abc"):
        list(over(doings.raises_what_has_no_copy, [0]))


def test_workers_have_one_thread(over: Engine) -> None:
    assert list(over(doings.threads_of, [0])) == [(0, "1")]


def test_a_sweep_that_is_given_up_leaves_the_engine_to_the_next(
    over: Engine, tmp_path: Path
) -> None:
    # All but the first wait, and are never told to go.
    results = over(doings.waits_but_first, [Item(n, tmp_path) for n in range(4)])
    assert next(results) == (0, 0)
    results.close()  # type: ignore[attr-defined]
    assert len(list(over(doings.drawn, range(3)))) == 3


def test_a_lost_node_costs_its_trials_a_try(
    cluster: Cluster, over: Engine, tmp_path: Path
) -> None:
    doomed = cluster.add_node(num_cpus=2, **NODE)
    raylet = doomed.all_processes["raylet"][0].process.pid
    (tmp_path / "doomed").write_text(str(raylet))

    def lose() -> None:
        while not (tmp_path / "caught").exists():
            time.sleep(0.05)
        cluster.remove_node(doomed, allow_graceful=False)

    killer = Thread(target=lose)
    killer.start()
    found = dict(
        over(doings.caught_where_doomed, [Item(n, tmp_path) for n in range(6)])
    )
    killer.join()
    assert found == {n: n for n in range(6)}
    assert len(list(tmp_path.glob("* by *"))) > 6
