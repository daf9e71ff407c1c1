"""Weights by the samples that lie on each learner.

Paper: B. McMahan et al., "Communication-Efficient Learning of Deep Networks from
Decentralized Data", arXiv:1602.05629 (federated averaging: nₖ/n).
"""

from melisma.learning.training import Trained


class ByData:
    """wₖ = nₖ, of who trained at all."""

    def weight(self, report: Trained, own: int) -> float:
        """Return the samples that the learner has."""
        return float(own) if report.samples else 0.0

    def length(self, report: Trained) -> float:
        """Take changes as they are."""
        return 1.0
