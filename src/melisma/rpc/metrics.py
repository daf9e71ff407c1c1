"""Metrics of a server or connection: bytes, calls, failures and latencies."""

from dataclasses import dataclass, field

#: Upper edges of the histogram's bins: 1, 2, 4, … microseconds, the last about 4.5 min.
BINS = 28


@dataclass(slots=True)
class Latencies:
    """A histogram of call times: up to 1, 2, 4, … microseconds, the last open."""

    counts: list[int] = field(default_factory=lambda: [0] * (BINS + 1))
    total_s: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one call."""
        self.counts[min(int(seconds * 1e6).bit_length(), BINS)] += 1
        self.total_s += seconds

    @property
    def calls(self) -> int:
        """Return the number of calls."""
        return sum(self.counts)

    def quantile_s(self, share: float) -> float:
        """Return the upper edge of the bin with this quantile; 0 without calls."""
        wanted, seen = share * self.calls, 0
        for bin, count in enumerate(self.counts):
            seen += count
            if count and seen >= wanted:
                return float(2**bin) * 1e-6
        return 0.0


@dataclass(slots=True)
class Metrics:
    """Counters of one server or connection."""

    sent_bytes: int = 0
    received_bytes: int = 0
    reconnections: int = 0
    called: dict[str, Latencies] = field(default_factory=dict)  #: by peers' function
    answered: dict[str, Latencies] = field(default_factory=dict)  #: by own function
    failed: dict[str, int] = field(default_factory=dict)  #: by function, both ways

    def fail(self, function: str) -> None:
        """Count a call that failed."""
        self.failed[function] = self.failed.get(function, 0) + 1
