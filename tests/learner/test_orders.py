"""Orders that no correct orchestrator gives are refused, and the learner lives on."""

from contextlib import closing
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from tests.learner.test_source import KEYS, SPEC, Dictionaries, request, source

from melisma.errors import ConfigError, DataError
from melisma.fleets.messages import GradientRequest, SlotRequest, TaskSpec, TrainRequest
from melisma.learner import orders
from melisma.learner.delivery import Routes
from melisma.learner.fog import FogLearner
from melisma.learner.learner import TASKS, Learner
from melisma.learner.service import Listener
from melisma.learner.source import Caller
from melisma.learning import models
from melisma.learning.data import Dataset
from melisma.learning.parameters import parameters_of
from melisma.learning.samples import Arrays, length, pairs
from melisma.learning.settings import Training

NAN, INF = float("nan"), float("inf")
WRONG: Any = "lbfgs"
#: Of what type a field may never be, though a caller in Python can set it.
NOT_NUMBERS: list[Any] = [None, "3", True, [], NAN, -1]


def changed(order: Any, **changes: Any) -> Any:
    return msgspec.structs.replace(order, **changes)


def prepared() -> Learner:
    learner = Learner(name="a")
    learner.prepare(SPEC)
    return learner


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"task": ""}, "task '': give 1 to 255"),
        ({"task": "t" * 256}, "give 1 to 255 characters"),
        ({"task": "t\x1b[2J"}, r"'t\\x1b\[2J': give printable"),
        ({"task": 3}, "task 3: give 1 to 255"),
        ({"model": "m" * 10**6}, "model 'mmm"),
        ({"seed": -1}, "seed = -1: give a whole number from 0"),
        ({"seed": 1 << 63}, "seed = 9223372036854775808"),
        ({"shard": 0}, "shard = 0"),
        ({"shard": 1 << 40}, "shard = 1099511627776"),
        ({"steps": 10**9}, "steps = 1000000000"),
        ({"training": None}, "None is not a Training"),
        ({"training": Training(rate=INF)}, "learning rate = inf: give a finite"),
        ({"training": Training(rate=1e300)}, "learning rate = 1e"),
        ({"training": Training(batch=10**12)}, "batch = 1000000000000"),
        ({"training": Training(optimiser=WRONG)}, "optimiser 'lbfgs'"),
        ({"private": 1}, "private = 1: give true or false"),
        ({"adaptive": "yes"}, "adaptive = 'yes': give true or false"),
        ({"late_at_most": 0.5}, "late_at_most = 0.5: give a finite number above 0"),
        ({"late_at_most": -0.1}, "late_at_most = -0.1"),
        ({"late_at_most": "often"}, "late_at_most = 'often'"),
        ({"sizes": 3}, "sizes = 3: give a whole number from 1"),
        ({"sizes": 0}, "sizes = 0"),
        ({"repeats": 10**6}, "repeats = 1000000"),
        ({"patience_s": -1.0}, "patience_s = -1.0: give a finite number above 0"),
        ({"patience_s": "long"}, "patience_s = 'long'"),
        ({"benchmarked": 0}, "benchmarked = 0"),
        ({"moving": True}, r"samples move \(fog\) has to be federated"),
    ],
)
def test_a_task_that_cannot_be_is_not_prepared(
    changes: dict[str, Any], said: str
) -> None:
    learner = Learner(name="a")
    with pytest.raises(ConfigError, match=said):
        learner.prepare(changed(SPEC, **changes))
    assert not learner.prepare(SPEC).measured


@pytest.mark.parametrize("wrong", [None, {}, "t", request()])
def test_what_is_no_task_is_not_prepared(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="is not a TaskSpec"):
        Learner(name="a").prepare(wrong)


def assert_refused(learner: Learner, order: TrainRequest, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        learner.train(order, Caller(source()))
    assert learner.train(request(), Caller(source())).samples == 200


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steps": 10**9}, "steps = 1000000000: give a whole number from 1"),
        ({"steps": 10**6}, "1000000 epochs over 200 samples in batches of 20 are 2000"),
        ({"steps": 0}, "steps = 0"),
        ({"samples": 0}, "samples = 0"),
        ({"samples": 10**9}, "samples = 1000000000"),
        ({"samples": 201}, "201 samples are not 4 shards of 50"),
        ({"samples": 150}, "150 samples are not 4 shards of 50"),
        ({"first": 201}, "first = 201: give a whole number from 0 to 200"),
        ({"keys": KEYS * 10}, "200 samples are not 40 shards"),
        ({"keys": ["k"] * (orders.MOST_KEYS + 1)}, "up to 1048576 keys"),
        ({"keys": ["k" * 10**6] * 4}, "key 'kkk.*: give 1 to 255 characters"),
        ({"keys": [1, 2, 3, 4]}, "key 1: give 1 to 255"),
        ({"keys": "abcd"}, "give a list"),
        ({"deadline_s": INF}, "deadline_s = inf: give a finite number above 0"),
        ({"deadline_s": 1e9}, r"deadline_s = 1000000000\.0"),
        ({"late": "never"}, "late = 'never': give halt, drop, wait"),
        ({"cycle": 1 << 60}, "cycle = 1152921504606846976"),
    ],
)
def test_work_that_cannot_be_is_not_begun(changes: dict[str, Any], said: str) -> None:
    assert_refused(prepared(), changed(request(), **changes), said)


@pytest.mark.parametrize("name", ["cycle", "samples", "steps", "deadline_s", "first"])
@pytest.mark.parametrize("wrong", NOT_NUMBERS)
def test_a_number_of_another_type_is_named(name: str, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=f"{name} = "):
        prepared().train(changed(request(), **{name: wrong}), Caller(source()))


@pytest.mark.parametrize("wrong", [None, 3, SPEC, [request()]])
def test_what_is_no_order_is_refused_by_every_function(wrong: Any) -> None:
    learner, caller = prepared(), Caller(source())
    for function in (learner.train, learner.probe, learner.gradient):
        with pytest.raises(ConfigError, match=r"is not a .*Request"):
            function(wrong, caller)


@pytest.mark.parametrize("name", [None, 3, [], {}, "t" * 10**6, "t\n"])
def test_a_task_has_a_name(name: Any) -> None:
    learner, caller = prepared(), Caller(source())
    for call in (
        lambda: learner.measure(name, KEYS, caller),
        lambda: learner.speeds(name, False),
        lambda: learner.bid(name, 1.0, 1),
    ):
        with pytest.raises(ConfigError, match=r"task .*: give"):
            call()


@pytest.mark.parametrize(
    ("deadline_s", "steps"), [(NAN, 1), (-1.0, 1), (INF, 1), (1.0, 0), (1.0, 10**9)]
)
def test_nobody_bids_for_what_cannot_be(deadline_s: float, steps: int) -> None:
    with pytest.raises(ConfigError, match="give a"):
        prepared().bid("t", deadline_s, steps)


@pytest.mark.parametrize("keys", [None, [], KEYS * 10**6, [None]])
def test_a_benchmark_is_on_a_few_shards(keys: Any) -> None:
    learner = prepared()
    with pytest.raises(ConfigError, match=r"shard|key"):
        learner.measure("t", keys, Caller(source()))
    learner.measure("t", KEYS, Caller(source()))


GRADIENT = GradientRequest(
    task="t", cycle=1, parts=[KEYS[:1], KEYS[1:]], coefficients=[1.0, 2.0], wide=False
)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"coefficients": [1.0]}, "2 parts with 1 coefficients"),
        ({"coefficients": [1.0, NAN]}, "coefficient = nan: give a finite"),
        ({"coefficients": [1.0, INF]}, "coefficient = inf: give a finite"),
        ({"parts": [KEYS, []]}, r"parts of \[4, 0\] shards"),
        ({"parts": [KEYS * 200_000, KEYS * 200_000]}, "shards: give each some"),
        ({"parts": [KEYS, None]}, "give a list"),
        ({"slower": NAN}, "slower = nan: give 1 or more"),
        ({"slower": -1.0}, "slower = -1.0: give 1 or more"),
        ({"cycle": -1}, "cycle = -1"),
    ],
)
def test_a_gradient_that_cannot_be_is_not_begun(
    changes: dict[str, Any], said: str
) -> None:
    learner, caller = prepared(), Caller(source())
    with pytest.raises(ConfigError, match=said):
        learner.gradient(changed(GRADIENT, **changes), caller)
    assert learner.gradient(GRADIENT, caller).cycle == 1


# What is fetched


class Lying(Dictionaries):
    """Answers what it is made with, whatever is asked for."""

    def __init__(self, **answers: Any) -> None:
        honest = source()
        super().__init__(honest.models, honest.data)
        self.answers = answers

    def parameters(self, *asked: Any) -> Any:
        return self.answers.get("parameters", self.models[1])

    def shards(self, task: str, keys: list[str], within_s: float | None = None) -> Any:
        honest = super().shards(task, keys, within_s)
        return self.answers.get("shards", lambda shards: shards)(honest)

    def filler(self, task: str, size: int) -> Any:
        return self.answers.get("filler", np.zeros(size, np.uint8))


WIDER = parameters_of(models.build("ThreeNN", 0))
PART = dict(list(parameters_of(models.build("TwoNN", 0)).items())[1:])


@pytest.mark.parametrize("wrong", [None, {}, WIDER, PART, PART | {"0.weight": "w"}])
def test_parameters_of_another_model_are_refused(wrong: Any) -> None:
    learner = prepared()
    with pytest.raises(DataError, match="not those of this task's model"):
        learner.train(request(), Caller(Lying(parameters=wrong)))
    assert learner.train(request(), Caller(source())).samples == 200


X, Y = torch.zeros(50, 1, 28, 28).byte(), torch.zeros(50).byte()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda shards: None, "others came"),
        (lambda shards: shards[1:], "others came"),
        (lambda shards: shards * 1000, "others came"),
        (lambda shards: [None] * 4, "has to be tensors by name"),
        (lambda shards: [(X, Y)] * 4, "has to be tensors by name"),
        (lambda shards: [{"x": "x", "y": "y"}] * 4, "has to be tensors of real"),
        (
            lambda shards: [{"x": X.to(torch.cfloat), "y": Y}] * 4,
            "tensors of real numbers",
        ),
        (lambda shards: [{"x": X, "y": Y[1:]}] * 4, "numbers of samples"),
        (
            lambda shards: [{"x": X.repeat(9, 1, 1, 1), "y": Y.repeat(9)}] * 4,
            "has 450 samples: 50 were expected",
        ),
        (lambda shards: [*shards[:3], {"x": X[..., :9], "y": Y}], "several kinds"),
        (lambda shards: [*shards[:3], {"x": X.float(), "y": Y}], "several kinds"),
        (lambda shards: [{"x": X.float(), "y": Y}] * 4, "arrived damaged"),
        (lambda shards: [*shards[:3], {"x": X, "y": Y}], "arrived damaged"),
    ],
)
def test_shards_that_were_not_asked_for_are_refused(change: Any, said: str) -> None:
    learner = prepared()
    with pytest.raises(DataError, match=said):
        learner.train(request(), Caller(Lying(shards=change)))
    assert learner.train(request(), Caller(source())).samples == 200


# A device of a fog

FOG = changed(SPEC, task="f", model="FogMLP", federated=True, moving=True, shard=4)
SLOT = SlotRequest(
    task="f",
    cycle=1,
    slot=1,
    ends_s=0.2,
    skipped=0,
    collected=6,
    kept=6,
    sent={},
    arrived={},
)


def own(samples: int = 20) -> Dataset:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (samples, 1, 28, 28), dtype=np.uint8)
    mine = pairs(pixels, np.arange(samples, dtype=np.uint8) % 10)
    return Dataset("own", mine, Arrays(mine[:0]))


class Nobody:
    """Reaches no other device."""

    def address(self, task: str, to: str, within_s: float) -> str | None:
        return None

    def relay(self, *what: Any) -> None:
        raise ConfigError("nobody is there")


def fog() -> tuple[FogLearner, Caller]:
    device = FogLearner(name="a", own=own(), share_data=True)
    device.prepare(FOG)
    model = parameters_of(models.build("FogMLP", 0))
    caller = Caller(Dictionaries({1: model, 2: model}, {}))
    device.start("f", 1, 1, caller)
    return device, caller


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"slot": 2}, "slot 2 is not due: 1 is next"),
        ({"slot": 0}, "slot 0 is not due: 1 is next"),
        ({"ends_s": NAN}, "ends_s = nan"),
        ({"ends_s": 1e9}, "ends_s = 1000000000.0"),
        ({"kept": -1}, "kept = -1"),
        ({"skipped": 15}, "6 samples after 15: there are 20"),
        ({"collected": 21}, "collected = 21: give a whole number from 0 to 20"),
        ({"kept": 7}, "7 samples kept and 0 sent: 6 are collected"),
        ({"sent": {"b": 1}}, "6 samples kept and 1 sent: 6 are collected"),
        ({"kept": 0, "sent": {"b": -1}}, "sent of b = -1"),
        ({"arrived": {"b": 10**9}}, "arrived of b = 1000000000"),
        ({"arrived": {"b": 1 << 26}}, "samples to train on: give up to"),
        ({"arrived": {"b\x1b": 1}}, "device .*: give printable"),
        ({"arrived": {f"d{n}": 0 for n in range(5000)}}, "give up to 4096 devices"),
    ],
)
def test_a_slot_that_cannot_be_is_not_begun(changes: dict[str, Any], said: str) -> None:
    device, caller = fog()
    with pytest.raises(ConfigError, match=said):
        device.slot(changed(SLOT, **changes), caller, Nobody())
    assert device.slot(SLOT, caller, Nobody()).trained == 6


@pytest.mark.parametrize("wrong", [None, "0" * 9, np.zeros(1 << 20, np.uint8)])
def test_filler_that_was_not_asked_for_is_refused(wrong: Any) -> None:
    device = FogLearner(name="a", own=own())
    device.prepare(changed(FOG, moving=False))
    with pytest.raises(DataError, match=r"bytes of filler were asked for"):
        device.measure("f", KEYS, Caller(Lying(filler=wrong)))
    device.measure("f", KEYS, Caller(Lying()))


def test_slots_follow_each_other_and_their_start() -> None:
    device, caller = fog()
    device.slot(SLOT, caller, Nobody())
    with pytest.raises(ConfigError, match="slot 1 is not due: 2 is next"):
        device.slot(SLOT, caller, Nobody())
    with pytest.raises(ConfigError, match="has not started cycle 2"):
        device.slot(changed(SLOT, cycle=2, slot=2), caller, Nobody())
    device.start("f", 1, 1, caller)  # an orchestrator that was killed begins again
    device.slot(SLOT, caller, Nobody())


def test_a_task_without_moves_has_no_slots() -> None:
    device = FogLearner(name="a", own=own(), share_data=True)
    device.prepare(changed(FOG, moving=False))
    with pytest.raises(ConfigError, match="task 'f' has no slots"):
        device.start("f", 1, 1, Caller(source()))


def shard(samples: int) -> Any:
    x = torch.zeros(samples, 1, 28, 28, dtype=torch.uint8)
    return {"x": x, "y": torch.zeros(samples, dtype=torch.uint8)}


@pytest.mark.parametrize(
    ("slot", "sender", "what", "said"),
    [
        (3, "b", shard(1), "samples for slot 3: this is slot 0"),
        (10**9, "b", shard(1), "this is slot 0"),
        (None, "b", shard(1), "slot = None"),
        (1, None, shard(1), "device None"),
        (1, "b" * 100, shard(1), "no name for a peer"),
        (1, "b", None, "None is not a shard"),
        (1, "b", [shard(1)], "is not a shard"),
    ],
)
def test_samples_that_nobody_waits_for_are_refused(
    slot: Any, sender: Any, what: Any, said: str
) -> None:
    device, _ = fog()
    with pytest.raises((ConfigError, DataError), match=said):
        device.deliver("f", slot, sender, what)
    device.deliver("f", 1, "b", shard(1))


def test_a_sender_has_a_quota_and_leaves_room_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("melisma.learner.delivery.SENDER_BYTES", 5 * 785)
    device, _ = fog()
    device.deliver("f", 1, "b", shard(3))
    with pytest.raises(DataError, match="no room: more than 3925 bytes"):
        device.deliver("f", 0, "b", shard(3))
    device.deliver("f", 1, "b", shard(5))  # in place of the first
    device.deliver("f", 1, "c", shard(5))
    assert [length(one) for one in device.inbox.take("f", 1, {"b": 9, "c": 9})] == [
        5,
        5,
    ]


def test_so_many_devices_send_here_and_get_samples_from_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Asked(Nobody):
        def address(self, task: str, to: str, within_s: float) -> str | None:
            asked.append(to)
            return None

        def relay(self, *what: Any) -> None:
            pass

    asked: list[str] = []
    monkeypatch.setattr(orders, "MOST_NEIGHBOURS", 1)
    device, _ = fog()
    device.deliver("f", 1, "b", shard(1))
    with pytest.raises(DataError, match="no room: 1 devices send here"):
        device.deliver("f", 1, "c", shard(1))
    with closing(Listener(device.inbox, "127.0.0.1")) as door:
        assert door.admit("b") == door.admit("b")
        with pytest.raises(ConfigError, match="1 devices may deliver here already"):
            door.admit("c")
    routes = Routes("a")
    for to in ("b", "c"):  # to c by way of the orchestrator at once
        routes.send(Asked(), "f", 1, to, shard(1), 1.0)
    assert asked == ["b"]


def test_samples_of_slots_that_are_over_are_dropped() -> None:
    device, caller = fog()
    for slot in range(1, 5):
        device.deliver("f", slot, "b", shard(1))
        device.slot(changed(SLOT, slot=slot, collected=0, kept=0), caller, Nobody())
    held = [slot for slot in range(6) if device.inbox.take("f", slot, {"b": 1})]
    assert held == [3, 4]


def test_tasks_that_are_no_longer_kept_take_no_samples() -> None:
    device, _ = fog()
    device.deliver("f", 1, "b", shard(1))
    for number in range(TASKS):
        device.prepare(changed(SPEC, task=f"t{number}"))
    with pytest.raises(DataError, match="no task 'f' here"):
        device.deliver("f", 1, "b", shard(1))
    assert device.inbox.take("f", 1, {"b": 1}) == []


def test_a_spec_is_what_a_job_announces() -> None:
    """What the checks are tested on is what they are for."""
    assert isinstance(FOG, TaskSpec)
    orders.check_spec(FOG)
