"""FedCompass and Ringleader against plain loops of one event at a time."""

import asyncio
import copy
import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from tests.fleets.fleets import law, small_data, small_model, task_of

from melisma.algorithms.asynchronous import Asynchronous, Rule
from melisma.algorithms.asynchronous.fedcompass import FedCompass
from melisma.algorithms.asynchronous.ringleader import Ringleader
from melisma.algorithms.loop import train as loop
from melisma.algorithms.task import in_batches
from melisma.fleets.flow import SimulatedFlow
from melisma.fleets.protocols import Order
from melisma.learning.parameters import Parameters, parameters_of, put
from melisma.learning.settings import Training
from melisma.learning.training import batch_plan, train
from melisma.maths.arrays import Floats, Ints
from melisma.runs import records
from melisma.runs.records import Record
from melisma.runs.store import RunWriter

#: 8, 12, 20, 16 and 24 samples: 2, 3, 5, 4 and 6 batches an epoch.
OWN = np.split(np.arange(80), [8, 20, 40, 56])
NAMES = "abcde"
TRAINING = Training(batch=4, rate=0.1, shuffle=False)
EPOCHS = 5
WHOLE = [len(rows) // TRAINING.batch * EPOCHS for rows in OWN]
FIXED_S = 0.2
SAMPLE_S = np.array([0.02, 0.05, 0.1, 0.03, 0.15])


#: One of them at once, the others among the slow tests.
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))]


def slowness(seed: int) -> Floats:
    """How much longer each learner takes in each of its orders."""
    factors = np.random.default_rng(seed).uniform(0.7, 1.6, (len(OWN), 200))
    # Some orders take much longer than any group waits.
    return np.asarray(np.where(factors > 1.5, 4.0, factors), dtype=np.float64)


class Unsteady(SimulatedFlow):
    """Learners whose speeds are written down."""

    factors: Floats

    def order(self, order: Order, parameters: Parameters) -> None:
        k = order.learner
        self._count = getattr(self, "_count", dict[int, int]())
        n = self._count[k] = self._count.get(k, -1) + 1
        self._law = replace(self._law, step_s=SAMPLE_S * self.factors[:, n])
        super().order(order, parameters)

    def _plan(self, order: Order) -> Ints:
        rows = OWN[order.learner][: order.samples]
        return batch_plan(rows, order.steps, TRAINING, np.random.default_rng(0))


def ran(
    rule: Rule, seed: int, cycles: int
) -> tuple[Parameters, list[tuple[float, int]]]:
    """Run it; return the model, and who arrived when."""
    crew = Unsteady(
        list(NAMES),
        law(SAMPLE_S.tolist(), [0.0] * 5, [FIXED_S] * 5),
        model=small_model(),
        samples=small_data(96).train,
        training=TRAINING,
        seed=0,
        own_rows=OWN,
    )
    crew.factors = slowness(seed)
    task = task_of(
        "async:test",
        100.0,
        federated=True,
        samples=None,
        data=small_data(96),
        training=TRAINING,
        steps=EPOCHS,
        cycles=cycles,
    )
    found: list[Record] = []
    algorithm = Asynchronous(crew, rule, updates=7)
    final = asyncio.run(loop(task, crew, algorithm, RunWriter(watch=found.append)))
    sent = [
        (round(r.time_s, 6), NAMES.index(r.learner))
        for r in found
        if isinstance(r, records.Uploaded)
    ]
    return final, sent


def work(k: int, batches: int) -> tuple[int, int]:
    """Samples and epochs."""
    if batches == WHOLE[k]:
        return len(OWN[k]), EPOCHS
    return in_batches(batches, len(OWN[k]), TRAINING.batch, 1)


def takes_s(k: int, batches: int, factor: float) -> float:
    samples, epochs = work(k, batches)
    return float(SAMPLE_S[k]) * samples * epochs * factor + FIXED_S


def change(k: int, start: Parameters, batches: int) -> tuple[Parameters, int]:
    """Train; return how far it went, and batches done."""
    samples, epochs = work(k, batches)
    client = small_model()
    put(copy.deepcopy(start), client)
    plan = batch_plan(OWN[k][:samples], epochs, TRAINING, np.random.default_rng(0))
    train(client, small_data(96).train, plan, TRAINING)
    return {n: t - start[n] for n, t in parameters_of(client).items()}, len(plan)


def moved(model: Parameters, by: Sequence[tuple[float, Parameters]]) -> Parameters:
    return {n: t + sum(w * d[n] for w, d in by) for n, t in model.items()}


def ringleader(
    factors: Floats, arrivals: int, rate: float
) -> tuple[Parameters, list[tuple[float, int]], list[int]]:
    """The paper's Algorithm, in its own words: G, b, G⁺, b⁺ and S; with all ages."""
    n = len(OWN)
    x = parameters_of(small_model())
    queue: list[tuple[float, int, int]] = []
    starts, orders, serial = [x] * n, [0] * n, 0
    given, ages = [0] * n, list[int]()
    k_now = 0

    def compute(i: int, now: float) -> None:
        nonlocal serial
        took = takes_s(i, WHOLE[i], float(factors[i, orders[i]]))
        starts[i], given[i], orders[i], serial = x, k_now, orders[i] + 1, serial + 1
        heapq.heappush(queue, (now + took, serial, i))

    for i in range(n):
        compute(i, 0.0)
    grads: list[list[Parameters]] = [[] for _ in range(n)]
    later: list[list[Parameters]] = [[] for _ in range(n)]
    s: set[int] = set()
    first_phase, found = True, list[tuple[float, int]]()
    for _ in range(arrivals):
        now, _, i = heapq.heappop(queue)
        found.append((round(now, 6), i))
        ages.append(k_now - given[i])
        g, _ = change(i, starts[i], WHOLE[i])
        step = False
        if first_phase:
            grads[i].append(g)
            s.add(i)
            step = len(s) == n
            first_phase = not step
        elif i in s:
            grads[i].append(g)
            step = True
        else:
            later[i].append(g)
        if step:
            x = moved(x, [(rate / n / len(own), one) for own in grads for one in own])
            k_now += 1
            s.discard(i)
            if not s:
                grads, later = later, [[] for _ in range(n)]
                s = {j for j in range(n) if grads[j]}
                first_phase = True
        compute(i, now)
    return x, found, ages


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_ringleader_is_the_algorithm_of_its_paper(seed: int) -> None:
    final, sent = ran(Ringleader(0.7), seed, cycles=10)
    model, arrivals, ages = ringleader(slowness(seed), 70, 0.7)
    assert sent == arrivals
    assert 0 < max(ages) <= 2 * len(OWN) - 2
    for n, value in model.items():
        torch.testing.assert_close(final[n], value, atol=1e-5, rtol=1e-4)


#: Of a meeting that was.
PAST = -1e9


@dataclass
class Meeting:
    expected: float
    latest: float
    coming: list[int]
    came: list[int]


def fedcompass(
    factors: Floats, arrivals: int
) -> tuple[Parameters, list[tuple[float, int]], dict[str, int]]:
    """A server with groups and timers, and what was seen to happen."""
    m, low, slack = len(OWN), 0.2, 1.2
    x, version = parameters_of(small_model()), 0
    seen = {"single": 0, "late": 0, "timer": 0, "full": 0, "joined": 0}
    events: list[tuple[float, int, int, str, int]] = []  # arrivals before timers
    speed: dict[int, float] = {}
    group: dict[int, int] = {}
    groups: dict[int, Meeting] = {}
    buffer: list[tuple[int | None, Parameters, int]] = []
    started: dict[int, tuple[Parameters, int, float, int]] = {}
    orders, serial, number = [0] * m, 0, 0
    found: list[tuple[float, int]] = []

    def send(k: int, now: float, batches: int) -> None:
        nonlocal serial
        took = takes_s(k, batches, float(factors[k, orders[k]]))
        orders[k] += 1
        started[k] = (x, version, took, batches)
        serial += 1
        heapq.heappush(events, (now + took, 0, serial, "arrival", k))

    def merge(entries: list[tuple[Parameters, int]]) -> None:
        nonlocal x, version
        x = moved(
            x, [(0.9 * (1 + version - v) ** -0.5 / m, went) for went, v in entries]
        )
        version += 1

    def assign(k: int, now: float) -> int:
        nonlocal number, serial
        q_max, q_min = WHOLE[k], math.ceil(low * WHOLE[k] - 1e-9)
        best, steps = None, -1
        for g, facts in groups.items():
            fits = math.floor((facts.expected - now) / speed[k] + 1e-9)
            if q_min <= fits <= q_max and fits > steps:
                best, steps = g, fits
        if best is None:
            for facts in groups.values():
                if now < facts.latest:
                    fastest = min(
                        speed[j] * WHOLE[j] for j in [*facts.coming, *facts.came]
                    )
                    meet = facts.latest + fastest
                    fits = math.floor((meet - now) / speed[k] + 1e-9)
                    if fits <= q_max:
                        steps = max(steps, fits)
            steps = q_max if steps < 0 else max(steps, q_min)
            best, number = number, number + 1
            takes = steps * speed[k]
            groups[best] = Meeting(now + takes, now + takes * slack, [], [])
            serial += 1
            heapq.heappush(events, (now + takes * slack, 1, serial, "timer", best))
        else:
            seen["joined"] += 1
        groups[best].coming.append(k)
        group[k] = best
        return steps

    def complete(g: int, now: float) -> None:
        nonlocal buffer
        facts = groups[g]
        came = list(facts.came)
        facts.expected = facts.latest = PAST
        facts.came = []
        if came:
            merge([(went, v) for to, went, v in buffer if to in (None, g)])
            buffer = [one for one in buffer if one[0] not in (None, g)]
        nexts = [(k, assign(k, now)) for k in sorted(came, key=lambda k: speed[k])]
        for k, steps in nexts:
            send(k, now, steps)
        if not facts.coming:
            del groups[g]

    for k in range(m):
        send(k, 0.0, WHOLE[k])
    while len(found) < arrivals:
        now, _, _, what, k = heapq.heappop(events)
        if what == "timer":
            if k in groups and groups[k].latest > PAST:
                seen["timer"] += bool(groups[k].came)
                complete(k, now)
            continue
        found.append((round(now, 6), k))
        start, v, took, batches = started[k]
        went, done = change(k, start, batches)
        speed[k] = 0.1 * speed.get(k, took / done) + 0.9 * took / done
        if k not in group:
            seen["single"] += 1
            merge([(went, v)])
            send(k, now, assign(k, now))
            continue
        g = group[k]
        facts = groups[g]
        facts.coming.remove(k)
        if now > facts.latest:
            seen["late"] += 1
            buffer.append((None, went, v))
            if not facts.coming and not facts.came:
                del groups[g]
            send(k, now, assign(k, now))
            continue
        facts.came.append(k)
        buffer.append((g, went, v))
        if not facts.coming:
            seen["full"] += 1
            complete(g, now)
    return x, found, seen


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_fedcompass_is_a_server_with_groups_and_timers(seed: int) -> None:
    final, sent = ran(FedCompass(0.9, 0.5, 0.2, 1.2), seed, cycles=12)
    model, arrivals, seen = fedcompass(slowness(seed), 84)
    assert sent == arrivals
    assert all(seen.values()), seen  # every way of it
    for n, value in model.items():
        torch.testing.assert_close(final[n], value, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("batches", "samples", "found"),
    [(7, 100, (96, 2)), (4, 100, (100, 1)), (3, 100, (96, 1)), (1, 100, (32, 1))],
)
def test_an_order_has_no_more_batches_than_it_is_given(
    batches: int, samples: int, found: tuple[int, int]
) -> None:
    assert in_batches(batches, samples, 32, 1) == found
    d, epochs = found
    assert -(-d // 32) * epochs <= batches
