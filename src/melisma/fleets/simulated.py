"""Learners on a virtual clock: times by the delay law, gradients are real."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from melisma.errors import InfeasibleError
from melisma.fleets.classroom import Classroom
from melisma.fleets.classrooms import Classrooms
from melisma.fleets.conditions import PROBE
from melisma.fleets.conditions import Conditions as Conditions
from melisma.fleets.drifting import Careful, DriftingLearners, PromisedLearners
from melisma.fleets.prices import Chance, Prices
from melisma.fleets.protocols import Lost, Order, Probed, Updates
from melisma.fleets.ways import ALIKE, Ways
from melisma.learning.parameters import Model, Parameters
from melisma.learning.samples import Samples
from melisma.learning.settings import HERE, Hardware, Late, Training
from melisma.learning.training import batch_plan
from melisma.maths.arrays import Bools, Floats, Ints
from melisma.schemes.dab import dab
from melisma.system.law import DelayLaw
from melisma.system.problem import Problem
from melisma.system.radio import RadioCell
from melisma.system.spot import SpotInstances
from melisma.system.streams import Stream


class SimulatedLearners:
    """Learners that exist as rows of tensors, on a clock that jumps.

    ``law`` has one coefficient per learner, or learners × states with the states'
    probabilities in ``conditions``: each cycle draws every learner's state, and the
    orchestrator knows the mean (MED). It plans by ``known``, of the same shape, where
    that is not the law itself. ``own_rows`` are the samples that lie on each
    learner in federated mode; a learner draws from them what its order asks for. In a
    ``cell`` the law is that of each cycle's channel, which the orchestrator knows when
    the cycle begins. All laws are of the first of the ``ways`` of taking part, or of
    the one that is a learner's own; an order may name another one.
    """

    def __init__(
        self,
        names: Sequence[str],
        law: DelayLaw,
        *,
        known: DelayLaw | None = None,
        model: Model,
        samples: Samples,
        training: Training,
        seed: int,
        conditions: Conditions | None = None,
        own_rows: Sequence[Ints] | None = None,
        hardware: Hardware = HERE,
        cell: RadioCell | None = None,
        ways: Ways = ALIKE,
    ) -> None:
        self.enough: int | None = None  #: updates that end a cycle; None: all
        #: Returns before each cycle the learners that take part; None: all of them.
        self.gather: Callable[[], Awaitable[Ints]] | None = None
        self._names = names
        self._own_rows = own_rows
        self._expelled: set[str] = set()
        self._take_in(np.arange(len(names)))
        self._law, self._known, self._cell = law, known or law, cell
        #: Compute gradients; else time passes and models stay as they are.
        self.learning = not (conditions and conditions.timing)
        self._coming: Chance | None = None
        self._samples, self._training = samples, training
        self._ways, wires = ways, [way.wire for way in ways.each]
        room = partial(Classroom, model, samples, training, hardware, wires, seed)
        self._classrooms = Classrooms(room, ways)
        self._conditions = conditions or Conditions()
        self._careful = self._carefully()
        self._rng = np.random.default_rng([seed, Stream.FLEET])
        self._now_s, self._cycle, self._drawn = 0.0, 0, 0

    def _carefully(self) -> Careful | None:
        """Return how learners bid with a margin, if they do."""
        if (late_at_most := self._conditions.late_at_most) is not None:
            return PromisedLearners(self._names, late_at_most)
        return DriftingLearners(len(self._names)) if self._conditions.adaptive else None

    def now_s(self) -> float:
        """Virtual seconds since the run began."""
        return self._now_s

    def wait_until(self, time_s: float) -> None:
        """Advance the clock to ``time_s``, if that is later."""
        self._now_s = max(self._now_s, time_s)

    async def ready(self) -> None:
        """Set the members: all learners, or those of ``gather``, less the expelled.

        Of spot instances, those who are there; if none is, the clock advances until one
        is back. Raises InfeasibleError if none will be.
        """
        if self.gather:
            self._take_in(await self.gather())
        elif self._conditions.spot:
            self._take_in_spot(self._conditions.spot)
        elif self._expelled:
            self._take_in(np.arange(len(self._names)))
        if self._cell:
            law = self._cell.law(self._cycle + 1, self._now_s, self.members)
            self._law = self._known = law

    def on_air(self) -> Bools | None:
        """Which learners have a turn in the coming cycle; None outside of a cell."""
        if self._cell is None:
            return None
        return self._cell.on_air(self._cycle + 1, self.members)

    def _take_in_spot(self, spot: SpotInstances) -> None:
        self._take_in(np.flatnonzero(spot.there(self._now_s)))
        if len(self.members):
            return
        if (back_s := self.returns_s()) == np.inf:
            raise InfeasibleError(
                f"every learner was reclaimed by {self._now_s:.6g} s, and none comes "
                "back: give [learners.power] returns, or more learners"
            )
        self.wait_until(back_s)
        self._take_in(np.flatnonzero(spot.there(back_s)))

    def returns_s(self) -> float:
        """Return when the first is back that was reclaimed; inf: nobody will be."""
        if (spot := self._conditions.spot) is None:
            return np.inf
        back_s = spot.returns_s()
        gone = [name in self._expelled for name in self._names]
        return float(np.where(gone, np.inf, back_s).min())

    def _take_in(self, members: Ints) -> None:
        gone = [self._names[k] in self._expelled for k in members]
        members = members[~np.array(gone, dtype=bool)]
        self.members = members
        self.learners = [self._names[k] for k in members]
        rows = self._own_rows
        self.own_samples = None if rows is None else [len(rows[k]) for k in members]

    async def law(self) -> DelayLaw:
        """The law as it is known, expected over the learners' states."""
        probability, law = self._conditions.probability, self._known
        if probability is not None:
            law = law.expected(probability)
        return law.only(self.members)

    def true_law(self) -> DelayLaw:
        """The law of all learners, in the states in which their next cycle begins."""
        return self._in(self._law, self._next().states)

    def foreseen_law(self) -> DelayLaw:
        """The same law, as far as it is known."""
        return self._in(self._known, self._next().states)

    def _next(self) -> Chance:
        """Return the draws of the next cycle, which are made once."""
        if self._coming is None:
            self._coming = self._chance()
        return self._coming

    async def bids(self, *, deadline_s: float, steps: int, shard: int) -> Ints:
        """Each learner's own bound on its shards (DAB, Eq. 5)."""
        law = await self.law()
        if self._careful:
            law = self._careful.careful(law, self.members)
            deadline_s = self._careful.before(deadline_s)
        problem = Problem.of(
            law.per_shard(shard),
            samples=len(self._samples) // shard,
            deadline_s=deadline_s,
        )
        on_air = self.on_air()
        bids = dab(problem, steps=steps).samples
        return bids if on_air is None else bids * on_air

    async def probe(
        self, orders: Sequence[Order], parameters: Parameters, deadline_s: float
    ) -> Probed:
        """Return the speeds that members measure, and how long each is then idle.

        The rest is ordered once the slowest has trained its probe batches; until then
        the others go on with their first order.
        """
        law = self.true_law().only(self.members)
        shard = np.array([order.samples for order in orders])
        passes = shard * np.array([order.steps for order in orders])
        first_s = law.fixed_s / 2 + law.sample_s * shard
        few = np.minimum(PROBE.batches * self._training.batch, passes)
        ordered_s = float((first_s + law.step_s * few).max()) + PROBE.latency_s
        noisy = np.exp(PROBE.noise * self._rng.standard_normal(len(orders)))
        return Probed(
            there=np.arange(len(orders)),
            law=replace(law, step_s=noisy * law.step_s, sample_s=noisy * law.sample_s),
            began_s=self._now_s,
            waits_s=np.maximum(0.0, ordered_s - (first_s + law.step_s * passes)),
        )

    async def train(
        self, orders: Sequence[Order], parameters: Parameters, deadline_s: float
    ) -> AsyncIterator[Updates | Lost]:
        """Train for real, in the order in which the updates would arrive."""
        orders = [order for order in orders if order.samples]
        self._cycle += 1
        prices = self._price(orders, deadline_s)
        if self._careful:
            await self._observe(self._careful, orders, prices)
        arrival, lost, ends_s = prices.arrivals(
            orders,
            deadline_s,
            self._conditions.late,
            enough=self.enough,
            taken_s=self._taken_s(orders),
        )
        plans = []
        if not self._conditions.timing:
            plans = [self._plan(orders[i])[: prices.batches[i]] for i in arrival]
        async for updates in self._trained(orders, prices, arrival, plans, parameters):
            yield updates
        for one in lost:
            yield one
        self._now_s += ends_s

    def _taken_s(self, orders: Sequence[Order]) -> Floats | float:
        """Return how long from now until each learner's machine is reclaimed."""
        if (spot := self._conditions.spot) is None:
            return np.inf
        places = np.array([order.learner for order in orders], dtype=np.int64)
        return spot.taken_s()[self.members[places]] - self._now_s

    async def _observe(
        self, careful: Careful, orders: Sequence[Order], prices: Prices
    ) -> None:
        """Let learners compare a cycle with what they knew of themselves."""
        who = np.array([order.learner for order in orders], dtype=np.int64)
        law = (await self.law()).only(who)
        careful.observe(self.members[who], prices.took(law, orders))

    async def _trained(
        self,
        orders: Sequence[Order],
        prices: Prices,
        arrival: Ints,
        plans: Sequence[Ints],
        parameters: Parameters,
    ) -> AsyncIterator[Updates]:
        """Yield the updates of batched training, some learners at a time."""
        if not self.learning:
            yield _unlearnt(prices, orders, arrival, parameters)
            return
        names = [self.learners[orders[i].learner] for i in arrival.tolist()]
        corrections = [orders[i].correction for i in arrival.tolist()]
        together = self._classrooms.train(
            parameters,
            self._cycle,
            names,
            plans,
            corrections,
            options=[orders[i].option for i in arrival.tolist()],
        )
        for chunk, stack, part in together:
            reports = [
                prices.report(i, orders[i].learner, loss)
                for i, loss in zip(
                    arrival[chunk.learners].tolist(), chunk.loss.tolist(), strict=True
                )
            ]
            yield Updates(reports, stack, part)

    def state(self) -> Parameters:
        """Return the buffers that learners keep to themselves."""
        return self._classrooms.state()

    def restore(self, saved: Parameters) -> None:
        """Restore those buffers."""
        self._classrooms.restore(saved)

    def how(self) -> str:
        """Say how learners are trained here, and why not faster."""
        return self._classrooms.how(self._names)

    def expel(self, name: str, reason: str) -> None:
        """Exclude a learner from the next cycle on."""
        self._expelled.add(name)

    def _plan(self, order: Order) -> Ints:
        rows = order.rows
        if rows is None:
            assert self._own_rows is not None
            own = self._own_rows[self.members[order.learner]]
            rows = _drawn(own, order.samples, self._rng)
        return batch_plan(rows, order.steps, self._training, self._rng)

    def _price(self, orders: Sequence[Order], deadline_s: float) -> Prices:
        """Return times and work of the orders under this cycle's states and noise."""
        chance, self._coming = self._next(), None
        k = self.members[np.array([order.learner for order in orders], dtype=np.int64)]
        d = np.array([order.samples for order in orders], dtype=np.int64)
        steps = np.array([order.steps for order in orders], dtype=np.int64)
        size = self._training.batch
        per_pass = -(-d // size)
        waits_s = np.array([order.waits_s for order in orders])
        taken = np.zeros(len(self._names), dtype=np.int64)
        taken[k] = [order.option for order in orders]
        chance = replace(chance, through=self._ways.options.law(chance.through, taken))
        download_s, sample_s, upload_s = chance.phases_s(k, d, np.ones_like(d))
        download_s += waits_s
        due = steps * d
        # A plan that fits by the law must not lose a batch to rounding.
        late = download_s + sample_s * due + upload_s > deadline_s * (1 + 1e-9)
        carries = self._conditions.late == Late.CARRY
        halts = carries or self._conditions.late == Late.HALT
        halted = late & halts & (due > 0)
        # A batch is begun only if the update can still arrive in time.
        room_s = np.maximum(deadline_s - download_s - upload_s, 0.0)
        if carries:
            # Who could send nothing then goes on until a later deadline.
            first_s = download_s + upload_s + sample_s * np.minimum(size, d)
            cycles = np.maximum(1.0, np.ceil(first_s / (deadline_s * (1 + 1e-9))))
            room_s = cycles * deadline_s - download_s - upload_s
        fits = np.minimum(np.floor(room_s / sample_s), due).astype(np.int64)
        passes, rest = fits // d, fits % d // size
        batches = np.where(halted, passes * per_pass + rest, steps * per_pass)
        if self._conditions.late == Late.OVERRUN:
            # Batches at the end of which the deadline is over, then the next look.
            over = np.maximum(deadline_s * (1 + 1e-9) - download_s, 0.0) / sample_s
            over = np.minimum(over, due)
            begun = over // d * per_pass + np.ceil(over % d / size)
            n = self._conditions.look_every
            looks = 1 + n * np.ceil(np.maximum(begun - 1, 0) / n)
            batches = np.minimum(looks, steps * per_pass).astype(np.int64)
        trained = batches // per_pass * d + np.minimum(batches % per_pass * size, d)
        trained_s = download_s + sample_s * trained
        return Prices(
            downloaded_s=download_s,
            trained_s=trained_s,
            uploaded_s=trained_s + upload_s,
            batches=batches,
            samples=np.minimum(trained, d),
            passes=trained,
            halted=trained < due,
            late=late,
        )

    def _chance(self) -> Chance:
        """Draw this cycle's states and noise."""
        K, sigma = len(self._names), self._conditions.noise
        states = self._draw_states()
        law = through = self._in(self._law, states)
        if self._conditions.changing:
            changes = self._rng.random(K) < self._conditions.changing
            # A part of the work, drawn evenly, is done before the change.
            part = np.where(changes, self._rng.random(K), 1.0)
            later = self._in(self._law, self._draw_states())
            through = replace(law, step_s=part * law.step_s + (1 - part) * later.step_s)
        self._drawn += 1
        if self._conditions.slower:
            slower = self._conditions.slower(self._drawn)
        else:
            slower = np.exp(sigma * self._rng.standard_normal((2, K)))
        return Chance(states, through, slower)

    def _draw_states(self) -> Ints | None:
        """Draw a state for each learner; None where they have no states."""
        if (gamma := self._conditions.probability) is None:
            return None
        K = len(self._names)
        passed = self._rng.random((K, 1)) > gamma.cumsum(axis=1)[:, :-1]
        return np.asarray(passed.sum(axis=1))

    def _in(self, law: DelayLaw, states: Ints | None) -> DelayLaw:
        """Return a law of all learners, each in its state."""
        return law if states is None else law.at(np.arange(len(self._names)), states)


def _unlearnt(
    prices: Prices, orders: Sequence[Order], arrival: Ints, parameters: Parameters
) -> Updates:
    """Updates that hold the old model, at the times of trained ones."""
    reports = [prices.report(i, orders[i].learner, 0.0) for i in arrival.tolist()]
    shape = (len(reports),)
    return Updates(
        reports, {n: t.expand(*shape, *t.shape) for n, t in parameters.items()}
    )


def _drawn(rows: Ints, number: int, rng: np.random.Generator) -> Ints:
    return rows if number == len(rows) else rng.choice(rows, number, replace=False)
