"""Learners of parts are trained as each would train its part by itself."""

import copy
from functools import partial

import numpy as np
import pytest
import torch

from melisma.fleets.classroom import Classroom
from melisma.fleets.classrooms import Classrooms
from melisma.fleets.ways import Ways
from melisma.learning.losses import LOSSES
from melisma.learning.models import perceptron
from melisma.learning.parameters import Parameters, parameters_of, put
from melisma.learning.samples import pairs
from melisma.learning.settings import HERE, Training
from melisma.learning.submodels import Example, submodel_of
from melisma.learning.training import batch_plan, train
from melisma.learning.way import Way
from melisma.learning.wire import Wire, seed_of
from melisma.maths.arrays import Ints

NAMES = ["a", "b", "c", "d", "e"]
SUBMODELS = {"b": "width 0.5", "c": "freeze 0.5", "e": "width 0.5"}
TRAINING = Training(batch=4, rate=0.1)

torch.manual_seed(0)
MODEL = perceptron(6, 8, 7, 3)
X = torch.randn(30, 6)
SAMPLES = pairs(X, X[:, :3].argmax(dim=1))
MADE = {
    written: submodel_of(written).part(
        MODEL, Example(LOSSES["cross-entropy"], SAMPLES[:4])
    )
    for written in sorted(set(SUBMODELS.values()))
}
PARTS = {name: MADE[written] for name, written in SUBMODELS.items()}


def plans() -> list[Ints]:
    rng = np.random.default_rng(0)
    rows = [rng.permutation(30)[:size] for size in (5, 9, 12, 4, 7)]
    return [batch_plan(own, 2, TRAINING, rng) for own in rows]


def rooms(wire: Wire) -> Classrooms:
    ways = [Way(wire), *(Way(wire, part) for part in MADE.values())]
    fixed = {n: ways.index(Way(wire, part)) for n, part in PARTS.items()}
    wires = [way.wire for way in ways]
    make = partial(Classroom, MODEL, SAMPLES, TRAINING, HERE, wires, 3)
    return Classrooms(make, Ways(each=ways, fixed=fixed))


def alone(name: str, plan: Ints, arrived: Parameters) -> Parameters:
    """Train as one learner does, from a model as it arrived, and return all of it."""
    part = PARTS.get(name)
    model = copy.deepcopy(MODEL if part is None else part.model)
    put(arrived if part is None else part.sent(arrived), model)
    train(model, SAMPLES, plan, TRAINING)
    after = parameters_of(model)
    return after if part is None else part.spread(after, arrived)


@pytest.mark.parametrize("down", ["fp32", "fp16"])
def test_each_learner_is_trained_once_and_as_it_would_be_alone(down: str) -> None:
    before, wire, found = parameters_of(MODEL), Wire.of(down, "fp32"), {}
    for chunk, stack, part in rooms(wire).train(before, 1, NAMES, plans()):
        for row, k in enumerate(chunk.learners):
            assert NAMES[k] not in found
            assert part is PARTS.get(NAMES[k])
            own = {n: t[row] for n, t in stack.items()}
            found[NAMES[k]] = own if part is None else part.spread(own, before)
    assert sorted(found) == NAMES
    # To nearest, value by value: a part of the model arrives as part of what arrived.
    moving = before.keys()
    sent = wire.sent(before, moving, seed_of(3, 1))
    arrived = wire.arrived(sent, before, moving)
    for name, plan in zip(NAMES, plans(), strict=True):
        after = alone(name, plan, arrived)
        for key, t in found[name].items():
            # What was learnt is added to the model as it is.
            expected = before[key] + (after[key] - arrived[key])
            torch.testing.assert_close(t, expected, atol=1e-6, rtol=1e-5)


def test_what_learners_left_out_stays_with_them() -> None:
    before, wire = parameters_of(MODEL), Wire.of("fp32", "top-k 10 %")
    first, second = rooms(wire), rooms(wire)
    list(first.train(before, 1, NAMES, plans()))
    second.restore(first.state())
    assert first.state().keys() == second.state().keys()
    for (_, mine, _), (_, theirs, _) in zip(
        first.train(before, 2, NAMES, plans()),
        second.train(before, 2, NAMES, plans()),
        strict=True,
    ):
        for name, t in mine.items():
            assert torch.equal(t, theirs[name])


def test_it_is_said_how_each_part_is_trained() -> None:
    how = rooms(Wire()).how(NAMES)
    assert "batched products" in how
    assert "width 0.5: all learners at once, by torch.func" in how
