"""Batches planned in pieces are those planned at once."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from melisma.fleets import batches
from melisma.fleets.batches import (
    batch_order,
    batches_of,
    first_batches,
    samples_in,
)
from melisma.fleets.messages import TrainRequest
from melisma.learning.checks import samples_seen
from melisma.learning.settings import Late, Training

REQUEST = TrainRequest(
    task="t",
    cycle=1,
    keys=[],
    samples=70,
    steps=5,
    deadline_s=1.0,
    late=Late.HALT,
)


@given(
    st.sampled_from([0, 1, 20, 70]),
    st.integers(0, 60),
    st.sampled_from([1, 100, 1 << 20]),
    st.booleans(),
)
def test_pieces_make_the_whole_plan(
    first: int, number: int, together: int, shuffle: bool
) -> None:
    request = msgspec.structs.replace(REQUEST, first=first)
    training = Training(batch=8, shuffle=shuffle)
    whole = batches_of(request, training, batch_order(0, 1, "a"))[:number]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "_TOGETHER", together)
        rng = batch_order(0, 1, "a")
        pieces = list(first_batches(request, training, rng, len(whole)))
    assert np.array_equal(np.concatenate(pieces), whole)
    assert samples_in(request, training, len(whole)) == samples_seen(whole)


def test_absurd_steps_are_planned_as_far_as_they_are_used() -> None:
    request = msgspec.structs.replace(REQUEST, steps=2**50)
    plan = first_batches(request, Training(batch=8), batch_order(0, 1, "a"), 2**52)
    assert next(plan).nbytes < 1 << 25
    assert samples_in(request, Training(batch=8), 2**52) == 70
