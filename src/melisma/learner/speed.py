"""A learner's own speed: a benchmark, and the drift from it since.

time of a transfer = latency + bytes / rate        times the link's drift
time of training   = latency + samples / rate      times the processor's drift

Where a task limits lateness, margins that keep that promise stand in for the drift.
"""

from dataclasses import dataclass, field

import numpy as np

from melisma.errors import ConfigError
from melisma.fleets.messages import Speeds, StateSpeeds
from melisma.learning.benchmark import Line
from melisma.schemes.dab import most_before, safely
from melisma.system.drift import Drift
from melisma.system.law import DelayLaw
from melisma.system.promise import LINK, Margins, Promises, Took

#: The name of the one device that promises here.
ITSELF = ""


@dataclass(slots=True)
class Speed:
    """A learner's own delay law for one task."""

    model_bytes: int
    link: Line | None = None  #: seconds of bytes
    compute: Line | None = None  #: seconds of samples, trained once
    sample_bytes: int = 0  #: of a sample that is sent; 0 where none is (federated)
    link_drift: Drift = field(default_factory=Drift)
    compute_drift: Drift = field(default_factory=Drift)
    states: list[StateSpeeds] = field(default_factory=list)  #: of the owner, measured
    owner: int | None = None  #: seed of the owner's states, where one is emulated
    _promises: Promises | None = None  # of this one device, where lateness is limited
    _margins: Margins | None = None  # for the next cycle, where it is

    @property
    def measured(self) -> bool:
        """Whether there was a benchmark."""
        return self.link is not None and self.compute is not None

    def upload_s(self, size_bytes: int | None = None) -> float:
        """Seconds to send the model back, or so much; 0 before any benchmark.

        With care.
        """
        if self.link is None:
            return 0.0
        size_bytes = self.model_bytes if size_bytes is None else size_bytes
        return self.link.seconds(size_bytes) * self._slower(careful=True)[LINK]

    def promise(self, late_at_most: float) -> None:
        """Plan from now on so that this share of cycles is late; 0: by the drift."""
        self._promises = Promises(late_at_most) if late_at_most else None
        self.renew()

    def renew(self) -> None:
        """Take up margins for the next cycle."""
        if self._promises:
            spread = [[line.spread if line else 0.0] for line in self._lines]
            self._margins = self._promises.margins([ITSELF], np.array(spread))

    @property
    def _lines(self) -> tuple[Line | None, Line | None]:
        return self.compute, self.link

    def _slower(self, *, careful: bool) -> tuple[float, float]:
        """How many times as long as benchmarked compute and link take."""
        if self._margins:
            margins = self._margins
            compute, link = margins.planned if careful else margins.expected
            return float(compute[0]), float(link[0])
        drifts = self.compute_drift, self.link_drift
        compute_s, link_s = (d.careful if careful else d.mean for d in drifts)
        return compute_s, link_s

    def kept(self, *, ratio: tuple[float, float], late: bool) -> None:
        """See what an order took, in multiples of compute and link as benchmarked."""
        if self._promises:
            took = Took(ratio=np.array(ratio)[:, None], late=np.array([late]))
            self._promises.see([ITSELF], took)

    def transferred(self, sizes_bytes: list[int], took_s: float) -> None:
        """Correct the benchmark by the seconds that transfers took."""
        if self.link:
            predicted_s = sum(self.link.seconds(size) for size in sizes_bytes)
            self.link_drift.see(predicted_s, took_s)

    def trained(self, samples: float, took_s: float) -> None:
        """Correct the benchmark by the seconds that training took.

        A sample of a part of the model counts as far as it computes.
        """
        if self.compute and samples:
            self.compute_drift.see(self.compute.seconds(samples), took_s)

    def forget(self) -> None:
        """Move some of the way back to the benchmark."""
        self.link_drift.forget()
        self.compute_drift.forget()
        if self._promises:
            self._promises.skip()

    def law(self, *, careful: bool, drifted: bool = True) -> DelayLaw:
        """Return the delay law: the expected one, or a careful one to be on time.

        As benchmarked, unless it has ``drifted``. Raises ConfigError before any
        benchmark.
        """
        link, compute = self.link, self.compute
        if link is None or compute is None:
            raise ConfigError("not measured yet: call measure first")
        slower, slower_link = self._slower(careful=careful) if drifted else (1.0, 1.0)
        fixed_s = 2 * link.seconds(self.model_bytes)
        if self.sample_bytes:
            fixed_s += link.latency_s
        return DelayLaw(
            step_s=np.array([slower / compute.rate]),
            sample_s=np.array([slower_link * self.sample_bytes / link.rate]),
            fixed_s=np.array([slower_link * fixed_s + slower * compute.latency_s]),
        )

    def report(self, *, drifted: bool = True) -> Speeds:
        """Return the expected delay law, as it is reported to the orchestrator."""
        law = self.law(careful=False, drifted=drifted)
        return Speeds(
            step_s=float(law.step_s[0]),
            sample_s=float(law.sample_s[0]),
            fixed_s=float(law.fixed_s[0]),
            states=self.states,
            owner=self.owner,
            compute_spread=self.compute.spread if self.compute else 0.0,
            link_spread=self.link.spread if self.link else 0.0,
        )

    def bid(self, shard: int, deadline_s: float, steps: int, *, adaptive: bool) -> int:
        """Return how many shards are finished before the deadline (DAB).

        As printed by the benchmark alone; ``adaptive``: by what the device has drifted
        since, with care and a margin. So it does where lateness is limited.
        """
        adaptive = adaptive or self._margins is not None
        law = self.law(careful=adaptive, drifted=adaptive).per_shard(shard)
        end_s = safely(deadline_s) if adaptive else deadline_s
        return int(most_before(law, end_s, steps)[0])
