"""Channels in virtual time: from event to event, who sends and who waits."""

from math import floor, inf, isfinite

import numpy as np

from melisma.maths.arrays import Floats, Ints


class Air:
    """The channels at one moment; uploads are numbers."""

    def __init__(
        self,
        *,
        channels: int,
        slot_s: float,
        worker: Ints,
        ready_s: Floats,
        size_bits: Floats,
        rate_bps: Floats,
        owed_bits: Floats,
    ) -> None:
        self.channels, self.slot_s = channels, slot_s
        self.worker, self.ready_s, self.rate_bps = worker, ready_s, rate_bps
        self.owed_bits = owed_bits
        self.left_bits = size_bits.copy()  # when its last piece began
        self.since_s = np.zeros_like(size_bits)  # of those sending
        self.finish_s = np.full(size_bits.shape, inf)
        coming = np.flatnonzero(ready_s < inf)
        # The last is popped first; of equals, the lower number.
        by_time = np.lexsort((coming, ready_s[coming]))
        self.coming: list[int] = coming[by_time][::-1].tolist()
        self.waiting: list[int] = []
        self.sending: list[int] = []
        self.pieces: list[tuple[int, float, float]] = []
        self.now_s = 0.0

    def end_s(self, upload: int) -> float:
        """When an upload that is sending will be through."""
        lasts_s = self.left_bits[upload] / self.rate_bps[upload]
        return float(self.since_s[upload] + lasts_s)

    def next_s(self) -> float:
        """When something happens next: an end, a gradient, a slot for who waits."""
        times = [self.end_s(upload) for upload in self.sending]
        if self.coming:
            times.append(float(self.ready_s[self.coming[-1]]))
        if self.waiting and isfinite(self.slot_s):
            times.append(self.slot_end_s())
        return min(times, default=inf)

    def slot_end_s(self) -> float:
        """The first multiple of the slot after now."""
        k = floor(self.now_s / self.slot_s) + 1
        end_s = k * self.slot_s
        return end_s if end_s > self.now_s else (k + 1) * self.slot_s

    def pass_to(self, now_s: float) -> None:
        """Let time pass: who is through leaves, who is ready sends or waits."""
        self.now_s = now_s
        # An end that rounding puts just behind a slot's would wait for the last place.
        by_now_s = now_s * (1 + 1e-12)
        for upload in [u for u in self.sending if self.end_s(u) <= by_now_s]:
            self.finish_s[upload] = self.end_s(upload)
            self.stop(upload, float(self.finish_s[upload]))
        while self.coming and self.ready_s[self.coming[-1]] <= now_s:
            self.waiting.append(self.coming.pop())
        if self.waiting:
            self.give()

    def stop(self, upload: int, at_s: float) -> None:
        """Take the channel from an upload."""
        start_s = float(self.since_s[upload])
        self.left_bits[upload] -= self.rate_bps[upload] * (at_s - start_s)
        self.sending.remove(upload)
        self.pieces.append((upload, start_s, at_s))

    def give(self) -> None:
        """Give free channels to the heaviest; all channels if a slot begins."""
        begins = isfinite(self.slot_s) and (
            round(self.now_s / self.slot_s) * self.slot_s == self.now_s
        )
        chosen = [] if begins else self.sending.copy()
        rivals = self.waiting + (self.sending if begins else [])
        for upload in sorted(rivals, key=self.weight, reverse=True):
            radios = {self.worker[other] for other in chosen}
            if len(chosen) < self.channels and self.worker[upload] not in radios:
                chosen.append(upload)
        for upload in [u for u in self.sending if u not in chosen]:
            self.stop(upload, self.now_s)
        for upload in [u for u in chosen if u not in self.sending]:
            self.since_s[upload] = self.now_s
            self.sending.append(upload)
        self.waiting = [u for u in rivals if u not in chosen]

    def weight(self, upload: int) -> tuple[float, int]:
        """r·(Q + H); of equals the lower number."""
        left = self.left_bits[upload]
        if upload in self.sending:
            left -= self.rate_bps[upload] * (self.now_s - self.since_s[upload])
        weight = self.rate_bps[upload] * (left + self.owed_bits[upload])
        return float(weight), -upload
