"""Run many trials over many processes, each of them once.

    with over_processes(2) as engine:
        for index, result in engine(trial, todo):
            ...

A trial is a function that other processes can import. It is given one item of ``todo``,
which carries its own seed, and ``tick``, to call as it makes progress. Its result
therefore depends neither on the engine nor on the number of processes. The engines here
use this machine; `melisma.ray.sweeps` has the engine for a cluster.
"""

from melisma.comparison.sweeps.engine import TRIES, Engine, Result, Tick, Todo, in_turn
from melisma.comparison.sweeps.parts import Parts, encoded
from melisma.comparison.sweeps.processes import over_processes
from melisma.errors import LostError

__all__ = [
    "TRIES",
    "Engine",
    "LostError",
    "Parts",
    "Result",
    "Tick",
    "Todo",
    "encoded",
    "in_turn",
    "over_processes",
]
