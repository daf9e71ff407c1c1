"""Steps that differ in their data alone: on an NVIDIA GPU recorded once, and replayed.

A step of a small network is some hundred kernels of microseconds each, and to start
them one by one from Python takes longer than they run. A CUDA graph starts all at once.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import torch

#: Steps below which recording does not pay.
FEW = 12
#: Taken before one is recorded: libraries set themselves up, optimisers make state.
FIRST = 2


class _Recorder(NamedTuple):
    """Where graphs of a device are recorded; made once, as libraries keep memory."""

    stream: torch.cuda.Stream
    pool: Any
    last: list[torch.cuda.CUDAGraph]  #: keeps the pool's memory from being given back


_recorders: dict[torch.device, _Recorder] = {}


def repeated(step: Callable[[], None], times: int, device: torch.device) -> None:
    """Take a step so often.

    It reads what changes from tensors on the device, and changes nothing but tensors.
    """
    if device.type != "cuda" or times < FEW:
        for _ in range(times):
            step()
        return
    at, here = _recorder(device), torch.cuda.current_stream(device)
    at.stream.wait_stream(here)
    with torch.cuda.stream(at.stream):
        for _ in range(FIRST):
            step()
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(pool=at.pool, capture_error_mode="thread_local")
        try:
            step()
        except BaseException:
            with suppress(RuntimeError):  # it says again that this went wrong
                graph.capture_end()
            raise
        graph.capture_end()
        for _ in range(times - FIRST):
            graph.replay()
    here.wait_stream(at.stream)
    at.last[:] = [graph]


def _recorder(device: torch.device) -> _Recorder:
    if device not in _recorders:
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        _recorders[device] = _Recorder(stream, torch.cuda.graph_pool_handle(), [])
    return _recorders[device]
