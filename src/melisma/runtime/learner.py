"""A learner: what a device does when the orchestrator calls it.

Budgets are relative and the clock monotonic, from the moment an errand comes. Model and
shards are fetched after that, so their transfer is on the learner's own clock, and a
device's wrong time of day does not matter.
"""

import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from melisma import rpc
from melisma.errors import ConfigError, unknown
from melisma.learning import models
from melisma.learning.benchmark import Line, time_training, time_transfers
from melisma.learning.parameters import Model, Parameters, parameters_of, put
from melisma.learning.settings import Optimiser, Training
from melisma.learning.shards import Cache, Shard, unpacked
from melisma.learning.training import batch_plan, train
from melisma.maths.arrays import Ints
from melisma.runtime.chance import Stream
from melisma.runtime.pace import Pace
from melisma.runtime.wire import Brief, Errand, Ready, Speeds, Update
from melisma.schemes.dab import most_before
from melisma.system.law import DelayLaw

CACHE_BYTES = 1 << 30
#: Weight of what was seen last against what was known.
NEWS = 0.5
#: Kept free before the deadline for what no benchmark sees: a share of it, or seconds.
MARGIN, MARGIN_S = 0.03, 0.05


@dataclass(slots=True)
class Kept:
    """What is kept warm for a task between its cycles."""

    brief: Brief
    model: Model
    training: Training
    model_bytes: int
    link: Line | None = None  #: seconds of bytes, by the learner's own benchmark
    compute: Line | None = None  #: seconds of samples, trained once


class Learner:
    """Trains what it is told to, on the data that it is sent."""

    def __init__(
        self,
        *,
        name: str,
        allowed: Sequence[str] = (),
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._clock = name, clock
        self._known = {*models.MODELS, *allowed}
        self._pace = pace or Pace()
        self._cache = Cache(CACHE_BYTES)
        self._ready: Kept | None = None
        self._sample_bytes = 0

    @rpc.expose(idempotent=True)
    def prepare(self, brief: Brief) -> Ready:
        """Have the model ready, as it may be from the cycle before.

        A model's name is looked up in a list, never imported because somebody said so.
        """
        if brief.model not in self._known:
            raise unknown("model", brief.model, self._known)
        if self._ready is None or self._ready.brief != brief:
            model = models.build(brief.model, brief.seed)
            training = Training(
                optimiser=Optimiser(brief.optimiser), rate=brief.rate, batch=brief.batch
            )
            self._ready = Kept(brief, model, training, models.model_bytes(model))
        return Ready(measured=self._ready.compute is not None)

    @rpc.expose
    def measure(self, keys: list[str]) -> None:
        """Benchmark transfers and training on these shards, and keep the result."""
        ready, peer = self._prepared(), _orchestrator()
        halves = sorted({max(1, len(keys) // 2), len(keys)})

        def fetch(n: int) -> int:
            return _bytes(self._fetched(peer, keys[:n]))

        ready.link = time_transfers(fetch, halves, clock=self._clock)
        x, y = unpacked(self._cache.get(keys, lambda some: self._fetched(peer, some)))
        self._sample_bytes = x[0].numel() + 1
        samples = sorted({min(n * ready.brief.shard, len(y)) for n in halves})
        ready.compute = time_training(
            ready.model,
            x,
            y,
            ready.training,
            sizes=samples,
            clock=self._clock,
            before_batch=self._pace.batch,
        )

    @rpc.expose(idempotent=True)
    def speeds(self) -> Speeds:
        """Tell one's delay law, unless the task lets learners keep it to themselves."""
        if self._prepared().brief.private:
            raise ConfigError(f"{self._name} keeps its speed to itself in this task")
        law = self._law()
        return Speeds(
            step_s=float(law.step_s[0]),
            sample_s=float(law.sample_s[0]),
            fixed_s=float(law.fixed_s[0]),
        )

    @rpc.expose(idempotent=True)
    def bid(self, deadline_s: float, steps: int) -> int:
        """Return how many shards this learner finishes before the deadline (DAB)."""
        law = self._law().per_shard(self._prepared().brief.shard)
        return int(most_before(law, _safely(deadline_s), steps)[0])

    @rpc.expose
    def carry_out(self, errand: Errand) -> Update:
        """Fetch, train until done or until the deadline nears, answer."""
        began, request, peer = self._clock(), rpc.current(), _orchestrator()
        ready = self._prepared()
        parameters = self._model_fetched(peer, errand.cycle)
        x, y = unpacked(
            self._cache.get(errand.keys, lambda keys: self._fetched(peer, keys))
        )
        downloaded_s = self._clock() - began
        put(parameters, ready.model)
        rng = np.random.default_rng(
            [
                ready.brief.seed,
                Stream.LEARNER,
                errand.cycle,
                zlib.crc32(self._name.encode()),
            ]
        )
        plan = batch_plan(np.arange(len(y)), errand.steps, ready.training, rng)
        halt = self._halt(plan, errand, began, lambda: request.cancelled)
        trained = train(ready.model, x, y, plan, ready.training, halt)
        trained_s = self._clock() - began
        update = Update(
            cycle=errand.cycle,
            parameters=parameters_of(ready.model),
            samples=trained.samples,
            batches=trained.batches,
            loss=trained.loss,
            halted=trained.batches < len(plan),
            downloaded_s=None if ready.brief.private else downloaded_s,
            trained_s=None if ready.brief.private else trained_s,
        )
        self._pace.transferred(ready.model_bytes, self._clock())
        seen = int((plan[: trained.batches] >= 0).sum())
        self._observe(ready, seen, trained_s - downloaded_s)
        return update

    def _halt(
        self,
        plan: Ints,
        errand: Errand,
        began: float,
        cancelled: Callable[[], bool],
    ) -> Callable[[], bool]:
        """Return what to ask before each batch: can its result still arrive in time?"""
        ready = self._prepared()
        upload_s = ready.link.seconds(ready.model_bytes) if ready.link else 0.0
        end = began + _safely(errand.deadline_s) - upload_s
        sizes = (plan >= 0).sum(axis=1)
        start, batches = self._clock(), 0

        def halt() -> bool:
            nonlocal batches
            if batches < len(sizes):
                self._pace.batch(int(sizes[batches]))
            now = self._clock()
            batch_s = (now - start) / batches if batches else 0.0
            batches += 1
            return cancelled() or (errand.halt and now + batch_s > end)

        return halt

    def _observe(self, ready: Kept, samples: int, took_s: float) -> None:
        """Let what training really took correct the benchmark: devices heat up."""
        if ready.compute and samples and took_s > 0:
            rate = (1 - NEWS) * ready.compute.rate + NEWS * samples / took_s
            ready.compute = Line(latency_s=ready.compute.latency_s, rate=rate)

    def _law(self) -> DelayLaw:
        ready = self._prepared()
        if ready.link is None or ready.compute is None:
            raise ConfigError(f"{self._name} has not measured itself yet")
        link, compute = ready.link, ready.compute
        return DelayLaw(
            step_s=np.array([1 / compute.rate]),
            sample_s=np.array([self._sample_bytes / link.rate]),
            fixed_s=np.array(
                [
                    2 * link.seconds(ready.model_bytes)
                    + link.latency_s
                    + compute.latency_s
                ]
            ),
        )

    def _prepared(self) -> Kept:
        if self._ready is None:
            raise ConfigError(f"{self._name} was not told its task: call prepare first")
        return self._ready

    def _model_fetched(self, peer: rpc.Peer, cycle: int) -> Parameters:
        began, ready = self._clock(), self._prepared()
        parameters: Parameters = peer.parameters(cycle)
        self._pace.transferred(ready.model_bytes, began)
        return parameters

    def _fetched(self, peer: rpc.Peer, keys: list[str]) -> list[Shard]:
        began = self._clock()
        shards: list[Shard] = peer.shards(keys)
        self._pace.transferred(_bytes(shards), began)
        return shards


def _safely(deadline_s: float) -> float:
    """Return when to be done so that the deadline is met."""
    return max(deadline_s / 2, deadline_s - max(MARGIN * deadline_s, MARGIN_S))


def _orchestrator() -> rpc.Peer:
    peer = rpc.current().peer
    if peer is None:
        raise ConfigError("a learner is called by an orchestrator that it dialled")
    return peer


def _bytes(shards: Sequence[Shard]) -> int:
    return sum(x.nbytes + y.nbytes for x, y in shards)
