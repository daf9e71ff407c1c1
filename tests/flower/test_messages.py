"""What travels by Flower arrives as it was, or is refused."""

from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from hypothesis import given
from hypothesis import strategies as st
from tests.flower.grids import LocalGrid, carried

from melisma.errors import DataError
from melisma.fleets.messages import Speeds, StateSpeeds, TaskSpec, TrainRequest, Update
from melisma.flower import messages
from melisma.flower.messages import NodeStatus, Timing
from melisma.learning.settings import Late, Training
from melisma.learning.shards import Shard

KINDS: list[type[msgspec.Struct]] = [TaskSpec, TrainRequest, Timing, Speeds, NodeStatus]
INTEGERS = st.integers(-(2**63), 2**63 - 1)
#: What a field of a type can hold.
HOLDS: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(),
    int: INTEGERS,
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
    list[str]: st.lists(st.text()),
    int | None: st.none() | INTEGERS,
    Late: st.sampled_from(Late),
    Training: st.builds(
        Training,
        optimiser=st.sampled_from(["sgd", "Adam"]),
        rate=st.floats(1e-9, 1e9),
        batch=st.integers(1, 2**31),
        shuffle=st.booleans(),
    ),
    list[StateSpeeds]: st.just([]),  # nodes of a federation have one state
    Speeds | None: st.none()
    | st.builds(
        Speeds, step_s=st.floats(0, 1), sample_s=st.floats(0, 1), fixed_s=st.floats(0)
    ),
}
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def sent(**records: Any) -> RecordDict:
    LocalGrid({}, {})  # says which task this is
    message = Message(RecordDict(records), dst_node_id=2, message_type="train")
    return carried(message).content


def structs(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    fields = msgspec.structs.fields(kind)
    return st.builds(kind, **{field.name: HOLDS[field.type] for field in fields})


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_what_is_said_arrives(kind: type[msgspec.Struct], data: st.DataObject) -> None:
    struct = data.draw(structs(kind))
    content = sent(it=messages.config_of(struct))
    assert messages.struct_of(content, "it", kind) == struct


@pytest.mark.parametrize("dtype", FLOATS)
@given(shape=st.lists(st.integers(0, 4), max_size=3))
def test_tensors_arrive(dtype: torch.dtype, shape: list[int]) -> None:
    tensors = {"a.weight": torch.randn(shape).to(dtype), "b": torch.ones(2)}
    content = sent(them=messages.arrays_of(tensors))
    arrived = messages.tensors_of(content, "them")
    assert list(arrived) == list(tensors)
    for name, tensor in tensors.items():
        assert arrived[name].dtype == tensor.dtype
        assert torch.equal(arrived[name], tensor)


@pytest.mark.parametrize("number", [1, 3])
def test_shards_arrive_in_two_arrays(number: int) -> None:
    shards: list[Shard] = [
        {"x": torch.full((2, 1, 2, 2), i).byte(), "y": torch.tensor([i, -i])}
        for i in range(number)
    ]
    record = messages.shards_in(shards)
    assert len(record) == 2
    arrived = messages.shards_of(sent(shards=record), 2)
    for one, other in zip(arrived, shards, strict=True):
        assert list(one) == ["x", "y"]
        for name in one:
            assert one[name].dtype == other[name].dtype
            assert torch.equal(one[name], other[name])


def test_an_update_arrives() -> None:
    update = Update(
        cycle=3,
        parameters={"w": torch.ones(2)},
        samples=4,
        batches=5,
        loss=0.5,
        halted=True,
        trained_s=1.5,
    )
    arrived = messages.update_of(
        sent(
            update=messages.config_of(update),
            parameters=messages.arrays_of(update.parameters),
        )
    )
    assert torch.equal(arrived.parameters["w"], torch.ones(2))
    both = (msgspec.structs.replace(one, parameters={}) for one in (arrived, update))
    assert next(both) == next(both)


def test_a_number_that_flower_cannot_carry_is_named() -> None:
    status = NodeStatus(name="a", samples=2**63)
    with pytest.raises(DataError, match=r"samples = 9223372036854775808"):
        messages.config_of(status)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (ConfigRecord({"deadline_s": "soon"}), r"'timing' of a message: .*float"),
        (ConfigRecord({}), r"'timing' of a message: .*deadline_s"),
        (ArrayRecord(), r"a message without 'timing'"),
    ],
)
def test_another_timing_is_refused(record: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        messages.struct_of(RecordDict({"timing": record}), "timing", Timing)


@pytest.mark.parametrize(
    "array",
    [
        Array("float32", (2,), "numpy.ndarray", b"not numpy"),
        Array("float32", (2,), "numpy.ndarray", b""),
        Array("float32", (2,), "pickle", b""),
        Array("object", (1,), "numpy.ndarray", Array(np.ones(1)).data),
        Array("float64", (1,), "numpy.ndarray", Array(np.ones(1, np.float32)).data),
    ],
)
def test_a_damaged_array_is_refused(array: Array) -> None:
    content = RecordDict({"them": ArrayRecord({"w": array})})
    with pytest.raises(DataError, match="array 'w' is damaged"):
        messages.tensors_of(content, "them")


def shards_in(**arrays: torch.Tensor) -> list[Shard]:
    record = messages.arrays_of(arrays)
    return messages.shards_of(RecordDict({messages.SHARDS: record}), 2)


def test_shards_need_no_classes() -> None:
    assert [shard["x"].tolist() for shard in shards_in(x=torch.arange(3))] == [
        [0, 1],
        [2],
    ]


def test_arrays_of_unequal_length_are_no_shards() -> None:
    with pytest.raises(DataError, match="differ in their numbers of samples"):
        shards_in(x=torch.ones(4), y=torch.ones(3))
