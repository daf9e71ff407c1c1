"""A learner: what a device does when the orchestrator calls it.

Budgets are relative and the clock monotonic, from the moment an errand comes. Model and
shards are fetched after that, so their transfer is on the learner's own clock, and a
device's wrong time of day does not matter.
"""

import logging
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from melisma import rpc
from melisma.errors import ConfigError, unknown
from melisma.learning import models
from melisma.learning.benchmark import time_training, time_transfers
from melisma.learning.data import Dataset
from melisma.learning.parameters import Model, Parameters, parameters_of, put
from melisma.learning.settings import Late, Optimiser, Training
from melisma.learning.shards import Cache, Examples, Shard, unpacked
from melisma.learning.training import batch_plan, train
from melisma.maths.arrays import Ints
from melisma.runtime.chance import Stream
from melisma.runtime.pace import Pace
from melisma.runtime.speed import Speed
from melisma.runtime.wire import Brief, Errand, Ready, Speeds, Unprepared, Update
from melisma.schemes.dab import most_before
from melisma.system.law import DelayLaw

log = logging.getLogger("melisma.learner")

CACHE_BYTES = 1 << 30
#: Kept free before the deadline for what no benchmark sees: a share of it, or seconds.
MARGIN, MARGIN_S = 0.03, 0.05


@dataclass(slots=True)
class Kept:
    """What is kept warm for a task between its cycles."""

    brief: Brief
    model: Model
    training: Training
    speed: Speed
    idle: bool = False  #: since it was last asked what it can do


class Learner:
    """Trains what it is told to, on the data that it is sent or on its own."""

    def __init__(
        self,
        *,
        name: str,
        own: Dataset | None = None,
        allowed: Sequence[str] = (),
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._clock, self._own = name, clock, own
        self._known = {*models.MODELS, *allowed}
        self._pace = pace or Pace()
        self._cache = Cache(CACHE_BYTES)
        self._ready: Kept | None = None
        self._working, self._newest = threading.Lock(), object()

    @rpc.expose(idempotent=True)
    def prepare(self, brief: Brief) -> Ready:
        """Have the model ready, as it may be from the cycle before.

        A model's name is looked up in a list, never imported because somebody said so.
        """
        if brief.model not in self._known:
            raise unknown("model", brief.model, self._known)
        if self._ready is None or self._ready.brief != brief:
            model = models.build(brief.model, brief.seed)
            if brief.federated:
                models.check_fits(model, self._data())
            training = Training(
                optimiser=Optimiser(brief.optimiser), rate=brief.rate, batch=brief.batch
            )
            speed = Speed(models.model_bytes(model))
            self._ready = Kept(brief, model, training, speed)
        return Ready(
            measured=self._ready.speed.measured,
            samples=len(self._data().train_y) if brief.federated else None,
        )

    @rpc.expose
    def measure(self, keys: list[str]) -> None:
        """Benchmark transfers and training on these shards, and keep the result.

        In federated mode no shards are sent: the model's own size is fetched, and the
        training is on as much of the learner's own data.
        """
        ready, peer = self._prepared(), _orchestrator()
        speed, halves = ready.speed, sorted({max(1, len(keys) // 2), len(keys)})
        part_bytes = speed.model_bytes // max(halves)

        def fetch(n: int) -> int:
            if ready.brief.federated:
                return _bytes(self._timed(peer.filler, n * part_bytes))
            return _bytes(self._timed(peer.shards, keys[:n]))

        with self._alone():
            speed.link = time_transfers(fetch, halves, clock=self._clock)
            if ready.brief.federated:
                x, y = self._data().train_x, self._data().train_y
            else:
                x, y = self._examples(keys, lambda keys: self._timed(peer.shards, keys))
                speed.sample_bytes = x[0].numel() + 1
            samples = sorted({min(n * ready.brief.shard, len(y)) for n in halves})
            speed.compute = time_training(
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
        self._asked()
        law = self._law(careful=False)
        return Speeds(
            step_s=float(law.step_s[0]),
            sample_s=float(law.sample_s[0]),
            fixed_s=float(law.fixed_s[0]),
        )

    @rpc.expose(idempotent=True)
    def bid(self, deadline_s: float, steps: int) -> int:
        """Return how many shards this learner finishes before the deadline (DAB)."""
        self._asked()
        law = self._law(careful=True).per_shard(self._prepared().brief.shard)
        return int(most_before(law, _safely(deadline_s), steps)[0])

    @rpc.expose
    def carry_out(self, errand: Errand) -> Update:
        """Fetch, train until done or until the deadline nears, answer."""
        began, request, peer = self._clock(), rpc.current(), _orchestrator()
        ready = self._prepared()
        ready.idle = False
        with self._alone() as replaced:
            fetched = _Fetched(self, ready, peer, errand)
            try:
                put(fetched.parameters(), ready.model)
                rng = batch_order(ready.brief, errand.cycle, self._name)
                x, y = self._data_for(errand, fetched, rng)
            finally:
                fetched.observe()
            downloaded_s = self._clock() - began
            plan = batch_plan(np.arange(len(y)), errand.steps, ready.training, rng)
            halt = self._halt(
                plan, errand, began, lambda: request.cancelled or replaced()
            )
            trained = train(ready.model, x, y, plan, ready.training, halt)
            trained_s = self._clock() - began
            seen = int((plan[: trained.batches] >= 0).sum())
            ready.speed.trained(seen, trained_s - downloaded_s)
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
            self._pace.transferred(ready.speed.model_bytes, self._clock())
        self._tell(errand, update, self._clock() - began)
        return update

    def _asked(self) -> None:
        """Forget some of the drift if no work came of being asked before.

        Or a learner that was cut off once would think itself too slow for ever: who
        takes nothing sees nothing.
        """
        ready = self._prepared()
        if ready.idle:
            ready.speed.forget()
        ready.idle = True

    def _tell(self, errand: Errand, update: Update, took_s: float) -> None:
        """Say on this device what was done, and how well that was foreseen."""
        foreseen = "not benchmarked"
        if self._prepared().speed.measured:
            law = self._law(careful=False)
            foreseen = (
                f"{law.seconds([errand.samples], [errand.steps])[0]:.2f} s foreseen"
            )
        log.info(
            "cycle %d: %d of %d samples%s in %.2f s (%s)",
            *(errand.cycle, update.samples, errand.samples),
            *(", halted," if update.halted else "", took_s, foreseen),
        )

    def _data(self) -> Dataset:
        if self._own is None:
            raise ConfigError(
                f"{self._name} has no data of its own, which federated mode needs: "
                "join with --data DIR"
            )
        return self._own

    def _data_for(
        self, errand: Errand, fetched: "_Fetched", rng: np.random.Generator
    ) -> Examples:
        if not self._prepared().brief.federated:
            return self._examples(errand.keys, fetched.shards)
        own = self._data()
        rows = rng.permutation(len(own.train_y))[: errand.samples]
        return own.train_x[rows], own.train_y[rows]

    def _examples(
        self, keys: Sequence[str], fetch: Callable[[list[str]], list[Shard]]
    ) -> Examples:
        return unpacked(self._cache.get(keys, fetch))

    @contextmanager
    def _alone(self) -> Iterator[Callable[[], bool]]:
        """Work on the model alone; yields whether somebody newer waits for it.

        An orchestrator that was killed and comes back may find its old errand running.
        """
        mine = self._newest = object()
        with self._working:
            yield lambda: self._newest is not mine

    def _halt(
        self,
        plan: Ints,
        errand: Errand,
        began: float,
        cancelled: Callable[[], bool],
    ) -> Callable[[], bool]:
        """Return what to ask before each batch: can its result still arrive in time?"""
        upload_s = self._prepared().speed.upload_s()
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
            return cancelled() or (errand.late == Late.HALT and now + batch_s > end)

        return halt

    def _law(self, *, careful: bool) -> DelayLaw:
        speed = self._prepared().speed
        if not speed.measured:
            raise ConfigError(f"{self._name} has not measured itself yet")
        return speed.law(careful=careful)

    def _prepared(self) -> Kept:
        if self._ready is None:
            raise Unprepared(f"{self._name} was not told its task: call prepare first")
        return self._ready

    def _timed(self, function: Callable[[Any], Any], argument: object) -> Any:
        """Call the orchestrator, no faster than the pace allows."""
        began = self._clock()
        value = function(argument)
        self._pace.transferred(_bytes(value), began)
        return value


class _Fetched:
    """What one errand has fetched so far, and how long that took."""

    def __init__(
        self, learner: Learner, ready: Kept, peer: rpc.Peer, errand: Errand
    ) -> None:
        self._learner, self._ready, self._peer = learner, ready, peer
        self._errand = errand
        self._sizes_bytes: list[int] = []
        self._took_s = 0.0

    def parameters(self) -> Parameters:
        """The model as it stands."""
        size_bytes = self._ready.speed.model_bytes
        model: Parameters = self._fetch("parameters", self._errand.cycle, size_bytes)
        return model

    def shards(self, keys: list[str]) -> list[Shard]:
        """Shards that are not here yet."""
        sample_bytes = self._ready.speed.sample_bytes
        size_bytes = len(keys) * self._ready.brief.shard * sample_bytes
        shards: list[Shard] = self._fetch("shards", keys, size_bytes)
        return shards

    def _fetch(self, name: str, argument: object, size_bytes: int) -> Any:
        """Fetch, unless that takes longer than the whole cycle may: CallTimeout.

        The limit is the errand's own: what is left of it would tell what was taken.
        """
        self._sizes_bytes.append(size_bytes)
        function, clock = self._peer[name], self._learner._clock
        if self._errand.late != Late.WAIT:
            function = function.within(self._errand.deadline_s)
        began = clock()
        try:
            return self._learner._timed(function, argument)
        finally:
            self._took_s += clock() - began

    def observe(self) -> None:
        """Let what the transfers took correct the benchmark."""
        self._ready.speed.transferred(self._sizes_bytes, self._took_s)


def batch_order(brief: Brief, cycle: int, name: str) -> np.random.Generator:
    """Return what the order of a learner's batches comes from, here and at a check."""
    return np.random.default_rng(
        [brief.seed, Stream.LEARNER, cycle, zlib.crc32(name.encode())]
    )


def _safely(deadline_s: float) -> float:
    """Return when to be done so that the deadline is met."""
    return max(deadline_s / 2, deadline_s - max(MARGIN * deadline_s, MARGIN_S))


def _orchestrator() -> rpc.Peer:
    peer = rpc.current().peer
    if peer is None:
        raise ConfigError("a learner is called by an orchestrator that it dialled")
    return peer


def _bytes(value: Any) -> int:
    """Return the memory of tensors and arrays, however they are nested."""
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    parts = value.values() if isinstance(value, dict) else value
    return sum(map(_bytes, parts))
