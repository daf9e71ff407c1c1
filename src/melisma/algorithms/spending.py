"""What the cycles of a run spend: predicted, limited, and left in batteries.

Before each cycle: batteries as the records left them, filled since then; of a limit for
the whole run, what is left of it, evenly over the cycles that are left. All of it
follows from the records, so that a run that was cut short goes on with it.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

import numpy as np

from melisma.algorithms.allocating import allocate
from melisma.algorithms.state import RunState
from melisma.algorithms.task import Plan, ScheduledTask
from melisma.errors import InfeasibleError
from melisma.fleets.protocols import Trains
from melisma.maths.arrays import Bools, Floats
from melisma.schemes import DECENTRALISED, SPENDING
from melisma.system.energy import Budget, EnergyLaw, PowerProfile, Spending
from melisma.system.law import DelayLaw
from melisma.system.promise import Promises

#: Why a learner sits out.
UNKNOWN = "the job does not say what it draws"
#: Share of its time by which a cycle may wait too long for batteries.
WITHIN = 0.01


class Spent(StrEnum):
    """What is to be least, or limited."""

    ENERGY = "energy"  #: joules
    MONEY = "money"
    CARBON = "carbon"  #: grams


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What learners may spend together."""

    most: Mapping[Spent, float]  #: of each kind; the first is what is to be least
    of_run: bool = False  #: else of each cycle
    sample_bytes: float = 0.0  #: that travel, where bytes cost money
    model_bytes: float = 0.0

    @property
    def what(self) -> Spent:
        """What is to be least."""
        return next(iter(self.most))


class Spender:
    """Plans cycles by what they spend; learners are those that ``names`` has."""

    def __init__(
        self,
        power: PowerProfile,
        names: Sequence[str],
        limit: Limit,
        promises: Promises | None = None,
    ) -> None:
        self._power, self._limit, self._promises = power, limit, promises
        self._places = {name: k for k, name in enumerate(names)}
        self.state = RunState()  #: of the run, set before a cycle is planned
        self._ahead_s = 0.0  # of now: when to plan for

    async def __call__(
        self,
        task: ScheduledTask,
        crew: Trains,
        cycle: int,
        *,
        only_able: bool,
        among: Bools | None = None,
        on_air: Bools | None = None,
    ) -> Plan:
        """Plan within what may be spent, and predict what is.

        Live learners that the job does not name sit out where that is planned by, and
        otherwise nothing is predicted.
        """
        known = np.array([name in self._places for name in crew.learners])
        spends = task.scheme in SPENDING
        planned = partial(
            allocate,
            task,
            crew,
            cycle,
            only_able=only_able,
            on_air=on_air,
            promises=self._promises,
        )
        if not known.all() and not spends:
            return await planned(among=among)
        if not known.all():
            among = _of_known(known, crew) & (True if among is None else among)
        power = self._power_of(crew)
        if task.scheme in DECENTRALISED:  # where nobody says how fast it is
            return replace(await planned(among=among), power=power)
        law, levels, spending = await crew.law(), self._levels(power, crew), None
        cost = self._cost(self._limit.what, power, law)
        if spends:
            first, *others = (
                Budget(self._cost(what, power, law), self._budget(what, task, cycle))
                for what in self._limit.most
            )
            spending = Spending(
                cost=first.law,
                budget=first.most,
                energy=power.energy(law),
                battery_j=levels,
                hazard=power.hazard,
                others=tuple(others),
            )
        plan = await planned(among=among, spending=spending)
        work = plan.allocation.samples * task.shard, plan.allocation.steps
        chosen = task.options.law(law, plan.allocation.options)
        joules = power.energy(chosen).joules(*work)
        has_price = self._limit.what != Spent.ENERGY
        why = zip(plan.why, known.tolist(), strict=True) if plan.why else ()
        return replace(
            plan,
            predicted_j=joules,
            battery_j=np.maximum(levels - joules, 0.0),
            risk=risk_of(power, plan),
            cost=cost.joules(*work) if has_price else plan.cost,
            power=power,
            why=[text if is_known else UNKNOWN for text, is_known in why],
        )

    def _power_of(self, crew: Trains) -> PowerProfile:
        """Return what the crew draws; of who is unknown, anything."""
        places = [self._places.get(name, 0) for name in crew.learners]
        return self._power.only(np.array(places))

    def _cost(self, what: Spent, power: PowerProfile, law: DelayLaw) -> EnergyLaw:
        match what:
            case Spent.ENERGY:
                return power.energy(law)
            case Spent.CARBON:
                return power.carbon(law)
            case Spent.MONEY:
                return power.money(
                    law,
                    sample_bytes=self._limit.sample_bytes,
                    model_bytes=self._limit.model_bytes,
                )

    def _budget(self, what: Spent, task: ScheduledTask, cycle: int) -> float:
        """Return what this cycle may spend, of one kind."""
        most, state = self._limit.most[what], self.state
        if not self._limit.of_run:
            return most
        if what == Spent.ENERGY:
            spent = state.spent_j
        elif what == self._limit.what:
            spent = state.cost
        else:  # grams, which records do not have beside money
            grams = zip(self._places, self._power.carbon_g.tolist(), strict=True)
            spent = sum(state.joules[name] * each_g for name, each_g in grams)
        return max(most - spent, 0.0) / (task.cycles - cycle + 1)

    def _levels(self, power: PowerProfile, crew: Trains) -> Floats:
        """Return what is in each battery now, or then; inf: the mains."""
        now_s, batteries = crew.now_s() + self._ahead_s, self.state.batteries
        levels = power.start_j.copy()
        for k, name in enumerate(crew.learners):
            time_s, level_j = batteries.get(name, (0.0, float(levels[k])))
            levels[k] = power.level_j(k, now_s - time_s, level_j)
        return levels

    async def affordable_s(
        self, planned: Callable[[], Awaitable[Plan]], crew: Trains
    ) -> float:
        """Return when batteries have filled enough for a plan; inf: never."""
        power = self._power_of(crew)
        with np.errstate(divide="ignore", invalid="ignore"):
            fills_s = (power.battery_j - self._levels(power, crew)) / power.harvest_w
        low_s, high_s = 0.0, float(fills_s[np.isfinite(fills_s)].max(initial=0.0))

        async def works(after_s: float) -> bool:
            self._ahead_s = after_s
            try:
                await planned()
            except InfeasibleError:
                return False
            finally:
                self._ahead_s = 0.0
            return True

        if not high_s or not await works(high_s):
            return np.inf
        while high_s - low_s > WITHIN * high_s:
            middle_s = (low_s + high_s) / 2
            if await works(middle_s):
                high_s = middle_s
            else:
                low_s = middle_s
        return crew.now_s() + high_s


def risk_of(power: PowerProfile, plan: Plan) -> Floats | None:
    """Return each learner's chance to be reclaimed before it is done, where it may."""
    if plan.predicted_s is None or np.isinf(power.reclaim_s).all():
        return None
    chance = -np.expm1(-power.hazard * plan.predicted_s)
    return np.where(np.isfinite(power.reclaim_s), chance, np.nan)


def _of_known(known: Bools, crew: Trains) -> Bools:
    """Return who is known; InfeasibleError if nobody is."""
    if not known.any():
        raise InfeasibleError(
            f"the job says of none of {', '.join(crew.learners)} what it draws: give "
            "[[learners]] of these names, with power"
        )
    return known
