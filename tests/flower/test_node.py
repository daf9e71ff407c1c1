"""What a SuperNode does with a message, each as if it were a process of its own."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict, UserConfig
from tests.flower.grids import LocalGrid, carried, context_of
from tests.launch.regression import line
from torch import nn
from torch.nn.functional import mse_loss

from melisma.errors import ConfigError
from melisma.fleets.messages import TaskSpec, TrainRequest
from melisma.flower import messages, node
from melisma.flower.messages import NodeStatus, Timing
from melisma.flower.node import Memory
from melisma.learner.speed import Speed
from melisma.learning import data, models
from melisma.learning.benchmark import Line
from melisma.learning.data import save_own
from melisma.learning.parameters import Parameters, parameters_of, put
from melisma.learning.settings import Buffers, Late, Training
from melisma.learning.shards import ShardStore
from melisma.learning.task import plain
from melisma.registry import reference

SPEC = TaskSpec(
    task="test",
    model="TwoNN",
    seed=0,
    training=Training(rate=0.05, batch=10),
    shard=50,
    federated=False,
    private=False,
    steps=2,
)
TIMING = Timing(deadline_s=30.0)
STORE = ShardStore(data.load("mnist-5k").train, 50)


def message(
    kind: str, spec: TaskSpec = SPEC, timing: Timing = TIMING, **more: Any
) -> Message:
    LocalGrid({}, {})  # says which task this is
    model = parameters_of(models.build(spec.model, spec.seed))
    sent = Message(
        RecordDict(
            {
                messages.SPEC: messages.config_of(spec),
                messages.TIMING: messages.config_of(timing),
                messages.PARAMETERS: messages.arrays_of(model),
                **more,
            }
        ),
        dst_node_id=7,
        message_type=kind,
    )
    sent.metadata.__dict__["_message_id"] = sent.object_id
    return carried(sent)


def shards(number: int) -> Any:
    return messages.shards_in(STORE.take(STORE.first(number)))


def status(reply: Message) -> NodeStatus:
    return messages.struct_of(carried(reply).content, messages.STATUS, NodeStatus)


def measured(
    context: Context, spec: TaskSpec = SPEC, transit_s: float = 4.0
) -> NodeStatus:
    """Send what comes before any work."""
    first = message("query", spec)
    node.query(first, context)
    busy_s = remembered(context).busy_s
    timing = msgspec.structs.replace(
        TIMING, previous=first.metadata.message_id, previous_s=busy_s + transit_s
    )
    return status(node.query(message("query", spec, timing, shards=shards(8)), context))


def remembered(context: Context) -> Memory:
    kept: Any = context.state.config_records[node.MEMORY][node.MEMORY]
    return msgspec.json.decode(kept, type=Memory)


def request(samples: int, deadline_s: float, steps: int = 1, cycle: int = 1) -> Any:
    return messages.config_of(
        TrainRequest(
            task="test",
            cycle=cycle,
            keys=STORE.first(samples // 50),
            samples=samples,
            steps=steps,
            deadline_s=deadline_s,
            late=Late.HALT,
        )
    )


def near(one: Parameters, other: Parameters) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def test_a_node_measures_itself_once_it_knows_what_flower_takes() -> None:
    context = context_of(7, {"name": "pi"}, {})
    first = node.query(message("query"), context)
    assert status(first) == NodeStatus(name="pi")
    speeds = measured(context_of(7, {"name": "pi"}, {}), transit_s=4.0).speeds
    assert speeds is not None
    assert speeds.fixed_s > 3.999
    assert speeds.sample_s == 0.0


def test_the_model_goes_there_and_back_with_a_query() -> None:
    query = message("query")
    reply = carried(node.query(query, context_of(7, {}, {})))
    assert near(
        messages.tensors_of(reply.content, messages.PARAMETERS),
        messages.tensors_of(query.content, messages.PARAMETERS),
    )


def test_a_private_node_bids_and_tells_no_time() -> None:
    spec = msgspec.structs.replace(SPEC, private=True)
    context = context_of(7, {"rate": "5000 samples/s"}, {})
    bid = measured(context, spec, transit_s=10.0).bid
    # 30 s less 3 % and 12 s of care leave 17 s for 5000 samples a second at most,
    # twice each, 50 a shard: 855, and no more but for noise.
    assert bid is not None
    assert 0 < bid <= 900
    work = {"request": request(100, 30.0), "shards": shards(2)}
    reply = carried(node.train(message("train", spec, **work), context))
    update = messages.update_of(reply.content)
    assert (update.downloaded_s, update.trained_s) == (None, None)
    assert status(reply).speeds is None


def normed() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(784), nn.Linear(784, 10))


def test_a_node_keeps_the_buffers_that_stay_there() -> None:
    training = Training(rate=0.05, batch=10, buffers=Buffers.LOCAL)
    own = {"model": reference(normed), "training": training}
    spec, context = msgspec.structs.replace(SPEC, **own), context_of(7, {}, {})
    for cycle in (1, 2):
        work = {"request": request(100, 30.0, cycle=cycle), "shards": shards(2)}
        sent = message("train", spec, **work)
        del sent.content["parameters"]["1.running_mean"]
        del sent.content["parameters"]["1.running_var"]
        reply = node.train(sent, context)
        assert set(reply.content["parameters"]) == {
            *("1.weight", "1.bias", "2.weight", "2.bias"),
        }
    kept = messages.tensors_of(context.state, messages.BUFFERS)
    assert int(kept["1.num_batches_tracked"]) == 2 * 10


def test_work_that_fits_is_done() -> None:
    context = context_of(7, {}, {})
    measured(context)
    work = {"request": request(200, 30.0, steps=3), "shards": shards(4)}
    sent = message("train", **work)
    update = messages.update_of(carried(node.train(sent, context)).content)
    assert (update.samples, update.batches, update.halted) == (200, 60, False)
    before = messages.tensors_of(sent.content, messages.PARAMETERS)
    assert not near(update.parameters, before)


def test_a_task_of_ones_own_is_trained_by_its_own_loss() -> None:
    store = ShardStore(line().dataset("line").train, 50)
    recipe, model = "tests.launch.regression:line", line().build(0)
    training = plain(line().training())
    spec = msgspec.structs.replace(SPEC, recipe=recipe, training=training)
    context = context_of(7, {}, {})
    there = messages.arrays_of(parameters_of(model))
    order = msgspec.structs.replace(
        messages.struct_of(RecordDict({"r": request(200, 30.0, 5)}), "r", TrainRequest),
        keys=store.first(4),
    )
    work: dict[str, Any] = {
        messages.PARAMETERS: there,
        "request": messages.config_of(order),
        "shards": messages.shards_in(store.take(store.first(4))),
    }
    update = messages.update_of(
        carried(node.train(message("train", spec, **work), context)).content
    )
    assert sorted(update.parameters) == ["1.bias", "1.weight"]  # the rest is frozen
    put(update.parameters, model)
    test = line().dataset("line").test[:]
    with torch.no_grad():
        missed = mse_loss(model(test["x"]).squeeze(1), test["y"])
    assert float(missed) < 0.1
    assert update.samples == 200


def test_a_small_budget_gives_a_partial_update() -> None:
    # 5 s less 4.5 s on the way leave half a second for 400 samples, 200 a second.
    context = context_of(7, {"rate": "200 samples/s"}, {})
    speed = Speed(4 * 41_350, link=Line(latency_s=2.25, rate=1e12))
    remember(context, Memory(speed))
    work = {"request": request(400, 5.0), "shards": shards(8)}
    sent = message("train", **work)
    update = messages.update_of(carried(node.train(sent, context)).content)
    assert update.halted
    assert 0 < update.samples < 200
    assert update.samples == 10 * update.batches


def remember(context: Context, memory: Memory) -> None:
    kept = ConfigRecord({node.MEMORY: msgspec.json.encode(memory)})
    context.state[node.MEMORY] = kept


def test_no_time_at_all_trains_nothing() -> None:
    context = context_of(7, {}, {})
    remember(context, Memory(Speed(1, link=Line(latency_s=10.0, rate=1e12))))
    work = {"request": request(50, 5.0), "shards": shards(1)}
    update = messages.update_of(node.train(message("train", **work), context).content)
    assert (update.samples, update.halted) == (0, True)


def test_the_way_of_a_message_is_learnt_from_its_answer() -> None:
    memory = Memory(Speed(1000), answered="a", busy_s=2.0)
    memory.observe(Timing(deadline_s=1.0, previous="a", previous_s=6.0))
    assert memory.transit_s == pytest.approx(4.0)
    memory.observe(Timing(deadline_s=1.0, previous="a", previous_s=10.0))
    assert memory.transit_s == pytest.approx(6.0)  # half of the news


def test_the_way_of_another_message_is_not_taken_for_it() -> None:
    memory = Memory(Speed(1000), answered="b", busy_s=2.0)
    memory.observe(Timing(deadline_s=1.0, previous="a", previous_s=6.0))
    memory.observe(Timing(deadline_s=1.0))
    assert memory.speed.link is None


@pytest.mark.parametrize("part", [0, 1])
def test_a_node_has_its_part_of_the_jobs_data(part: int) -> None:
    spec = msgspec.structs.replace(SPEC, federated=True)
    config: UserConfig = {"partition-id": part, "num-partitions": 2}
    run: UserConfig = {"mode": "federated", "data.name": "mnist-5k"}
    context = context_of(7, config, run)
    assert status(node.query(message("query", spec), context)).samples == 2000


def test_a_node_has_data_of_its_own(tmp_path: Path) -> None:
    whole = data.load("mnist-5k")
    save_own(whole.train[:30], tmp_path)
    spec = msgspec.structs.replace(SPEC, federated=True)
    context = context_of(7, {"data": str(tmp_path)}, {})
    assert status(node.query(message("query", spec), context)).samples == 30


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "no data of its own, which federated mode needs: start it with"),
        ({"partition-id": 2, "num-partitions": 2}, "partition-id=2 of num-partitions"),
    ],
)
def test_a_node_without_data_says_so(config: UserConfig, said: str) -> None:
    spec = msgspec.structs.replace(SPEC, federated=True)
    with pytest.raises(ConfigError, match=said):
        node.query(message("query", spec), context_of(7, config, {}))
