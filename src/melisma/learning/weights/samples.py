"""Weights by the samples that were really trained on.

Paper: U. Mohammad, S. Sorour, M. Hefeida, "Task Allocation for Asynchronous Mobile Edge
Learning with Delay and Energy Constraints", Eq. 15, with what was trained for dₖ.
"""

from melisma.learning.training import Trained


class BySamples:
    """wₖ = dₖ."""

    def weight(self, report: Trained, own: int) -> float:
        """Return the samples trained."""
        return float(report.samples)

    def length(self, report: Trained) -> float:
        """Take changes as they are."""
        return 1.0
