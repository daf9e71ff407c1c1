"""Learners that can be given work, simulated and live, behind narrow protocols."""

from typing import TYPE_CHECKING

from melisma.lazy import offer

if TYPE_CHECKING:
    from melisma.fleets.simulated import Conditions, SimulatedLearners

__all__ = ["Conditions", "SimulatedLearners"]

offer(globals(), simulated="Conditions SimulatedLearners")
