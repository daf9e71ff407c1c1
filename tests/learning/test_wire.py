"""What travels: its size is known before, changes arrive, and nothing else does."""

from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from peers.lies import wrong_fields
from torch import nn

from melisma.errors import DataError
from melisma.learner.device import bytes_of
from melisma.learning.codecs import Encoded
from melisma.learning.parameters import Parameters, parameters_of, trained
from melisma.learning.wire import Packed, Sender, Senders, Wire, seed_of

CODECS = ["fp32", "fp16", "int8", "int4", "top-k 5 %", "random-k 5 %", "powersgd 2"]


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 30), nn.BatchNorm1d(30), nn.Linear(30, 10))


MODEL = model()
MOVING = trained(MODEL).keys()
BEFORE = parameters_of(MODEL)


def learnt(seed: int) -> Parameters:
    """What a learner may have made of the model, its statistics too."""
    rng = torch.Generator().manual_seed(seed)
    return {
        name: t + 0.01 * torch.randn(t.shape, generator=rng)
        for name, t in BEFORE.items()
    }


@pytest.mark.parametrize("up", CODECS)
@pytest.mark.parametrize("down", ["fp32", "bf16", "int8"])
def test_what_travels_is_as_large_as_was_known_before(down: str, up: str) -> None:
    wire = Wire.of(down, up)
    sent = wire.sent(BEFORE, MOVING, 1)
    arrived = wire.arrived(sent, BEFORE, MOVING)
    update = Sender(wire.up).update(learnt(1), arrived, MOVING, 2)
    both = wire.size_bytes(BEFORE, MOVING)
    assert (bytes_of(sent), bytes_of(update)) == both
    whole = sum(t.nbytes for t in BEFORE.values())
    assert wire.share(BEFORE, MOVING) == sum(both) / (2 * whole)


@pytest.mark.parametrize("down", ["fp32", "int8"])
def test_what_was_learnt_is_added_to_the_model_as_it_is(down: str) -> None:
    wire = Wire.of(down, "fp32")
    arrived = wire.arrived(wire.sent(BEFORE, MOVING, 1), BEFORE, MOVING)
    after = {name: t + (learnt(1)[name] - BEFORE[name]) for name, t in arrived.items()}
    update = Sender(wire.up).update(after, arrived, MOVING, 2)
    found = wire.learnt(update, BEFORE, MOVING, 2)
    assert list(found) == list(BEFORE)
    for name, t in found.items():
        expected = after[name]  # statistics travel as they are
        if name in MOVING:
            expected = BEFORE[name] + after[name] - arrived[name]
        torch.testing.assert_close(t, expected, atol=1e-6, rtol=0)


def test_statistics_arrive_as_they_are_whatever_the_codec() -> None:
    wire = Wire.of("int4", "top-k 5 %")
    arrived = wire.arrived(wire.sent(BEFORE, MOVING, 1), BEFORE, MOVING)
    update = Sender(wire.up).update(learnt(1), arrived, MOVING, 2)
    found = wire.learnt(update, BEFORE, MOVING, 2)
    for name in BEFORE.keys() - MOVING:
        assert torch.equal(arrived[name], BEFORE[name])
        assert torch.equal(found[name], learnt(1)[name])


@pytest.mark.parametrize("codec", ["top-k 5 %", "powersgd 2"])
def test_what_was_left_out_comes_in_the_end(codec: str) -> None:
    wire, sender = Wire.of("fp32", codec), Sender(Wire.of("fp32", codec).up)
    change = {n: learnt(3)[n] - BEFORE[n] for n in MOVING}
    total = {n: torch.zeros_like(t) for n, t in change.items()}
    errors = []
    for cycle in range(1, 41):
        seed = seed_of(0, cycle, "a")
        update = sender.update(learnt(3), BEFORE, MOVING, seed)
        found = wire.learnt(update, BEFORE, MOVING, seed)
        for n in MOVING:
            total[n] += found[n] - BEFORE[n]
        gaps = [(total[n] / cycle - change[n]).square().sum() for n in MOVING]
        errors.append(float(sum(gaps, torch.tensor(0.0))))
    assert errors[39] < errors[9] / 4 < errors[0]


def test_learners_go_on_with_what_they_left_out() -> None:
    codec = Wire.of("fp32", "top-k 5 %").up
    whole, part = Senders(codec), Senders(codec)
    for seed, name in enumerate("abab"):
        for senders in (whole, part):
            senders[name].update(learnt(seed), BEFORE, MOVING, seed)
    resumed = Senders(codec)
    resumed.restore(part.state(), {n: BEFORE[n] for n in MOVING})
    for name in "abc":
        first, second = (
            senders[name].update(learnt(9), BEFORE, MOVING, 9).encoded.payload
            for senders in (whole, resumed)
        )
        assert np.array_equal(first, second)


def test_a_learner_may_go_over_to_another_codec() -> None:
    sender, came = Sender(), {n: torch.zeros_like(BEFORE[n]) for n in MOVING}
    ways = [Wire.of("fp32", up) for up in ("top-k 5 %", "powersgd 2", "fp32")]
    for seed, wire in enumerate(ways):
        update = sender.update(learnt(seed), BEFORE, MOVING, seed, wire.up)
        found = wire.learnt(update, BEFORE, MOVING, seed)
        came = {n: t + found[n] - BEFORE[n] for n, t in came.items()}
    for n, t in came.items():  # all that was left out has come with the last
        meant = sum(learnt(seed)[n] - BEFORE[n] for seed in range(3))
        torch.testing.assert_close(t, meant, atol=1e-5, rtol=0)
    assert not any("residual" in name for name in sender.state())


@pytest.mark.parametrize("codec", ["top-k 5 %", "random-k 5 %", "powersgd 2"])
def test_an_update_that_is_asked_for_again_is_owed_as_before(codec: str) -> None:
    up = Wire.of("fp32", codec).up
    once, twice = Sender(up), Sender(up)
    for seed in (1, 2, 3):
        sent = once.update(learnt(seed), BEFORE, MOVING, seed)
        # The first was never counted, and training took another turn in the second.
        twice.update(learnt(9), BEFORE, MOVING, seed)
        again = twice.update(learnt(seed), BEFORE, MOVING, seed)
        assert np.array_equal(sent.encoded.payload, again.encoded.payload)


def changed(packed: Packed, **changes: Any) -> Packed:
    return msgspec.structs.replace(packed, **changes)


@pytest.mark.parametrize("codec", CODECS)
def test_what_no_codec_made_is_refused(codec: str) -> None:
    wire = Wire.of("fp32", codec)
    good = Sender(wire.up).update(learnt(1), BEFORE, MOVING, 2)
    short = msgspec.structs.replace(good.encoded, payload=good.encoded.payload[:-1])
    other = dict(good.rest) | {"more": torch.zeros(1)}
    bad: list[object] = [
        None,
        BEFORE,
        good.encoded,
        changed(good, encoded=None),
        changed(good, encoded=short),
        changed(good, encoded=msgspec.structs.replace(good.encoded, seed=3)),
        changed(good, rest={}),
        changed(good, rest=None),
        changed(good, rest=other),
        changed(good, rest={n: 1.0 for n in good.rest}),
    ]
    for update in bad:
        with pytest.raises(DataError):
            wire.learnt(update, BEFORE, MOVING, 2)


@pytest.mark.parametrize("codec", CODECS)
def test_a_wrong_field_is_refused_wherever_it_is(codec: str) -> None:
    wire = Wire.of("fp32", codec)
    good = Sender(wire.up).update(learnt(1), BEFORE, MOVING, 2)
    wrong = list(wrong_fields(good))
    assert any(isinstance(w.encoded, Encoded) for w in wrong)
    for update in wrong:
        with pytest.raises(DataError):
            wire.learnt(update, BEFORE, MOVING, 2)


def test_draws_differ_by_learner_and_cycle() -> None:
    seeds = {seed_of(1, cycle, name) for cycle in range(9) for name in ("", "a", "b")}
    assert len(seeds) == 27
    assert min(seeds) >= 0
    assert max(seeds) < 1 << 63
