"""Melisma: many unlike devices train one model by a deadline.

    import melisma as mel

    run = mel.simulate(mel.Job(scheme="csa", deadline="1 s"))
    print(run.history.metric[-1], run.folder)

What a user needs is here, and loaded when it is first used: importing this package
loads no torch.
"""

from typing import TYPE_CHECKING

from melisma.lazy import offer

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
    from melisma.launch.server import Server
    from melisma.learning.metrics import Metric
    from melisma.learning.task import Task, task
    from melisma.runs.records import (
        Aggregated,
        Allocated,
        Carried,
        Checked,
        Downloaded,
        Dropped,
        Evaluated,
        Expelled,
        GoesOn,
        Halted,
        Joined,
        Left,
        Metrics,
        Moved,
        Refused,
        Steered,
        Stopped,
        Trained,
        Uploaded,
        Waited,
    )
    from melisma.schemes import SCHEMES, scheme
    from melisma.system.cell import cell
    from melisma.system.problem import Allocation, Problem
    from melisma.views.history import History
    from melisma.views.run import Run, open

__version__ = "0.2.0"

__all__ = [
    "SCHEMES",
    "Aggregated",
    "Allocated",
    "Allocation",
    "Carried",
    "Checked",
    "Comparison",
    "ConfigError",
    "Control",
    "DataError",
    "Downloaded",
    "Dropped",
    "Evaluated",
    "Expelled",
    "GoesOn",
    "Halted",
    "History",
    "InfeasibleError",
    "Job",
    "Joined",
    "Left",
    "MelismaError",
    "Metric",
    "Metrics",
    "Moved",
    "Problem",
    "Refused",
    "RpcError",
    "Run",
    "Server",
    "Steered",
    "Stopped",
    "Task",
    "Trained",
    "TrainingError",
    "Uploaded",
    "Waited",
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
    "task",
]

offer(
    globals(),
    algorithms__control="Control",
    comparison__api="compare compare_async",
    comparison__outcomes="Comparison",
    errors="ConfigError DataError InfeasibleError MelismaError RpcError TrainingError",
    jobs__files="load",
    jobs__schema="Job",
    launch__api="join join_async resume resume_async run run_async "
    "serve simulate simulate_async",
    launch__server="Server",
    learning__metrics="Metric",
    learning__task="Task task",
    runs__records="Aggregated Allocated Carried Checked Downloaded Dropped Evaluated "
    "Expelled GoesOn Halted Joined Left Metrics Moved Refused Steered Stopped Trained "
    "Uploaded Waited",
    schemes="SCHEMES scheme",
    system__cell="cell",
    system__problem="Allocation Problem",
    views__history="History",
    views__run="Run open",
)
