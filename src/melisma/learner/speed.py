"""What a learner knows of its own speed: a benchmark, and how it has drifted since.

time of a transfer = latency + bytes / rate        times the link's drift
time of training   = latency + samples / rate      times the processor's drift
"""

from dataclasses import dataclass, field

import numpy as np

from melisma.learner.drift import Drift
from melisma.learning.benchmark import Line
from melisma.system.law import DelayLaw


@dataclass(slots=True)
class Speed:
    """A learner's own delay law for one task."""

    model_bytes: int
    link: Line | None = None  #: seconds of bytes
    compute: Line | None = None  #: seconds of samples, trained once
    sample_bytes: int = 0  #: of a sample that is sent; 0 where none is (federated)
    link_drift: Drift = field(default_factory=Drift)
    compute_drift: Drift = field(default_factory=Drift)

    @property
    def measured(self) -> bool:
        """Whether there was a benchmark."""
        return self.link is not None and self.compute is not None

    def upload_s(self) -> float:
        """Seconds to send the model back, with care; 0 before any benchmark."""
        if self.link is None:
            return 0.0
        return self.link.seconds(self.model_bytes) * self.link_drift.careful

    def transferred(self, sizes_bytes: list[int], took_s: float) -> None:
        """Let what some transfers took correct the benchmark."""
        if self.link:
            predicted_s = sum(self.link.seconds(size) for size in sizes_bytes)
            self.link_drift.see(predicted_s, took_s)

    def trained(self, samples: int, took_s: float) -> None:
        """Let what training took correct the benchmark: devices heat up."""
        if self.compute and samples:
            self.compute_drift.see(self.compute.seconds(samples), took_s)

    def forget(self) -> None:
        """Think better of oneself again, some of the way to the benchmark."""
        self.link_drift.forget()
        self.compute_drift.forget()

    def law(self, *, careful: bool, drifted: bool = True) -> DelayLaw:
        """What work takes: as expected, or with care to be on time.

        As benchmarked, unless it has ``drifted``. Raises ValueError before any
        benchmark.
        """
        link, compute = self.link, self.compute
        if link is None or compute is None:
            raise ValueError("not measured yet")
        slower_link, slower = (
            (drift.careful if careful else drift.mean) if drifted else 1.0
            for drift in (self.link_drift, self.compute_drift)
        )
        fixed_s = 2 * link.seconds(self.model_bytes)
        if self.sample_bytes:
            fixed_s += link.latency_s
        return DelayLaw(
            step_s=np.array([slower / compute.rate]),
            sample_s=np.array([slower_link * self.sample_bytes / link.rate]),
            fixed_s=np.array([slower_link * fixed_s + slower * compute.latency_s]),
        )
