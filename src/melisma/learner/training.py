"""Local training for one request: fetch, train part by part, halt in time.

Budgets are relative and the clock monotonic, from the moment a request arrives. Model
and shards are fetched after that, so their transfer is on the learner's own clock, and
a device's wrong time of day does not matter.
"""

import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from melisma.errors import ConfigError
from melisma.fleets.batches import batch_order
from melisma.fleets.messages import Speeds, TrainRequest, Update
from melisma.learner.device import Device, Link, WarmTask, bytes_of
from melisma.learner.energy import Metering
from melisma.learner.memory import told_if_short
from melisma.learner.source import Caller
from melisma.learning.parameters import Parameters
from melisma.learning.samples import Arrays, Part, Samples, joined, transformed
from melisma.learning.settings import Late
from melisma.learning.shards import Shard
from melisma.learning.training import Session, batch_plan
from melisma.maths.arrays import Ints
from melisma.schemes.dab import safely

T = TypeVar("T")


class LocalTraining:
    """A request from its arrival to its update."""

    def __init__(
        self, device: Device, task: WarmTask, request: TrainRequest, caller: Caller
    ) -> None:
        self._device, self._task, self.request = device, task, request
        self._clock, self._began = device.clock, device.clock()
        self._link = Link(
            device, task, caller.source, request.deadline_s, cycle=request.cycle
        )
        self._rng = batch_order(task.spec.seed, request.cycle, device.name)
        self.cancelled = caller.gave_up  #: asked before each batch
        if request.corrected and caller.corrections is None:
            raise ConfigError("gradients cannot be corrected here: there is no source")
        self._corrections = caller.corrections if request.corrected else None
        self._travel, self._arrived = task.travel_of(request), Parameters()
        warm = self._travel.warm
        model = task.model if warm is None else warm.part.model
        # Of what the benchmark's model computes: the device's drift is beside that.
        self._step = 1.0 if warm is None else warm.step
        self._session = Session(model, task.training.at(request.cycle))
        self._training_s = 0.0
        self._fetched_bytes: list[int] = []
        self._fetching_s = 0.0
        self._link_ratio = self._compute_ratio = math.nan  # took / benchmarked
        self._metering = Metering(device.sensor, device.clock)

    def fetch_model(self) -> None:
        """Load the model of the request's cycle."""
        cycle, size_bytes = self.request.cycle, self._task.speed.model_bytes
        way, warm = self._travel.way, self._travel.warm
        self._arrived = self._fetch(
            lambda within_s: self._link.parameters(cycle, within_s, way),
            self._travel.down_bytes,
        )
        self._task.load(self._arrived, cycle, warm, anew=self.request.anew)
        if (source := self._corrections) is not None:
            correction = self._fetch(
                lambda within_s: self._link.correction(source, cycle, within_s),
                size_bytes,
            )
            self._session.correct(correction)

    def examples(self, keys: list[str], samples: int) -> Samples:
        """Return data to train on: these shards, or some of the device's own."""
        transform = self._task.transform
        if not self._task.spec.federated:
            shards = self._device.cache.get(keys, self._shards)
            return transformed(Arrays(joined(shards)), transform)
        own = self._device.data().train
        rows = self._rng.permutation(len(own))[:samples]
        return transformed(Part(own, rows), transform)

    def train(
        self,
        examples: Samples,
        each: Callable[[Session], object] = lambda session: None,
    ) -> int:
        """Train on one part until it is done or the deadline nears.

        ``each`` is called before each batch. Returns how many samples were trained on,
        each as often as it was.
        """
        began = self._clock()
        rows, steps = np.arange(len(examples)), self.request.steps
        plan = batch_plan(rows, steps, self._task.training, self._rng)
        halts = self._halt((plan >= 0).sum(axis=1))

        def halt() -> bool:
            each(self._session)
            self._metering.read()
            return halts()

        before = self._session.passes
        with told_if_short(self._task, examples):
            self._session.train(examples, plan, halt)
        passes, took_s = self._session.passes - before, self._clock() - began
        self._task.speed.trained(passes * self._step, took_s)
        self._training_s += took_s
        if (compute := self._task.speed.compute) and self._session.passes:
            benchmarked_s = compute.seconds(self._session.passes * self._step)
            self._compute_ratio = self._training_s / benchmarked_s
        return passes

    def observe(self) -> None:
        """Correct the benchmark by what the transfers took."""
        self._task.speed.transferred(self._fetched_bytes, self._fetching_s)
        if link := self._task.speed.link:
            benchmarked_s = sum(map(link.seconds, self._fetched_bytes))
            if benchmarked_s > 0:
                self._link_ratio = self._fetching_s / benchmarked_s
        self._fetched_bytes, self._fetching_s = [], 0.0

    def speeds(self, sample_s: float) -> Speeds:
        """Return the device's speed now, at ``sample_s`` a sample, with its transfers'.

        Raises ConfigError before any benchmark.
        """
        benchmark, link = self._task.speed.report(drifted=False), self._task.speed.link
        assert link is not None
        slower = self._fetching_s / sum(map(link.seconds, self._fetched_bytes))
        return Speeds(
            step_s=sample_s,
            sample_s=slower * benchmark.sample_s,
            fixed_s=slower * benchmark.fixed_s,
        )

    def kept(self, *, late: bool) -> None:
        """Let the device learn whether its work was done in time."""
        self._task.speed.kept(
            ratio=(self._compute_ratio, self._link_ratio),
            late=late or self.took_s > self.request.deadline_s,
        )

    def update(self) -> Update:
        """Return the update, once a device of this rate would have sent it."""
        trained_s, private = self.took_s, self._task.spec.private
        self.kept(late=self._session.trained().halted)
        parameters, packed = self._task.update(
            self.request.cycle, self._device.name, self._travel.way, self._arrived
        )
        update = Update(
            **self._session.trained().fields(),
            cycle=self.request.cycle,
            parameters=parameters,
            packed=packed,
            downloaded_s=None if private else trained_s - self._training_s,
            trained_s=None if private else trained_s,
            spent_j=None if private else self._metering.spent_j(),
        )
        self._link.sent(bytes_of(packed or parameters), self._clock())
        return update

    @property
    def took_s(self) -> float:
        """Seconds since it began."""
        return self._clock() - self._began

    def _shards(self, keys: list[str]) -> list[Shard]:
        sample_bytes = self._task.speed.sample_bytes
        size_bytes = len(keys) * self._task.spec.shard * sample_bytes
        return self._fetch(
            lambda within_s: self._link.shards(keys, within_s), size_bytes
        )

    def _fetch(self, fetch: Callable[[float | None], T], size_bytes: int) -> T:
        """Fetch, unless that takes longer than the whole cycle may: CallTimeout.

        The limit is the request's own: what is left of it would reveal a private
        learner's times.
        """
        self._fetched_bytes.append(size_bytes)
        within_s = None if Late(self.request.late).lasts else self.request.deadline_s
        began = self._clock()
        try:
            return fetch(within_s)
        finally:
            self._fetching_s += self._clock() - began

    def _halt(self, sizes: Ints) -> Callable[[], bool]:
        """Return a function for each batch: whether its result would be too late."""
        request = self.request
        upload_s = self._task.speed.upload_s(self._travel.up_bytes)
        end = self._began + safely(request.deadline_s) - upload_s
        over, every = self._began + request.deadline_s, self._task.spec.look_every
        start, batches = self._clock(), 0

        def halt() -> bool:
            nonlocal batches, end
            if batches < len(sizes):
                self._link.throttle.batch(float(sizes[batches]) * self._step)
            now = self._clock()
            batch_s = (now - start) / batches if batches else 0.0
            trained, batches = batches, batches + 1
            match request.late:
                case Late.HALT:
                    late = now + batch_s > end
                case Late.OVERRUN:
                    # After 1, 1 + n, 1 + 2n, … batches, as the thesis's learners do.
                    late = trained > 0 and (trained - 1) % every == 0 and now > over
                case Late.CARRY:
                    if not trained and now > end:  # until it has something to send
                        into_s = math.fmod(now - end, request.deadline_s)
                        end = now - into_s + request.deadline_s
                    late = trained > 0 and now + batch_s > end
                case _:
                    late = False
            return self.cancelled() or late

        return halt
