"""What the thesis's author measured on ten Jetson Nanos, before it was corrected.

Means of the 40 to 42 trials in the result files of the author's public program. The
script that plots them adds constants to some of MED's points: with 3 and 4 tasks 2.5 to
the satisfaction ratio, and −0.5 and −1.3 to the occupancy. These are without.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from melisma.maths import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """What is varied, and what was stored for each of its points."""

    name: str
    #: By metric and scheme: seconds, or per cent.
    raw: Mapping[str, Mapping[str, tuple[float, ...]]]

    def stored(self, metric: str, scheme: str) -> Floats:
        """What was stored for all points."""
        if metric == "fulfilment":  # stored as what is left of it
            return 100.0 - self.stored("drop", scheme)
        return np.array(self.raw[metric][scheme])


LEARNERS = Axis(
    name="learners",
    raw={
        "time": {
            "mmtt-ideal": (19.4, 16.0, 14.4, 13.2),
            "med": (25.6, 22.9, 20.2, 19.4),
            "mmtt": (25.4, 23.1, 22.3, 21.5),
        },
        "learner_satisfaction": {
            "mmtt-ideal": (99.0, 98.8, 100.0, 100.0),
            "med": (90.3, 92.6, 95.0, 96.3),
            "mmtt": (81.6, 87.3, 90.1, 93.9),
        },
        "task_satisfaction": {
            "mmtt-ideal": (99.0, 98.7, 100.0, 100.0),
            "med": (89.2, 85.3, 88.2, 88.3),
            "mmtt": (78.7, 77.8, 78.8, 81.0),
        },
        "drop": {
            "mmtt-ideal": (0.04, 0.09, 0.15, 0.20),
            "med": (5.62, 3.45, 1.82, 0.78),
            "mmtt": (9.74, 5.65, 4.04, 2.33),
        },
        "occupancy": {
            "mmtt-ideal": (98.0, 94.1, 91.9, 91.1),
            "med": (93.2, 85.3, 82.6, 77.9),
            "mmtt": (93.9, 85.8, 80.0, 76.2),
        },
    },
)
TASKS = Axis(
    name="tasks",
    raw={
        "time": {
            "mmtt-ideal": (25.2, 35.1, 38.0, 42.0),
            "med": (37.0, 40.0, 40.4, 42.5),
            "mmtt": (42.7, 42.6, 41.6, 44.0),
        },
        "learner_satisfaction": {
            "mmtt-ideal": (100.0, 98.5, 95.5, 83.7),
            "med": (99.3, 94.4, 89.0, 77.5),
            "mmtt": (97.5, 92.1, 88.6, 76.1),
        },
        "task_satisfaction": {
            "mmtt-ideal": (100.0, 94.6, 88.8, 72.5),
            "med": (93.2, 78.5, 72.7, 61.1),
            "mmtt": (76.6, 69.5, 68.6, 54.8),
        },
        "drop": {
            "mmtt-ideal": (0.48, 0.56, 1.65, 6.36),
            "med": (0.62, 1.67, 3.90, 8.46),
            "mmtt": (1.35, 3.70, 6.01, 11.18),
        },
        "occupancy": {
            "mmtt-ideal": (76.8, 78.5, 83.0, 87.9),
            "med": (65.2, 75.7, 83.0, 88.5),
            "mmtt": (57.4, 69.2, 79.8, 84.9),
        },
    },
)
