"""What learners fetch costs the orchestrator no memory of its own."""

import pytest
import torch

from melisma.errors import DataError
from melisma.fleets.served import ModelServer, ServedTask
from melisma.learning.data import EMBEDDED, load
from melisma.learning.shards import ShardStore


def served() -> ServedTask:
    parameters = {"weight": torch.zeros(100)}
    return ServedTask("task", parameters, ShardStore(load(EMBEDDED).train, 50))


def test_a_shard_is_asked_for_once_in_a_call() -> None:
    task = served()
    keys = task.store.first(2)
    server = ModelServer([task])
    assert len(server.shards("task", keys)) == 2
    with pytest.raises(DataError, match="asked for twice"):
        server.shards("task", [*keys, keys[0]])


def test_shards_and_filler_are_not_copied_for_each_learner() -> None:
    task = served()
    server, keys = ModelServer([task]), task.store.first(1)
    [one], [other] = (server.shards("task", keys) for _ in range(2))
    assert all(one[name].data_ptr() == other[name].data_ptr() for name in ("x", "y"))
    fillers = [server.filler("task", size) for size in (400, 300)]
    assert [len(zeros) for zeros in fillers] == [400, 300]
    assert fillers[0].ctypes.data == fillers[1].ctypes.data
