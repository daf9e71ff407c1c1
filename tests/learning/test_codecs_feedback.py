"""Error feedback: nothing is lost, and a resumed sender goes on as it would have."""

from pathlib import Path

import pytest
import torch
from tests.learning.test_codecs import NAMES, flat, model
from torch import nn

from melisma.errors import DataError
from melisma.learning.codecs import Feedback, PowerSGD, TopK, codec_of
from melisma.learning.parameters import Parameters, load, save
from melisma.learning.submodels.part import Part


def changes(count: int) -> list[Parameters]:
    return [model(seed) for seed in range(count)]


@pytest.mark.parametrize("written", NAMES)
def test_what_was_sent_and_what_is_left_is_everything(written: str) -> None:
    codec, feedback = codec_of(written), Feedback(codec_of(written))
    received = given = torch.zeros(1, dtype=torch.float64)
    for seed, change in enumerate(changes(6)):
        sent = codec.decode(feedback.encode(change, seed), change)
        received, given = received + flat(sent), given + flat(change)
    left = {n: t for n, t in feedback.state().items() if "residual" in n}
    # Names with the same prefix are in the same order.
    assert (received + flat(left)).numpy() == pytest.approx(given.numpy(), abs=1e-4)


@pytest.mark.parametrize("written", NAMES)
def test_what_is_left_does_not_grow(written: str) -> None:
    feedback, change = Feedback(codec_of(written)), model()
    lengths = []
    for seed in range(60):
        feedback.encode(change, seed)
        left = [t for n, t in feedback.state().items() if "residual" in n]
        lengths.append(sum(float(t.square().sum()) for t in left) ** 0.5)
    # Where 1 % is sent, most of 60 changes is left; undamped, random-k would leave
    # 99⁶⁰ of one.
    whole = float(flat(change).norm())
    assert max(lengths) <= 60 * whole
    assert lengths[-1] - lengths[-2] < 1.01 * whole


def test_top_k_with_feedback_follows_what_it_alone_never_sends() -> None:
    # Of (10, 1), top-k of one value always sends the first; with feedback the second
    # has its turn when it has grown above 10.
    change = {"x": torch.tensor([10.0, 1.0])}
    codec, feedback = TopK(share=0.5), Feedback(TopK(share=0.5))
    total = torch.zeros(2)
    for seed in range(44):
        total += codec.decode(feedback.encode(change, seed), change)["x"]
    assert (total / 44).numpy() == pytest.approx([10, 1], rel=0.25)


def test_random_k_with_feedback_sends_values_as_they_are() -> None:
    codec, change = codec_of("random-k 10 %"), {"x": torch.arange(1.0, 101.0)}
    encoded = Feedback(codec).encode(change, 3)
    sent = codec.decode(encoded, change)["x"]
    there = sent != 0
    assert int(there.sum()) == 10
    assert sent[there].numpy() == pytest.approx(change["x"][there].numpy(), rel=1e-6)


def test_powersgd_gets_better_from_its_last_q() -> None:
    # Singular values 1, 0.9, 0.81 …: one step from a drawn Q is far from the best.
    rng = torch.Generator().manual_seed(0)
    q1, q2 = (torch.linalg.qr(torch.randn(40, 40, generator=rng)).Q for _ in range(2))
    matrix = q1 @ torch.diag(0.9 ** torch.arange(40.0)) @ q2
    codec, start = PowerSGD(rank=4), Parameters()
    errors = []
    for _ in range(20):
        encoded = codec.encode({"m": matrix}, 0, start)
        start = codec.next_start(encoded, {"m": matrix})
        errors.append(
            float((codec.decode(encoded, {"m": matrix})["m"] - matrix).norm())
        )
    best = float((0.9 ** torch.arange(4.0, 40.0)).norm())
    assert errors[-1] == pytest.approx(best, rel=0.02)
    assert errors[0] > 1.05 * best


@pytest.mark.parametrize("written", NAMES)
def test_a_resumed_sender_goes_on_as_if_nothing_had_been(
    written: str, tmp_path: Path
) -> None:
    one, other = Feedback(codec_of(written)), Feedback(codec_of(written))
    before, after = changes(6)[:3], changes(6)[3:]
    for seed, change in enumerate(before):
        one.encode(change, seed)
    save(one.state() | {"weight": torch.ones(2)}, tmp_path / "checkpoint.safetensors")
    other.restore(load(tmp_path / "checkpoint.safetensors"), model())
    for seed, change in enumerate(after, 3):
        first, second = one.encode(change, seed), other.encode(change, seed)
        assert first.payload.tobytes() == second.payload.tobytes()


def switched(codecs: list[str], upto: int) -> tuple[Feedback, torch.Tensor]:
    """Send a change by each codec in turn; return what is left, and what came."""
    feedback, came = Feedback(codec_of(codecs[0])), torch.zeros(1)
    for seed, written in enumerate(codecs[:upto]):
        feedback.codec = codec_of(written)
        sent = feedback.codec.decode(feedback.encode(model(seed), seed), model())
        came = came + flat(sent)
    return feedback, came


MIXED = ["top-k 1 %", "powersgd 2", "powersgd 4", "random-k 5 %", "powersgd 2"]


def test_what_one_codec_left_out_is_sent_by_the_next() -> None:
    feedback, came = switched(MIXED, len(MIXED))
    left = {n: t for n, t in feedback.state().items() if "residual" in n}
    given = sum((flat(model(seed)) for seed in range(len(MIXED))), torch.zeros(1))
    assert (came + flat(left)).numpy() == pytest.approx(given.numpy(), abs=1e-4)
    # A codec that leaves nothing out sends all of it.
    rest = flat(feedback.settle(model(9)))
    assert (came + rest).numpy() == pytest.approx(
        (given + flat(model(9))).numpy(), abs=1e-4
    )
    assert not any("residual" in name for name in feedback.state())


def test_a_sender_is_resumed_between_two_codecs() -> None:
    whole, _ = switched(MIXED, 4)
    part, _ = switched(MIXED, 4)
    resumed = Feedback(codec_of("fp32"))
    resumed.restore(part.state(), model())
    payloads = []
    for feedback in (whole, resumed):
        feedback.codec = codec_of("powersgd 2")  # whose Q is that of the second cycle
        payloads.append(feedback.encode(model(4), 4).payload.tobytes())
    assert payloads[0] == payloads[1]


def test_an_update_that_was_lost_can_be_taken_back() -> None:
    feedback, change = Feedback(codec_of("top-k 1 %")), model()
    feedback.encode(change, 0)
    before = feedback.state()
    lost = feedback.encode(change, 1)
    feedback.restore(before, change)
    assert feedback.encode(change, 1).payload.tobytes() == lost.payload.tobytes()


def test_a_checkpoint_of_another_model_is_refused() -> None:
    feedback = Feedback(codec_of("powersgd 2"))
    feedback.encode({"m": torch.randn(30, 20)}, 0)
    with pytest.raises(DataError, match="residuals of another model"):
        Feedback(codec_of("powersgd 2")).restore(feedback.state(), model())
    other = Feedback(codec_of("powersgd 2"))
    cut = {n: t[:, :1] if "start" in n else t for n, t in feedback.state().items()}
    other.restore(cut, {"m": torch.randn(30, 20)})
    with pytest.raises(DataError, match="a Q of another shape"):
        other.encode({"m": torch.randn(30, 20)}, 0)


def test_the_change_itself_stays_as_it_is() -> None:
    change, same = model(), model()
    feedback = Feedback(codec_of("random-k 1 %"))
    for seed in range(2):
        feedback.encode(change, seed)
    assert all(change[name].equal(same[name]) for name in same)


def test_a_sender_of_unlike_parts_owes_every_entry_what_it_left_there() -> None:
    """By one plain array of the whole model, entry by entry."""
    whole = {"w": torch.zeros(6, 5), "b": torch.zeros(6)}
    rows, columns = torch.tensor([0, 2, 3]), torch.tensor([1, 4])
    every = {"w": (torch.arange(6), torch.arange(5)), "b": (torch.arange(6),)}
    shapes = {"w": (6, 5), "b": (6,)}
    places = [None, {"w": (rows, columns), "b": (rows,)}, {"w": every["w"]}]
    parts = [
        None if at is None else Part(f"part {k}", nn.Module(), at, at, shapes)
        for k, at in enumerate(places)
    ]
    rng = torch.Generator().manual_seed(0)
    feedback, owed = Feedback(codec_of("top-k 20 %")), dict(whole)
    for seed, k in enumerate([1, 0, 2, 1, 1, 2, 0, 1]):
        part = parts[k]
        change = {n: torch.randn(t.shape, generator=rng) for n, t in whole.items()}
        change = change if part is None else part.kept(change)
        if seed == 5:  # nothing is left out: the part alone is settled
            sent = feedback.settle(change, part)
        else:
            encoded = feedback.encode(change, seed, part)
            sent = feedback.codec.decode(encoded, change)
        for name, t in change.items():
            left = owed[name].clone()
            at = every[name] if part is None else part.up[name]
            inside = torch.meshgrid(*at, indexing="ij")
            left[inside] += t - sent[name]
            owed[name] = left
        kept = feedback.state()
        for name, t in owed.items():
            found = kept.get(f"codec/residual/{name}", torch.zeros_like(t))
            torch.testing.assert_close(found, t, atol=1e-6, rtol=1e-5)
    again = Feedback(codec_of("top-k 20 %"))
    again.restore(feedback.state(), whole)
    assert again.state().keys() == feedback.state().keys()
