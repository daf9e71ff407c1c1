"""Many trials over many processes, each of them done once.

    with over_processes(2) as engine:
        for index, result in engine(trial, todo):
            ...

A trial is a function that other processes can import. It is given one thing to do,
which carries its own seed, and ``tick``, to be called as it gets on. What comes out
therefore does not depend on the engine or on how many processes there are. Here is
the engine of this machine; `melisma.ray.sweeps` has the one of a cluster.
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
