"""Learners that can be given work, simulated and live, behind narrow protocols."""

from typing import TYPE_CHECKING

from melisma.lazy import offer

if TYPE_CHECKING:
    from melisma.fleets.simulated import Conditions, SimulatedFleet

__all__ = ["Conditions", "SimulatedFleet"]

offer(globals(), simulated="Conditions SimulatedFleet")
