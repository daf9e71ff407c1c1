"""Python's encoder and decoder, held to the vectors that other languages are held to.

`tests/browser/test_wire.py` holds the JavaScript to the same file.
"""

import json
from typing import Any

import msgspec
import pytest
from tests.rpc.vectors import PLACE, READ, made, meant, told

from melisma.learning.shards import key_of
from melisma.rpc import frames, values
from melisma.rpc.values import Buffer, Malformed

KEPT = json.loads(PLACE.read_text(encoding="utf-8"))


def vectors(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "vector", [pytest.param(v, id=v.get("what", v["hex"])) for v in KEPT[kind]]
    )


def buffers_of(vector: dict[str, Any]) -> list[Buffer]:
    return [values._copy(bytes.fromhex(hex)) for hex in vector["buffers"]]


def test_the_kept_vectors_are_what_python_encodes() -> None:
    # After a deliberate change: python -m tests.rpc.vectors
    assert json.loads(json.dumps(made())) == KEPT


@vectors("values")
def test_a_value_is_packed_as_the_vector_says(vector: dict[str, Any]) -> None:
    body, buffers = values.pack(meant(vector["value"]))
    assert body.hex() == vector["hex"]
    assert [buffer.tobytes().hex() for buffer in buffers] == vector["buffers"]


@vectors("values")
def test_a_value_is_unpacked_as_the_vector_says(vector: dict[str, Any]) -> None:
    value = values.unpack(bytes.fromhex(vector["hex"]), buffers_of(vector))
    assert told(value) == vector["value"]


@vectors("frames")
def test_a_frame_is_decoded_as_the_vector_says(vector: dict[str, Any]) -> None:
    frame = frames.decode(bytes.fromhex(vector["hex"]))
    expected = vector["frame"]
    assert type(frame).__name__ == expected["kind"]
    for name in frame.__struct_fields__:
        value = getattr(frame, name)
        if isinstance(value, msgspec.Raw):
            assert bytes(value).hex() == expected[name]["raw"]
        else:
            assert (
                told(list(value) if isinstance(value, tuple) else value)
                == (expected[name])
            )
    assert frames.encode(frame).hex() == vector["hex"]


@vectors("hostile")
def test_hostile_bytes_are_refused(vector: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        READ[vector["as"]](bytes.fromhex(vector["hex"]))


def test_chunks_and_batches_are_split_as_the_vectors_say() -> None:
    for chunk in KEPT["chunks"]:
        transfer, data = frames.split_chunk(bytes.fromhex(chunk["hex"]))
        assert (transfer, data.hex()) == (chunk["transfer"], chunk["data"])
    for batch in KEPT["batches"]:
        parts = frames.split_batch(bytes.fromhex(batch["hex"]))
        assert [part.hex() for part in parts] == batch["frames"]


def test_shards_have_the_keys_that_the_vectors_say() -> None:
    for vector in KEPT["shards"]:
        assert key_of(meant(vector["shard"])) == vector["key"], vector["what"]
