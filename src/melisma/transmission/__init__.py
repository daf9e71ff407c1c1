"""Fair use of shared channels: who sends for how long, slot by slot.

``rules`` decides a slot (Lyapunov drift plus penalty) on the state in ``queues``;
``slots`` simulates many slots under a policy. ``uploads`` applies the rule to the
uploads of coded cycles, event by event (``air``); ``radios`` is the rule for training
with batteries (``power``), slot by slot.
"""

from melisma.transmission.power import Power
from melisma.transmission.queues import Decisions, Observed, Queues, Setting
from melisma.transmission.radios import Account, Radios
from melisma.transmission.rules import lyapunov, step, transmission
from melisma.transmission.slots import (
    FADED,
    Policy,
    Trace,
    greedy,
    jain,
    simulate,
    utility,
)
from melisma.transmission.uploads import Schedule, Uploads

__all__ = [
    "FADED",
    "Account",
    "Decisions",
    "Observed",
    "Policy",
    "Power",
    "Queues",
    "Radios",
    "Schedule",
    "Setting",
    "Trace",
    "Uploads",
    "greedy",
    "jain",
    "lyapunov",
    "simulate",
    "step",
    "transmission",
    "utility",
]
