"""How fast this machine multiplies matrices, by how they lie in memory."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from melisma.learning.devices import TorchDevice, multiplies_bfloat16
from melisma.learning.kernels import slowdown

#: Rows and columns of each matrix, and how long each layout is timed.
SIZE, SPENT_S = 256, 0.06
#: Products of one layout that take this many times as long as another's are slow.
UNEVEN_FROM = 4.0
#: All threads together that reach less than this share of one's speed are in the way.
SLOWER_BELOW = 0.8

#: The same product, its factors stored by rows or by columns.
_LAYOUTS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "A·B": lambda a, b: a @ b,
    "A·Bᵀ": lambda a, b: a @ b.t(),
    "Aᵀ·B": lambda a, b: a.t() @ b,
    "Aᵀ·Bᵀ": lambda a, b: a.t() @ b.t(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Products:
    """Products of float32 matrices on this CPU."""

    seconds: dict[str, float]  #: of one product, by layout
    onednn_slowdown: float  #: small products take so many times as long through it
    threads: int
    single_s: float  #: of the first layout's product, on one thread

    @property
    def speedup(self) -> float:
        """Return how many times as fast all threads are as one."""
        return self.single_s / next(iter(self.seconds.values()))

    @property
    def flops(self) -> dict[str, float]:
        """Return FLOP/s by layout."""
        return {layout: 2.0 * SIZE**3 / s for layout, s in self.seconds.items()}

    @property
    def unevenness(self) -> float:
        """Return how many times as long the slowest layout takes as the fastest."""
        return max(self.seconds.values()) / min(self.seconds.values())


def products() -> Products:
    """Time products in each layout: the best of what fits in a fraction of a second."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.rand(SIZE, SIZE, generator=generator) for _ in range(2))
    seconds = {name: _best_s(partial(work, a, b)) for name, work in _LAYOUTS.items()}
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        single_s = _best_s(lambda: a @ b)
    finally:
        torch.set_num_threads(threads)
    return Products(
        seconds=seconds,
        onednn_slowdown=slowdown(),
        threads=threads,
        single_s=single_s,
    )


def backend() -> str:
    """Return which libraries multiply on the CPU.

    >>> "OpenBLAS" in backend() or "MKL" in backend() or bool(backend())
    True
    """
    lines = torch.__config__.show().splitlines()
    named = [line for line in lines if "BLAS_INFO=" in line]
    blas = named[0].partition("BLAS_INFO=")[2].partition(",")[0] if named else "?"
    onednn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return f"{blas}{', oneDNN' if onednn else ''}"


def accelerators() -> dict[str, float]:
    """Return the GPUs that torch sees, by name, with their memory in bytes.

    0 where it is the machine's own.
    """
    if torch.cuda.is_available():
        found = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
        return {f"cuda:{k} {p.name}": p.total_memory for k, p in enumerate(found)}
    return {"mps": 0.0} if torch.backends.mps.is_available() else {}


def bfloat16_here() -> bool:
    """Return whether this CPU has bfloat16 products that torch can use."""
    return multiplies_bfloat16(TorchDevice("cpu"))


def try_out(name: str) -> None:
    """Multiply once on a device; RuntimeError if it cannot."""
    one = torch.ones(8, 8, device=name)
    (one @ one).sum().item()


def _best_s(work: Callable[[], object]) -> float:
    work()
    best, began = float("inf"), time.perf_counter()
    while time.perf_counter() < began + SPENT_S or best == float("inf"):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best
