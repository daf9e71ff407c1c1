"""Learners, the delay law, what a scheme sees and what it returns."""

from melisma.system.cell import CSA_WORKLOAD, Channel, cell, clocks
from melisma.system.energy import Budget, EnergyLaw, PowerProfile, Spending
from melisma.system.law import DelayLaw, Mode, Workload
from melisma.system.metrics import (
    cycle_s,
    max_staleness,
    mean_staleness,
    truancy,
    utilisation,
)
from melisma.system.multitask import Assignment, MultiTaskProblem, Solved
from melisma.system.problem import Allocation, Problem, learner_s
from melisma.system.states import States, heated

__all__ = [
    "CSA_WORKLOAD",
    "Allocation",
    "Assignment",
    "Budget",
    "Channel",
    "DelayLaw",
    "EnergyLaw",
    "Mode",
    "MultiTaskProblem",
    "PowerProfile",
    "Problem",
    "Solved",
    "Spending",
    "States",
    "Workload",
    "cell",
    "clocks",
    "cycle_s",
    "heated",
    "learner_s",
    "max_staleness",
    "mean_staleness",
    "truancy",
    "utilisation",
]
