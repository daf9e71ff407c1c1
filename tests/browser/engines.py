"""The same batches in PyTorch and in a page, and how far apart they end."""

import base64
import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
import numpy as np
import torch
from tests.web.browser import Page
from torch import Tensor, nn

from melisma.learning.losses import loss_of, transform_of
from melisma.learning.outline import Layer, outline_of
from melisma.learning.parameters import Parameters, norm_of, parameters_of
from melisma.learning.samples import Arrays, Batch, length, transformed
from melisma.learning.settings import Training
from melisma.learning.training import train

#: Trains in the page: one order on all batches, and an evaluation of all samples.
SCRIPT = """(async (given) => {
  const { openEngine } = await import("/static/engine/engine.js");
  const TYPES = { float32: Float32Array, uint8: Uint8Array, int64: BigInt64Array };
  const array = ({ dtype, shape, base64 }) => {
    const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
    return { shape, data: new TYPES[dtype](bytes.buffer) };
  };
  const written = ({ shape, data }) => {
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    let text = "";
    for (const byte of bytes) text += String.fromCharCode(byte);
    return { shape, base64: btoa(text) };
  };
  const each = (record, by) =>
    Object.fromEntries(Object.entries(record).map(([name, v]) => [name, by(v)]));
  const rows = ({ shape: [, ...rest], data }, first, last) => {
    const size = rest.reduce((a, b) => a * b, 1);
    const shape = [last - first, ...rest];
    return { shape, data: data.slice(first * size, last * size) };
  };
  try {
    const engine = await openEngine({ backend: given.backend ?? undefined });
    const net = engine.network(given.layers, given.training);
    net.load(new Map(Object.entries(each(given.parameters, array))));
    net.fresh();
    if (given.correction)
      net.correct(new Map(Object.entries(each(given.correction, array))));
    const { x, y } = each(given.batch, array), losses = [];
    for (const rate of given.rates) {
      if (losses.length) net.fresh({ rate });
      let first = 0;
      for (const size of given.sizes) {
        const last = first + size;
        losses.push(await net.train(rows(x, first, last), y && rows(y, first, last)));
        first = last;
      }
    }
    const parameters = each(Object.fromEntries(net.parameters()), written);
    return { losses, parameters, judged: await net.evaluate(x, y) };
  } catch (error) {
    return { error: error.name, message: error.message };
  }
})"""


class InPage(NamedTuple):
    """What a page made of the batches."""

    parameters: Parameters
    losses: list[float]
    judged: dict[str, float]


class Gap(NamedTuple):
    """How far a page's parameters are from PyTorch's, of the way that these went."""

    parameters: float
    loss: float  #: of the mean over batches, of itself
    judged: float  #: of the mean loss over all samples afterwards, of itself


def asked(page: Page, **given: Any) -> dict[str, Any]:
    """Return what the script returns."""
    answer = page.look(f"{SCRIPT}({json.dumps(given)})")
    assert isinstance(answer, dict)
    return answer


def in_page(
    page: Page,
    layers: list[Layer],
    parameters: Parameters,
    batch: Batch,
    training: Training,
    sizes: Sequence[int],
    rates: Sequence[float],
    correction: Parameters | None,
    backend: str | None,
) -> InPage:
    """Train in a page, on batches of these sizes, once at each of the rates."""
    answer = asked(
        page,
        layers=msgspec.to_builtins(layers),
        training=msgspec.to_builtins(training),
        parameters=_written(parameters),
        batch=_written(batch),
        sizes=list(sizes),
        rates=list(rates),
        correction=correction and _written(correction),
        backend=backend,
    )
    assert "error" not in answer, answer
    return InPage(_read(answer["parameters"]), answer["losses"], answer["judged"])


def gap(
    page: Page,
    model: nn.Module,
    batch: Batch,
    training: Training,
    correction: Parameters | None = None,
    backend: str | None = None,
    sizes: Sequence[int] = (),
    rates: Sequence[float] = (),
) -> Gap:
    """Train a model in PyTorch, as learners do, and in a page; compare.

    In one order on batches of the training's size, or of these; or in an order at each
    of several rates.
    """
    samples = transformed(Arrays(batch), transform_of(training))
    ours, before = copy.deepcopy(model), parameters_of(model)
    layers = outline_of(model, samples[:1]["x"].shape[1:])
    d, rates = length(batch), rates or [training.rate]
    if not sizes:
        sizes = [min(training.batch, d - i) for i in range(0, d, training.batch)]
    plan = np.full((len(sizes), max(sizes)), -1)
    plan[np.arange(max(sizes)) < np.array(sizes)[:, None]] = np.arange(d)
    losses = [
        train(ours, samples, plan, replace(training, rate=rate), correction=correction)
        for rate in rates
    ]
    theirs = in_page(
        page, layers, before, batch, training, sizes, rates, correction, backend
    )
    after = parameters_of(ours)
    far = norm_of({n: after[n] - before[n] for n in after})
    apart = norm_of({n: after[n] - theirs.parameters[n] for n in after})
    work = sum(done.loss for done in losses) / len(losses)
    loss = float(np.average(theirs.losses, weights=[*sizes] * len(rates)))
    judged = _loss(ours, samples[:], training)
    return Gap(
        apart / far,
        abs(loss - work) / abs(work),
        abs(theirs.judged["loss"] - judged) / abs(judged),
    )


def _loss(model: nn.Module, batch: Batch, training: Training) -> float:
    with torch.no_grad():
        return float(loss_of(training)(model.eval(), batch).mean())


def _written(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    return {
        name: {
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "shape": list(tensor.shape),
            "base64": base64.b64encode(tensor.numpy().tobytes()).decode(),
        }
        for name, tensor in tensors.items()
    }


def _read(written: Mapping[str, Any]) -> Parameters:
    return {
        name: torch.frombuffer(
            bytearray(base64.b64decode(value["base64"])), dtype=torch.float32
        ).reshape(value["shape"])
        for name, value in written.items()
    }
