"""What this machine has for training, and what to change: `melisma doctor`."""

from melisma.doctor.examination import examine
from melisma.doctor.finding import Finding, Level, verdict

__all__ = ["Finding", "Level", "examine", "verdict"]
