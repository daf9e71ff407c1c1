"""The same weight for every learner, as in Malenia and Ringleader.

Paper: A. Maranjyan, P. Richtárik, "Ringleader ASGD: The First Asynchronous SGD with
Optimal Time Complexity under Data Heterogeneity", arXiv:2509.22860, whose objective is
the plain mean of the workers' own.
"""

from melisma.learning.training import Trained


class ByLearners:
    """wₖ = 1, of who trained at all."""

    def weight(self, report: Trained, own: int) -> float:
        """Return 1, or 0 for who trained nothing."""
        return float(report.samples > 0)

    def length(self, report: Trained) -> float:
        """Take changes as they are."""
        return 1.0
