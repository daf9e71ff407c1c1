"""Melisma: many unlike devices train one model by a deadline.

    import melisma as mel

    run = mel.simulate(mel.Job(scheme="csa", deadline="1 s"))
    print(run.history.accuracy[-1], run.folder)

What a user needs is here, and loaded when it is first used: importing this package
loads no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from melisma.algorithms.control import Control
    from melisma.comparison.api import compare, compare_async
    from melisma.comparison.outcomes import Comparison
    from melisma.errors import (
        ConfigError,
        DataError,
        InfeasibleError,
        MelismaError,
        RpcError,
        TrainingError,
    )
    from melisma.jobs.files import load
    from melisma.jobs.schema import Job
    from melisma.launch.api import (
        Server,
        join,
        join_async,
        resume,
        resume_async,
        run,
        run_async,
        serve,
        simulate,
        simulate_async,
    )
    from melisma.runs.records import (
        Aggregated,
        Allocated,
        Checked,
        Downloaded,
        Dropped,
        Evaluated,
        Expelled,
        Halted,
        Joined,
        Left,
        Moved,
        Refused,
        Steered,
        Trained,
        Uploaded,
    )
    from melisma.schemes import SCHEMES, scheme
    from melisma.system.cell import cell
    from melisma.system.problem import Allocation, Problem
    from melisma.views.history import History
    from melisma.views.run import Run, open

__version__ = "0.2.0"

#: Where each name lives.
_HOMES = {
    "algorithms.control": ("Control",),
    "comparison.api": ("compare", "compare_async"),
    "comparison.outcomes": ("Comparison",),
    "errors": (
        *("ConfigError", "DataError", "InfeasibleError", "MelismaError"),
        *("RpcError", "TrainingError"),
    ),
    "jobs.files": ("load",),
    "jobs.schema": ("Job",),
    "launch.api": (
        *("Server", "join", "join_async", "resume", "resume_async"),
        *("run", "run_async", "serve", "simulate", "simulate_async"),
    ),
    "runs.records": (
        *("Aggregated", "Allocated", "Checked", "Downloaded", "Dropped", "Evaluated"),
        *("Expelled", "Halted", "Joined", "Left", "Moved", "Refused", "Steered"),
        *("Trained", "Uploaded"),
    ),
    "schemes": ("SCHEMES", "scheme"),
    "system.cell": ("cell",),
    "system.problem": ("Allocation", "Problem"),
    "views.history": ("History",),
    "views.run": ("Run", "open"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "SCHEMES",
    "Aggregated",
    "Allocated",
    "Allocation",
    "Checked",
    "Comparison",
    "ConfigError",
    "Control",
    "DataError",
    "Downloaded",
    "Dropped",
    "Evaluated",
    "Expelled",
    "Halted",
    "History",
    "InfeasibleError",
    "Job",
    "Joined",
    "Left",
    "MelismaError",
    "Moved",
    "Problem",
    "Refused",
    "RpcError",
    "Run",
    "Server",
    "Steered",
    "Trained",
    "TrainingError",
    "Uploaded",
    "cell",
    "compare",
    "compare_async",
    "join",
    "join_async",
    "load",
    "open",
    "resume",
    "resume_async",
    "run",
    "run_async",
    "scheme",
    "serve",
    "simulate",
    "simulate_async",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
