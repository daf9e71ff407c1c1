"""The loop of global cycles, and what one is: averaging, coded, fog, several tasks."""

from typing import TYPE_CHECKING

from melisma.lazy import offer

if TYPE_CHECKING:
    from melisma.algorithms.association import Association, Terms
    from melisma.algorithms.clock import VirtualClock
    from melisma.algorithms.fog import Fog
    from melisma.algorithms.multitask import (
        DelayEstimates,
        Entry,
        TaskScheduler,
        seconds_of,
    )
    from melisma.algorithms.task import ScheduledTask

__all__ = [
    "Association",
    "DelayEstimates",
    "Entry",
    "Fog",
    "ScheduledTask",
    "TaskScheduler",
    "Terms",
    "VirtualClock",
    "seconds_of",
]

offer(
    globals(),
    association="Association Terms",
    clock="VirtualClock",
    fog="Fog",
    multitask="Entry DelayEstimates TaskScheduler seconds_of",
    task="ScheduledTask",
)
