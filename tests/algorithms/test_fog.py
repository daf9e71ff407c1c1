"""Fog training on a virtual clock, against plain descent on the same samples."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.fleets.fleets import Watched, law, small_data, small_model
from torch.nn.functional import cross_entropy

from melisma.algorithms.fog import Fog, FogSettings
from melisma.algorithms.loop import train
from melisma.algorithms.task import ScheduledTask
from melisma.fleets.simulated_fog import SimulatedDevices
from melisma.fog import Links, Movement, averages
from melisma.fog.online import Alone, Known, Planner, Rolling
from melisma.learning.parameters import Parameters, parameters_of
from melisma.learning.settings import Training
from melisma.maths.arrays import Floats, Ints
from melisma.runs.records import (
    Aggregated,
    Allocated,
    Evaluated,
    Moved,
    Record,
)
from melisma.runs.store import RunWriter
from melisma.system.law import DelayLaw

NAMES = ("dear", "cheap")
RATE = 0.1


def movement(data: Floats) -> Movement:
    """Device 0 should send all that it has to device 1."""
    slots = len(data)
    return Movement(
        data=data,
        process_cost=np.tile([5.0, 1.0], (slots, 1)),
        links=Links.always(2, slots, [0], [1]),
        link_cost=np.array(1.0),
        discard_cost=np.array(3.0),
    )


DATA = np.array([[4.0, 2.0], [3.0, 0.0], [0.0, 5.0], [6.0, 1.0]])


def devices(batch: int = 4, steps: int = 1, **arguments: float) -> SimulatedDevices:
    training = Training(batch=batch, rate=RATE, shuffle=False, arguments={**arguments})
    return SimulatedDevices(
        NAMES,
        law([1.0, 1.0], [0.1, 0.1], [0.0, 0.0]),
        model=small_model(),
        samples=small_data().train,
        own_rows=[np.arange(20), np.arange(20, 40)],
        training=training,
        steps=steps,
        seed=0,
    )


def task(cycles: int) -> ScheduledTask:
    return ScheduledTask(
        name="fog",
        model=small_model(),
        data=small_data(),
        scheme="fog",
        cycles=cycles,
        deadline_s=2.0,
        seed=0,
        steps=1,
    )


def fogging(
    planner: Planner,
    data: Floats = DATA,
    period: int = 2,
    there: Sequence[Sequence[bool]] | None = None,
) -> FogSettings:
    def environment(
        names: Sequence[str], own: Sequence[int], law: DelayLaw
    ) -> Movement:
        problem = movement(data)
        return problem if there is None else replace(problem, there=np.array(there))

    return FogSettings(period=period, planner=planner, environment=environment)


def ran(
    crew: SimulatedDevices, how: FogSettings, cycles: int = 2
) -> tuple[Parameters, list[Record]]:
    run = RunWriter()
    work = train(task(cycles), crew, Fog(crew, how), run)
    return asyncio.run(work), run.records


def moved(happened: Sequence[Record], name: str) -> list[Moved]:
    return [r for r in happened if isinstance(r, Moved) and r.learner == name]


def stepped(parameters: Parameters, rows: Ints, batch: int) -> Parameters:
    """Plain gradient descent over rows in their order."""
    model, data = small_model(), small_data()
    model.load_state_dict(parameters)
    for start in range(0, len(rows), batch):
        some = data.train[rows[start : start + batch]]
        loss = cross_entropy(model(some["x"]), some["y"])
        for p, gradient in zip(
            model.parameters(),
            torch.autograd.grad(loss, list(model.parameters())),
            strict=True,
        ):
            p.data.sub_(RATE * gradient)
    return parameters_of(model)


def averaged(models: Sequence[Parameters], weights: Sequence[int]) -> Parameters:
    share = torch.tensor(weights) / sum(weights)
    return {
        name: torch.tensordot(share, torch.stack([m[name] for m in models]), 1)
        for name in models[0]
    }


def assert_same(ours: Parameters, theirs: Parameters) -> None:
    for name, value in theirs.items():
        assert torch.allclose(ours[name], value, atol=1e-6), name


def orders(crew: SimulatedDevices) -> list[Ints]:
    """The order in which each device collects its own rows."""
    return [crew.own_rows[name] for name in NAMES]


def test_alone_it_is_federated_averaging_by_samples() -> None:
    crew = devices()
    a, b = orders(crew)
    ours, _ = ran(crew, fogging(Alone()))
    w = parameters_of(small_model())
    # Slots of 4, 3 | 0, 6 samples on one and of 2, 0 | 5, 1 on the other.
    one = stepped(stepped(w, a[:4], 4), a[4:7], 4)
    w = averaged([one, stepped(w, b[:2], 4)], [7, 2])
    two = stepped(stepped(w, b[2:7], 4), b[7:8], 4)
    w = averaged([stepped(w, a[7:13], 4), two], [6, 6])
    assert_same(ours, w)


def test_what_is_sent_is_trained_on_by_the_receiver_in_the_next_slot() -> None:
    crew = devices()
    a, b = orders(crew)
    ours, _ = ran(crew, fogging(Known()))
    w = parameters_of(small_model())
    # Device 1 has 2, 0 + 4 | 5 + 3, 1 + 0, and in one slot more the 6 of the last.
    for rows in (b[:2], a[:4], np.append(b[2:7], a[4:7]), b[7:8], a[7:13]):
        w = stepped(w, rows, 4)
    assert_same(ours, w)


#: Who is there in the four slots: the second leaves, then the first, and both return.
THERE = [[True, True], [True, False], [False, True], [True, True]]


def test_who_leaves_takes_its_work_along_and_begins_anew() -> None:
    crew = devices()
    a, b = orders(crew)
    ours, happened = ran(crew, fogging(Alone(), period=4, there=THERE), cycles=1)
    w = parameters_of(small_model())
    # The first had 4 and 3 samples, which are lost; the second 2. What they would have
    # collected while they were away is nobody's: the 0 and 0 of slots 2 and 3.
    first, second = stepped(w, a[7:13], 4), stepped(stepped(w, b[2:7], 4), b[7:8], 4)
    assert_same(ours, averaged([first, second], [6, 6]))
    given = [(r.learner, r.samples) for r in happened if isinstance(r, Allocated)]
    assert given == [("dear", 6), ("cheap", 6)]


def test_what_is_on_its_way_to_who_leaves_is_lost() -> None:
    planner = Rolling(1, averages)  # which does not know who will be there
    crew = devices()
    a, b = orders(crew)
    ours, happened = ran(crew, fogging(planner, there=THERE))
    dear, cheap = moved(happened, "dear"), moved(happened, "cheap")
    assert [r.sent for r in dear] == [{"cheap": 4}, {}, {"cheap": 6}, {}]
    assert [(r.slot, r.arrived, r.trained) for r in cheap[:2]] == [(1, 0, 2), (2, 4, 0)]
    assert (cheap[1].discarded, cheap[1].error_cost) == (4, 12.0)
    # In slot 2 it may only keep its 3, which is dearer than to discard them.
    assert dear[1].discarded == 3
    w = parameters_of(small_model())
    for rows in (b[2:7], b[7:8], a[7:13]):
        w = stepped(w, rows, 4)
    assert_same(ours, w)


def test_a_run_that_devices_enter_and_leave_goes_on_where_it_was() -> None:
    settings = fogging(Known(), there=THERE)
    whole, happened = ran(devices(), settings)
    kept: list[Parameters] = []
    crew, first = devices(), list[Record]()

    def keep(cycle: int, parameters: Parameters) -> None:
        kept.append(parameters)
        raise KeyboardInterrupt

    run = Watched(first.append, keep=keep)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(train(task(2), crew, Fog(crew, settings), run))
    again, crew = task(2), devices()
    again.model.load_state_dict(kept[0])
    run = Watched(first.append, past=tuple(first))
    again_settings = fogging(Known(), there=THERE)
    assert_same(asyncio.run(train(again, crew, Fog(crew, again_settings), run)), whole)
    assert first == happened


def test_several_passes_are_made_over_each_slot() -> None:
    crew = devices(batch=40, steps=3)
    a, _ = orders(crew)
    ours, _ = ran(crew, fogging(Alone(), DATA * [1.0, 0.0], period=4), cycles=1)
    w = parameters_of(small_model())
    for rows in (a[:4], a[4:7], a[7:13]):
        w = stepped(stepped(stepped(w, rows, 40), rows, 40), rows, 40)
    assert_same(ours, w)


def test_an_optimisers_state_lasts_for_the_slots_of_a_cycle() -> None:
    crew = devices(momentum=0.9)
    a, _ = orders(crew)
    ours, _ = ran(crew, fogging(Alone(), DATA * [1.0, 0.0]))
    model = small_model()
    # Slots of 4, 3 | 0, 6 samples, in batches of 4.
    for batches in ((a[:4], a[4:7]), (a[7:11], a[11:13])):
        step = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
        for rows in batches:
            some = small_data().train[rows]
            step.zero_grad()
            cross_entropy(model(some["x"]), some["y"]).backward()  # type: ignore[no-untyped-call]
            step.step()
    assert_same(ours, parameters_of(model))


def test_records_say_where_every_sample_went() -> None:
    _, happened = ran(devices(), fogging(Known()))
    dear, cheap = moved(happened, "dear"), moved(happened, "cheap")
    assert [r.slot for r in dear] == [1, 2, 3, 4, 5]
    assert [r.collected for r in dear] == [4, 3, 0, 6, 0]
    assert [r.sent for r in dear] == [{"cheap": 4}, {"cheap": 3}, {}, {"cheap": 6}, {}]
    assert [r.arrived for r in cheap] == [0, 4, 3, 0, 6]
    assert [r.trained for r in cheap] == [2, 4, 8, 1, 6]
    assert [r.transfer_cost for r in dear] == [4.0, 3.0, 0.0, 6.0, 0.0]
    assert sum(r.process_cost for r in cheap) == pytest.approx(21.0)
    assert sum(r.error_cost for r in dear + cheap) == 0.0


def test_slots_last_as_long_as_they_are_to() -> None:
    _, happened = ran(devices(), fogging(Known()))
    times = [r.time_s for r in moved(happened, "dear")]
    assert times == pytest.approx([1.0, 2.0, 3.0, 4.0, 5.0])
    assert [r.time_s for r in happened if isinstance(r, Evaluated)] == [2.0, 5.0]


def test_who_trains_on_nothing_sits_out() -> None:
    _, happened = ran(devices(), fogging(Known()))
    given = [
        (r.learner, r.samples, r.steps) for r in happened if isinstance(r, Allocated)
    ]
    assert given == [("dear", 0, 0), ("cheap", 6, 1), ("dear", 0, 0), ("cheap", 15, 1)]
    assert [r.learners for r in happened if isinstance(r, Aggregated)] == [1, 1]


def test_no_row_is_trained_on_twice() -> None:
    crew = devices()
    seen: Counter[int] = Counter()
    inner = crew.slot

    async def slot(number: int, moves: object, slot_s: float) -> object:
        before = {n: len(p) for n, p in crew._plans.items()}
        done = await inner(number, moves, slot_s)  # type: ignore[arg-type]
        for name, plans in crew._plans.items():
            for plan in plans[before[name] :]:
                seen.update(plan[plan >= 0].tolist())
        return done

    crew.slot = slot  # type: ignore[method-assign, assignment]
    ran(crew, fogging(Known()))
    assert set(seen.values()) == {1}
    assert seen.total() == DATA.sum()


def test_a_cycle_whose_data_are_all_discarded_leaves_the_model_as_it_is() -> None:
    data = np.array([[0.0, 0.0], [0.0, 0.0], [4.0, 2.0], [0.0, 0.0]])
    crew = devices()
    a, b = orders(crew)
    ours, happened = ran(crew, fogging(Alone(), data))
    w = parameters_of(small_model())
    w = averaged([stepped(w, a[:4], 4), stepped(w, b[:2], 4)], [4, 2])
    assert_same(ours, w)
    assert [r.learners for r in happened if isinstance(r, Aggregated)] == [0, 2]


def test_a_run_goes_on_where_it_was() -> None:
    whole, happened = ran(devices(), fogging(Known()))
    models: dict[int, Parameters] = {}
    crew = devices()
    first: list[Record] = []

    def keep(cycle: int, parameters: Parameters) -> None:
        models[cycle] = parameters
        raise KeyboardInterrupt

    run = Watched(first.append, keep=keep)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(train(task(2), crew, Fog(crew, fogging(Known())), run))
    again, crew = replace(task(2)), devices()
    again.model.load_state_dict(models[1])
    run = Watched(first.append, past=tuple(first))
    work = train(again, crew, Fog(crew, fogging(Known())), run)
    assert_same(asyncio.run(work), whole)
    assert first == happened
