"""Trials over the processes of this machine, one thread each.

Every trial carries its own seed, so what comes out does not depend on how many
processes there are.
"""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager

from .kit import Result, Spread, Todo

#: Told of how many trials there are, gives what is to be called as each ends.
Begin = Callable[[int], Callable[[], None]]

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def over_processes(
    processes: int | None = None, begin: Begin = lambda trials: lambda: None
) -> Spread:
    """Spread trials over so many processes, or as many as there are cores.

    What a trial raises ends the others.
    """

    def spread(trial: Callable[[Todo], Result], todo: Sequence[Todo]) -> list[Result]:
        tick = begin(len(todo))
        workers = min(processes or os.cpu_count() or 1, len(todo))
        context = multiprocessing.get_context("spawn")
        with _single_threads(), ProcessPoolExecutor(workers, context) as pool:
            futures = [pool.submit(trial, one) for one in todo]
            try:
                for future in as_completed(futures):
                    future.result()
                    tick()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
            return [future.result() for future in futures]

    return spread


@contextmanager
def _single_threads() -> Iterator[None]:
    """Processes started in the block have one thread: set before numpy is loaded."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
