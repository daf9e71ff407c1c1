"""Frames and values as bytes, with what they mean: both implementations are held to it.

``python -m tests.rpc.vectors`` writes ``vectors.json`` anew. In it, what JSON lacks is
an object with one key that names it: ``{"tuple": […]}``, ``{"float": "nan"}``,
``{"array": "<f4", "shape": […], "hex": …}`` and so on; see ``told``.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from melisma import rpc
from melisma.learning.shards import key_of
from melisma.learning.tensors import to_array
from melisma.rpc import frames, values

PLACE = Path(__file__).with_name("vectors.json")
SAFE = (1 << 53) - 1


@rpc.register(name="VectorPoint")
class Point(msgspec.Struct, frozen=True):
    """A record of two fields."""

    x: int
    y: list[Any]


def told(value: Any) -> Any:
    """Return a value in JSON; ``meant`` returns it."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if abs(value) <= SAFE else {"int": str(value)}
        case np.generic():
            return {"scalar": value.dtype.str, "hex": value.tobytes().hex()}
        case float():
            plain = math.isfinite(value) and math.copysign(1, value) * value == abs(
                value
            )
            return {"float": value if plain and value else repr(value)}
        case bytes():
            return {"bytes": value.hex()}
        case list():
            return [told(item) for item in value]
        case tuple():
            return {"tuple": told(list(value))}
        case frozenset():
            return {"frozenset": told(list(value))}
        case set():
            return {"set": told(list(value))}
        case dict():
            return {"dict": [[told(key), told(item)] for key, item in value.items()]}
        case np.ndarray():
            shape, memory = [*value.shape], value.tobytes().hex()
            return {"array": value.dtype.str, "shape": shape, "hex": memory}
        case torch.Tensor():
            name, array = to_array(value)
            return {
                "tensor": name,
                "shape": [*value.shape],
                "hex": array.tobytes().hex(),
            }
        case Point():
            fields = [["x", told(value.x)], ["y", told(value.y)]]
            return {"record": "VectorPoint", "fields": fields}
    raise TypeError(type(value).__name__)


def meant(written: Any) -> Any:
    """Return the value that was told."""
    match written:
        case list():
            return [meant(item) for item in written]
        case {"int": number}:
            return int(number)
        case {"float": number}:
            return float(number)
        case {"bytes": memory}:
            return bytes.fromhex(memory)
        case {"tuple": items}:
            return tuple(meant(items))
        case {"frozenset": items}:
            return frozenset(meant(items))
        case {"set": items}:
            return set(meant(items))
        case {"dict": entries}:
            return {meant(key): meant(item) for key, item in entries}
        case {"scalar": dtype, "hex": memory}:
            return np.frombuffer(bytes.fromhex(memory), dtype)[0]
        case {"array": dtype, "shape": shape, "hex": memory}:
            return np.frombuffer(bytes.fromhex(memory), dtype).reshape(shape)
        case {"tensor": name, "shape": shape, "hex": memory}:
            flat = torch.frombuffer(
                bytearray.fromhex(memory), dtype=getattr(torch, name)
            )
            return flat.reshape(shape)
        case {"record": "VectorPoint", "fields": fields}:
            return Point(**{name: meant(item) for name, item in fields})
    return written


VALUES: dict[str, Any] = {
    "nothing": None,
    "true": True,
    "whole numbers of each width": [
        *(0, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, SAFE),
        *(-1, -32, -33, -128, -129, -32768, -32769, -(2**31), -(2**31) - 1, -SAFE),
    ],
    "whole numbers that no double holds": [2**53 + 1, 2**64 - 1, -(2**63)],
    "floats": [0.5, 1.0, -0.0, 1e300, math.inf, -math.inf],
    "not a number": math.nan,
    "text": ["", "Δ ≤ ε", "\ufeffbom", "𝕏", "a" * 31, "a" * 32, "a" * 256],
    "bytes": [b"", b"\x00\xff", bytes(256)],
    "lists of each width": [[], list(range(15)), list(range(16))],
    "a dictionary": {"b": 1, "a": [None], "__proto__": 2},
    "keys of several kinds": [
        {1: "x", -1: 0, None: True, "": 3},
        {True: 2, False: b""},
    ],
    "a tuple": (1, ("a", [])),
    "a set": {7},
    "a frozenset": frozenset({"a"}),
    "a record": Point(3, [0.25, (1,)]),
    "a scalar": np.float32(0.1),
    "wide scalars": [np.int64(-5), np.uint8(200), np.bool_(True), np.complex64(1j)],
    "an array": np.array([[1.5, -2.0]], "<f4"),
    "an array without elements": np.zeros((0, 3), "<i8"),
    "an array without dimensions": np.array(7, "<u2"),
    "arrays of each type": [
        np.arange(2).astype(dtype) for dtype in sorted(values.DTYPES)
    ],
    "a tensor": torch.tensor([[1, 2], [3, 4]]),
    "tensors of each real type": [
        torch.tensor([0, 1]).to(getattr(torch, name))
        for name in ("bool", "uint8", "int8", "int16", "int32", "float16", "bfloat16")
    ],
    "a large array": np.arange(1025, dtype="<f4"),
    "large arrays and a small one": {
        "w": torch.arange(4097, dtype=torch.uint8),
        "b": torch.zeros(3),
        "v": np.arange(513, dtype="<f8"),
    },
}

FRAMES: dict[str, frames.Frame] = {
    "Hello of a new session": frames.Hello(
        protocol=(1, 0),
        library="0.9",
        name="phone-1",
        session=b"",
        received=0,
        message_bytes=1 << 30,
        functions={"train": False, "bid": True},
        ping_s=5.0,
    ),
    "Hello that resumes": frames.Hello(
        protocol=(1, 7),
        library="other",
        name="ρ",
        session=bytes(range(16)),
        received=70_000,
        message_bytes=1,
        functions={},
        ping_s=0.5,
    ),
    "Refused for now": frames.Refused("busy"),
    "Refused for good": frames.Refused("expelled", permanent=True),
    "Ack": frames.Ack(300),
    "Bye": frames.Bye("the run is over"),
    "Call": frames.Call(
        1, "bid", 2.5, 0, (), frames.wrap(values.pack_call(["mnist", 10.0, 3], {})[0])
    ),
    "Call without a limit, by name": frames.Call(
        2, "speeds", None, 0, (), frames.wrap(values.pack_call([], {"task": "t"})[0])
    ),
    "Call with a buffer": frames.Call(
        3, "put", None, 9, (4100,),
        frames.wrap(values.pack_call([np.zeros(1025, "<f4")], {})[0]),
    ),
    "Cancel": frames.Cancel(3),
    "Credit": frames.Credit(4, 8),
    "Result": frames.Result(1, 0, (), frames.wrap(values.pack(41)[0])),
    "Result whose body is the first buffer": frames.Result(
        2, 5, (70_000, 4100), frames.BODY_IN_TRANSFER
    ),
    "Stream": frames.Stream(6),
    "Item": frames.Item(6, 0, (), frames.wrap(values.pack("a")[0])),
    "Fault": frames.Fault(7, False, "ConfigError", "give more", "line 1\nline 2"),
    "Fault that refuses": frames.Fault(8, True, "AccessError", "may not", ""),
    "Abort": frames.Abort(5),
}  # fmt: skip


def _ext(code: int, content: Any) -> bytes:
    return msgspec.msgpack.encode(
        msgspec.msgpack.Ext(code, msgspec.msgpack.encode(content))
    )


#: Why, how to read it, and the bytes: neither side takes any of them.
HOSTILE: list[tuple[str, str, bytes]] = [
    ("nothing", "frame", b""),
    ("no array", "frame", b"\x01"),
    ("an array without a tag", "frame", b"\x90"),
    ("an unknown tag", "frame", b"\x91\x0d"),
    ("a tag of text", "frame", b"\x92\xa1a\x01"),
    ("an Ack without its count", "frame", b"\x91\x03"),
    ("an Ack of text", "frame", b"\x92\x03\xa1a"),
    ("bytes after a frame", "frame", b"\x92\x03\x01\x00"),
    ("a frame cut in its middle", "frame", b"\x92\x04\xa5ab"),
    ("an array of 2³² values", "frame", b"\xdd\xff\xff\xff\xff"),
    ("text that is not UTF-8", "frame", b"\x92\x04\xa2\xff\xfe"),
    ("the byte that begins no value", "frame", b"\x92\x03\xc1"),
    ("a Call without its body", "frame", b"\x96\x05\x01\xa1f\xc0\x00\x90"),
    ("a body that is cut", "frame", b"\x97\x05\x01\xa1f\xc0\x00\x90\xdc\x00"),
    ("sizes of text", "frame", b"\x97\x05\x01\xa1f\xc0\x00\x91\xa1a\xc0"),
    ("a Hello of one version number", "frame",
     b"\x99\x01\x91\x01\xa0\xa0\xc4\x00\x00\x00\x80\x05"),
    ("nothing at all", "value", b""),
    ("two values", "value", b"\x01\x02"),
    ("an unknown extension", "value", _ext(99, [])),
    ("bytes of 4 GiB that are not there", "value", b"\xc6\xff\xff\xff\xff"),
    ("a map of 2³² entries", "value", b"\xdf\xff\xff\xff\xff"),
    ("nested twenty thousand times", "value", b"\x91" * 20_000 + b"\xc0"),
    ("a list as a member of a set", "value", _ext(values.SET, [[1]])),
    ("a tuple of no list", "value", _ext(values.TUPLE, 5)),
    ("a scalar of text", "value", _ext(values.SCALAR, ["<U1", b"aaaa"])),
    ("a scalar that is cut", "value", _ext(values.SCALAR, ["<f8", b"1234"])),
    ("an array of objects", "value", _ext(values.ARRAY, ["|O", [1], bytes(8)])),
    ("an array of too few bytes", "value", _ext(values.ARRAY, ["<f4", [2], bytes(4)])),
    ("an array of a negative size", "value",
     _ext(values.ARRAY, ["<f4", [-1], bytes(4)])),
    ("an array of no shape", "value", _ext(values.ARRAY, ["<f4", 1, bytes(4)])),
    ("an array of 2⁶⁶ bytes", "value",
     _ext(values.ARRAY, ["<f4", [2**32, 2**32], bytes(4)])),
    ("an array of a buffer that is not there", "value",
     _ext(values.ARRAY, ["<f4", [1], 0])),
    ("a number as memory", "value", _ext(values.ARRAY, ["|u1", [9], 9.0])),
    ("a tensor of numpy's types", "value", _ext(values.TENSOR, ["<f4", [1], bytes(4)])),
    ("a tensor of a buffer that is not there", "value",
     _ext(values.TENSOR, ["float32", [1], -1])),
    ("a record without a name", "value", _ext(values.RECORD, [5, {}])),
    ("a record without fields", "value", _ext(values.RECORD, ["VectorPoint"])),
    ("a record with numbers for names", "value",
     _ext(values.RECORD, ["VectorPoint", {1: 2}])),
    ("an extension in an extension that is cut", "value",
     _ext(values.TUPLE, [msgspec.Raw(b"\xc7\x05\x01\x91")])),
    ("a batch that ends in a length", "batch", b"\xc2\x01\x00"),
    ("a batch that ends in a frame", "batch", b"\xc2\x05\x00\x00\x00\x92"),
    ("a chunk without its prefix", "chunk", b"\xc1\x01\x02"),
]  # fmt: skip

SHARDS: dict[str, dict[str, torch.Tensor]] = {
    "images and classes": {
        "x": torch.arange(12, dtype=torch.uint8).reshape(3, 2, 2),
        "y": torch.tensor([2, 0, 1]),
    },
    "one value, a name in quotes": {"it's": torch.ones(2)},
    "a name of other letters": {'Δ"\n\x7f\u2028': torch.zeros(1, 1, dtype=torch.bool)},
    "brain floats": {"x": torch.arange(4).bfloat16().reshape(2, 2)},
    "more than a block of SHA-256": {"x": torch.arange(1000, dtype=torch.float32)},
}


def made() -> dict[str, Any]:
    """Return all vectors, as Python encodes them."""
    written: dict[str, Any] = {"values": [], "frames": [], "chunks": [], "batches": []}
    for what, value in VALUES.items():
        body, buffers = values.pack(value)
        hexes = [buffer.tobytes().hex() for buffer in buffers]
        vector = {
            "what": what,
            "value": told(value),
            "hex": body.hex(),
            "buffers": hexes,
        }
        written["values"].append(vector)
    for what, frame in FRAMES.items():
        told_frame = {"kind": type(frame).__name__} | {
            name: _field(getattr(frame, name)) for name in frame.__struct_fields__
        }
        hex = frames.encode(frame).hex()
        written["frames"].append({"what": what, "frame": told_frame, "hex": hex})
    for transfer, data in ((1, b"abc"), (1 << 40, b"")):
        hex = (frames.chunk_prefix(transfer) + data).hex()
        vector = {"transfer": transfer, "data": data.hex(), "hex": hex}
        written["chunks"].append(vector)
    acks = [frames.encode(frames.Ack(n)) for n in (1, 300)]
    hexes = [ack.hex() for ack in acks]
    written["batches"].append({"frames": hexes, "hex": frames.batch(acks).hex()})
    written["batches"].append({"frames": [], "hex": frames.batch([]).hex()})
    written["hostile"] = [
        {"what": what, "as": kind, "hex": data.hex()} for what, kind, data in HOSTILE
    ]
    written["shards"] = [
        {"what": what, "shard": told(shard), "key": key_of(shard)}
        for what, shard in SHARDS.items()
    ]
    return written


def _field(value: Any) -> Any:
    """Return a field of a frame in JSON: a body as it is, hexadecimal."""
    if isinstance(value, msgspec.Raw):
        return {"raw": bytes(value).hex()}
    return told(list(value)) if isinstance(value, tuple) else told(value)


READ: dict[str, Callable[[bytes], Any]] = {
    "frame": lambda data: frames.unwrap(body) if (
        body := getattr(frames.decode(data), "body", None)
    ) is not None else None,
    "value": lambda data: values.unpack(data, []),
    "batch": lambda data: list(frames.split_batch(data)),
    "chunk": frames.split_chunk,
}  # fmt: skip


def main() -> None:
    """Write the vectors, one to a line."""
    lines = []
    for kind, vectors in made().items():
        rows = ",\n".join(json.dumps(v, ensure_ascii=False) for v in vectors)
        lines.append(f'"{kind}": [\n{rows}\n]')
    PLACE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
