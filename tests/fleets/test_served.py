"""What learners fetch costs no memory, and what they send is of what they fetched."""

import pytest
import torch

from melisma.errors import DataError
from melisma.fleets.messages import Update
from melisma.fleets.served import ModelServer, ServedTask
from melisma.learning.data import EMBEDDED, load
from melisma.learning.shards import ShardStore
from melisma.learning.way import Way
from melisma.learning.wire import Sender, Wire, seed_of


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


def test_an_update_is_opened_by_the_cycle_that_it_was_ordered_in() -> None:
    wire, moving, kept = Wire.of("int8", "random-k 50 %"), ["weight"], []
    task = served()
    task.ways, task.moving, task.seed, task.kept = [Way(wire)], moving, 7, 3
    for cycle in (1, 2, 3):
        kept.append({"weight": torch.full((100,), float(cycle))})
        task.renew(cycle, kept[-1])
    first, sender = kept[0], Sender(wire.up)
    arrived = wire.arrived(task.model_for(1, lambda: "a"), first, moving)
    # int8 takes a little of the model away, which stays out of the change.
    assert not torch.equal(arrived["weight"], first["weight"])
    trained = {"weight": arrived["weight"] + 0.5}
    packed = sender.update(trained, arrived, moving, seed_of(7, 1, "a"))
    update = Update(
        cycle=1,
        samples=1,
        batches=1,
        loss=0.0,
        halted=False,
        parameters={},
        packed=packed,
    )
    opened = task.opened(update, "a", first, 1)
    assert isinstance(opened, Update)
    # Half of the values came; the others are owed.
    change = sorted((opened.parameters["weight"] - first["weight"]).tolist())
    assert change == pytest.approx([0.0] * 50 + [0.5] * 50, abs=1e-6)
    for cycle, name in ((3, "a"), (1, "b")):
        with pytest.raises(DataError, match="draws of another seed"):
            task.opened(update, name, first, cycle)


def test_shards_and_filler_are_not_copied_for_each_learner() -> None:
    task = served()
    server, keys = ModelServer([task]), task.store.first(1)
    [one], [other] = (server.shards("task", keys) for _ in range(2))
    assert all(one[name].data_ptr() == other[name].data_ptr() for name in ("x", "y"))
    fillers = [server.filler("task", size) for size in (400, 300)]
    assert [len(zeros) for zeros in fillers] == [400, 300]
    assert fillers[0].ctypes.data == fillers[1].ctypes.data
