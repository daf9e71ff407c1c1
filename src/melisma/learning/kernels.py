"""Which of torch's kernels train a model on a CPU: oneDNN's, or the plain ones.

On ARM torch hands x·Wᵀ, the forward product of every linear layer, to oneDNN, which
plans it anew and has threads of its own wait for one another. On a Neoverse-N1 with
torch 2.13 a small product takes 5 to 100 times as long as in OpenBLAS, and a step of
training so many times as long:

    perceptrons 1.7 to 2.6    2-d convolutions 1.0 to 2.7    GRU 2.1    attention 1.4

One-dimensional and depthwise convolutions are up to three times as fast in oneDNN:
models with such layers keep it. On x86 products of float32 do not go through oneDNN,
and its convolutions are the fast ones: nothing is switched off there.

The choice follows a measurement. Rounding depends on it, so it must be the same in all
processes of a machine: the measured ratio is either about 1 or above 6, and the
threshold is far from both.
"""

import threading
import time
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import nn

#: oneDNN is slow where x·Wᵀ takes this many times as long as without it.
SLOW_FROM = 2.5
#: Samples, inputs and units of the product that is timed: small, so that what oneDNN
#: spends on each call shows, and yet one that torch hands to it.
_SHAPE = (32, 32, 10)
#: Products that are timed together, and how often.
_BLOCK, _REPEATS = 10, 5

_lock = threading.Lock()
_onednn: Any = torch.backends.mkldnn  # by its old name


class _WithoutOneDnn:
    """Switches oneDNN off while any thread is inside; the switch is the process's."""

    def __init__(self) -> None:
        self._inside, self._before = 0, True

    def __enter__(self) -> None:
        with _lock:
            if not self._inside:
                self._before = _onednn.enabled
                _onednn.enabled = False
            self._inside += 1

    def __exit__(self, *exception: object) -> None:
        with _lock:
            self._inside -= 1
            if not self._inside:
                _onednn.enabled = self._before


_without_onednn = _WithoutOneDnn()


def fast_kernels(model: nn.Module) -> AbstractContextManager[None]:
    """Return a context in which this CPU computes ``model`` in float32 fast."""
    if any(map(_is_fast_in_onednn, model.modules())) or not onednn_is_slow():
        return nullcontext()
    return _without_onednn


def onednn_is_slow() -> bool:
    """Return whether oneDNN slows this CPU's products down; measured once."""
    with _lock:  # two threads must not measure at once, nor one while another trains
        return _measured()


@cache
def _measured() -> bool:
    return slowdown() >= SLOW_FROM


def slowdown() -> float:
    """Return how many times as long x·Wᵀ takes with oneDNN as without; takes 5 ms."""
    samples, inputs, units = _SHAPE
    x, W = torch.ones(samples, inputs), torch.ones(units, inputs)

    def seconds(enabled: bool) -> float:
        _onednn.enabled = enabled
        torch.mm(x, W.t())
        began = time.perf_counter()
        for _ in range(_BLOCK):
            torch.mm(x, W.t())
        return time.perf_counter() - began

    before = _onednn.enabled
    try:
        # In turn, so that load falls on both; the best, so that a pause spoils neither.
        pairs = [(seconds(True), seconds(False)) for _ in range(_REPEATS)]
    finally:
        _onednn.enabled = before
    return min(on for on, _ in pairs) / min(off for _, off in pairs)


def _is_fast_in_onednn(layer: nn.Module) -> bool:
    """Whether this is a one-dimensional or depthwise convolution."""
    if isinstance(layer, nn.Conv1d):
        return True
    return isinstance(layer, nn.Conv2d) and layer.groups == layer.in_channels > 1
