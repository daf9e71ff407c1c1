"""Network-aware movement of data between devices: process here, send there, discard.

``move`` finds the plan of least cost with a proof (``solve``), ``move_lp`` the same on
HiGHS. ``online`` plans without knowing the future; ``topologies``, ``mobility`` and
``profiles`` make networks, ``settings`` the paper's.
"""

from typing import TYPE_CHECKING

from melisma.fog.dual import bound
from melisma.fog.forecasts import averages, known
from melisma.fog.links import Links
from melisma.fog.lp import move_lp
from melisma.fog.movement import Costs, Flows, Movement, Plan, check, cost, processed
from melisma.fog.online import alone, carried_out, estimated, first_slot, rolling
from melisma.fog.solve import move
from melisma.lazy import offer

if TYPE_CHECKING:
    from melisma.fog import profiles, settings, topologies

__all__ = [
    "Costs",
    "Flows",
    "Links",
    "Movement",
    "Plan",
    "alone",
    "averages",
    "bound",
    "carried_out",
    "check",
    "cost",
    "estimated",
    "first_slot",
    "known",
    "move",
    "move_lp",
    "processed",
    "profiles",
    "rolling",
    "settings",
    "topologies",
]

offer(globals())  # networkx, which topologies need, is loaded with them
