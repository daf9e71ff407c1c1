"""Uploads of a coded cycle over shared channels, in virtual time.

Gradients are ready at moments of their own and wait for one of L channels. A free
channel goes to the largest

    weight = r·(Q + H)      rate · (bits left + bits owed)

the weight of sending of ``rules`` with batteries full and the server idle. When
a slot ends, all channels are given anew, also those in use. What is owed, H, is the
virtual queue of fair transmission, carried from cycle to cycle: in gradients, it grows
by y = V/(H ln 2) − 1/λ (between 0 and 1) and shrinks by the share that was delivered,
so that who is cut off in one cycle comes earlier in another.

Paper: X. Wang et al., "Two-Stage Coded Federated Edge Learning: A Dynamic Partial
Gradient Coding Perspective", section 4.3.

Differences from the paper:
1. Channels are handed on within a slot, the moment that one is free or a gradient is
   ready; with enough channels an upload ends exactly at ready + size / rate. The
   knapsack's division of a slot is the same for one channel; for several, an upload
   that starts late in a slot does not make up for it on a second channel.
2. A gradient that is not delivered when its cycle ends is dropped, so there is no
   admission: H is served by what is delivered.
3. By default a slot has no end, and nobody is interrupted. Shorter slots give the
   channel to the longest backlog, and everyone finishes late.
"""

from dataclasses import dataclass, field
from math import inf

import numpy as np
from numpy.typing import ArrayLike

from melisma.maths.arrays import Floats, Ints, counts, numbers
from melisma.transmission.air import Air
from melisma.transmission.rules import asked


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule:
    """Who sends when, if nobody is told to stop. Later uploads change nothing before.

    The first arrays run over uploads, those named ``piece`` over stretches of sending.
    """

    worker: Ints  #: whose upload it is
    ready_s: Floats  #: inf: there is none
    size_bits: Floats
    rate_bps: Floats
    finish_s: Floats  #: inf where there is none
    piece: Ints  #: the upload sent
    piece_start_s: Floats
    piece_end_s: Floats

    def sent_bits(self, until_s: float = inf) -> Floats:
        """Bits of each upload that were through by then."""
        airtime = np.minimum(self.piece_end_s, until_s) - self.piece_start_s
        sent = np.zeros_like(self.size_bits)
        np.add.at(
            sent, self.piece, np.maximum(airtime, 0.0) * self.rate_bps[self.piece]
        )
        through = np.isfinite(self.finish_s) & (self.finish_s <= until_s)
        return np.where(through, self.size_bits, sent)


@dataclass(slots=True, kw_only=True, eq=False)
class Uploads:
    """Workers that share channels cycle after cycle.

    >>> air = Uploads(workers=3, channels=1)
    >>> plan = air.schedule([0.0, 0.0, 1.0], size_bits=8e6, rate_bps=[4e6, 8e6, 8e6])
    >>> plan.finish_s.tolist()
    [4.0, 1.0, 2.0]
    >>> air.settle(plan, until_s=2.0)  # two gradients were enough; worker 0 is owed one
    >>> air.owed.tolist()
    [1.0, 0.0, 0.0]
    """

    workers: int
    channels: int  #: L
    slot_s: float = inf  #: T, after which channels are given anew
    utility_weight: float = 1.0  #: V, how much may be owed before less is asked for
    fairness: float = 100.0  #: λ, per gradient: who is so much slower may be left out
    owed: Floats = field(init=False)  #: H, in gradients

    def __post_init__(self) -> None:
        for name in ("workers", "channels", "slot_s", "utility_weight", "fairness"):
            numbers(name, getattr(self, name), shape=(), above=0.0, endless=True)
        self.owed = np.zeros(self.workers)

    def schedule(
        self,
        ready_s: ArrayLike,
        size_bits: ArrayLike,
        rate_bps: ArrayLike,
        worker: ArrayLike | None = None,
    ) -> Schedule:
        """Plan one cycle's uploads: one for each worker, or those of ``worker``.

        A worker has one radio: its uploads follow one another. A worker
        with nothing to send is ready at inf. Raises ConfigError for a size or rate
        that is not above 0, or a worker that is not there.
        """
        owner = counts(
            "worker",
            np.arange(self.workers) if worker is None else worker,
            most=self.workers - 1,
        )
        ready = numbers("ready_s", ready_s, shape=owner.shape, endless=True)
        size = numbers("size_bits", size_bits, shape=owner.shape, above=0.0)
        rate = numbers("rate_bps", rate_bps, shape=owner.shape, above=0.0)
        air = Air(
            channels=self.channels,
            slot_s=self.slot_s,
            worker=owner,
            ready_s=ready,
            size_bits=size,
            rate_bps=rate,
            owed_bits=self.owed[owner] * size,
        )
        while (now_s := air.next_s()) < inf:
            air.pass_to(now_s)
        upload, start, end = zip(*air.pieces, strict=True) if air.pieces else ((),) * 3
        return Schedule(
            worker=air.worker,
            ready_s=ready,
            size_bits=size,
            rate_bps=rate,
            finish_s=air.finish_s,
            piece=np.array(upload, dtype=np.int64),
            piece_start_s=np.array(start, dtype=np.float64),
            piece_end_s=np.array(end, dtype=np.float64),
        )

    def settle(self, schedule: Schedule, until_s: float = inf) -> None:
        """End the cycle at ``until_s``: what was ready and is not through is owed."""
        was_ready = schedule.ready_s < until_s
        sizes, sent = np.zeros((2, self.workers))
        np.add.at(sizes, schedule.worker, np.where(was_ready, schedule.size_bits, 0.0))
        np.add.at(sent, schedule.worker, schedule.sent_bits(until_s))
        had = sizes > 0
        y = asked(self.utility_weight, self.fairness, self.owed[had], 1.0)
        self.owed[had] = np.maximum(self.owed[had] + y - sent[had] / sizes[had], 0.0)
