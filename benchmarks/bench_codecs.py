"""Codecs for what travels: how small, how exact, how fast, beside zstd.

    python benchmarks/bench_codecs.py            64 MB, best of seven
    python benchmarks/bench_codecs.py --quick    4 MB, best of two

The change is a real one: ThreeNN (574,000 parameters) after a pass over mnist-5k by
SGD. Speed is of copies of it, as tensors of their own, in GB of float32 a second of CPU
time on one thread; sizes and errors are of one. `size` is that of the payload over the
ideal that each codec's file states, for all values; `error` is ‖C(x) − x‖/‖x‖ without
error feedback. zstd takes the raw float32 of one copy at a time.

Bars: int8 encodes and decodes 1 GB/s, and no size is over 1.02.
"""

import math
import time
from collections.abc import Callable, Iterator
from typing import Annotated, NamedTuple

import numpy as np
import torch
import typer
from peers.environments import lack_of
from rich.console import Console
from rich.table import Table

from melisma.learning import models
from melisma.learning.codecs import CODECS, Codec, PowerSGD, TopK, codec_of
from melisma.learning.data import load
from melisma.learning.losses import numbers
from melisma.learning.parameters import Parameters, norm_of, parameters_of
from melisma.learning.samples import Arrays
from melisma.learning.settings import Training
from melisma.learning.training import batch_plan, train
from melisma.provenance import provenance

MEGABYTES, REPEATS = 64, 7
LEVELS = (1, 3)  #: of zstd
SHARES = (0.1, 10, 25, 50)  #: of top-k, in percent, besides that of its example
LEAST_GB_S, MOST_SIZE = 1.0, 1.02
BITS = {"fp32": 32, "fp16": 16, "bf16": 16, "int8": 8, "int4": 4}  #: a value
out = Console(width=120)


class Row(NamedTuple):
    """What one codec does."""

    name: str
    smaller: float  #: times, than float32
    size: float | None  #: over the ideal
    error: float
    encode: float  #: GB/s
    decode: float

    def missed(self) -> Iterator[str]:
        """Name the bars that it is below."""
        if self.size is not None and self.size > MOST_SIZE:
            yield f"{self.name} has {self.size:.3f} times its ideal size"
        if self.name == "int8" and min(self.encode, self.decode) < LEAST_GB_S:
            yield f"int8 is below {LEAST_GB_S:g} GB/s"


def change() -> Parameters:
    """Train, and return how the model has changed."""
    samples, training = Arrays(numbers(load("mnist-5k").train[:])), Training(rate=0.05)
    model = models.build("ThreeNN", seed=0)
    before = parameters_of(model)
    rows, rng = np.arange(len(samples)), np.random.default_rng(0)
    train(model, samples, batch_plan(rows, 1, training, rng), training)
    return {name: after - before[name] for name, after in parameters_of(model).items()}


def ideal_bytes(codec: Codec, like: Parameters) -> float:
    """Return the size that a codec's file states as the ideal."""
    n = sum(tensor.numel() for tensor in like.values())
    match codec:
        case PowerSGD(rank=r):
            thin = [(len(t), t.numel() // len(t)) for t in like.values() if t.ndim > 1]
            whole = n - sum(a * b for a, b in thin if r * (a + b) < a * b)
            return 4 * (
                whole + sum(r * (a + b) for a, b in thin if r * (a + b) < a * b)
            )
        case TopK():
            k = codec.kept(n)
            nats = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
            return 4 * k + nats / math.log(2) / 8
    return n * BITS[str(codec)] / 8 if str(codec) in BITS else 4.0 * round(n / 100)


def speed(work: Callable[[], object], size: int, repeats: int) -> float:
    """Return GB a second of CPU time, of the quickest."""
    times = []
    for _ in range(repeats):
        begun = time.process_time()
        work()
        times.append(time.process_time() - begun)
    return size / min(times) / 1e9


def of_codec(codec: Codec, one: Parameters, many: Parameters, repeats: int) -> Row:
    """Measure a codec."""
    encoded = codec.encode(one, 0)
    decoded = codec.decode(encoded, one)
    wrong = {name: decoded[name] - one[name] for name in one}
    whole, size = (sum(t.nbytes for t in some.values()) for some in (one, many))
    large = codec.encode(many, 0)
    return Row(
        name=str(codec),
        smaller=whole / encoded.payload.size,
        size=encoded.payload.size / ideal_bytes(codec, one),
        error=norm_of(wrong) / norm_of(one),
        encode=speed(lambda: codec.encode(many, 0), size, repeats),
        decode=speed(lambda: codec.decode(large, many), size, repeats),
    )


def of_zstd(level: int, one: Parameters, repeats: int) -> Row:
    """Measure zstd on raw float32."""
    import zstandard

    raw = torch.cat([tensor.reshape(-1) for tensor in one.values()]).numpy().tobytes()
    packer = zstandard.ZstdCompressor(level=level)
    packed = packer.compress(raw)
    unpack = zstandard.ZstdDecompressor().decompress
    return Row(
        name=f"zstd {level}",
        smaller=len(raw) / len(packed),
        size=None,
        error=0.0,
        encode=speed(lambda: packer.compress(raw), len(raw), repeats),
        decode=speed(lambda: unpack(packed), len(raw), repeats),
    )


def main(
    *,
    megabytes: Annotated[int, typer.Option(help="Of float32.", min=1)] = MEGABYTES,
    repeats: Annotated[int, typer.Option(min=1)] = REPEATS,
    quick: Annotated[bool, typer.Option(help="Little data, two repeats.")] = False,
) -> None:
    """Print a row for each codec; exit with 1 if a bar is missed."""
    out.print(provenance(), soft_wrap=True)
    torch.set_num_threads(1)
    megabytes, repeats = (4, 2) if quick else (megabytes, repeats)
    one = change()
    copies = math.ceil(megabytes * 1e6 / sum(t.nbytes for t in one.values()))
    many = {f"{i}/{name}": t.clone() for i in range(copies) for name, t in one.items()}
    codecs = [codec_of(kind.example) for kind in CODECS.values()]
    codecs += [codec_of(f"top-k {percent} %") for percent in SHARES]
    rows = [of_codec(codec, one, many, repeats) for codec in codecs]
    lack = lack_of({"zstandard": "zstandard"})
    rows += [] if lack else [of_zstd(level, one, repeats) for level in LEVELS]
    table = Table("", "times smaller", "size", "error", "encode GB/s", "decode GB/s")
    for row in rows:
        table.add_row(
            row.name,
            f"{row.smaller:.2f}",
            "" if row.size is None else f"{row.size:.3f}",
            f"{row.error:.2g}",
            f"{row.encode:.2f}",
            f"{row.decode:.2f}",
        )
    out.print(table)
    if lack:
        out.print(f"no rows of zstd: {lack}", soft_wrap=True)
    if missed := [bar for row in rows for bar in row.missed()]:
        out.print("missed: " + "; ".join(missed), soft_wrap=True)
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
