"""The one place where answers of learners are judged: what counts, who is to blame.

A learner is not trusted: whatever it returns passes here before anything uses it. A
``wrong_…`` function returns why an answer cannot be true, or nothing if it can.
"""

import math

import msgspec
import numpy as np

from melisma.errors import CallTimeout, ProtocolError, RemoteError, RpcError
from melisma.fleets.audit import Audit
from melisma.fleets.messages import (
    Gradient,
    Ready,
    SlotDone,
    Speeds,
    TaskSpec,
    TrainRequest,
    Unprepared,
    Update,
)
from melisma.fleets.moves import Move
from melisma.fleets.protocols import NOT_THERE, Lost, Report, Updates
from melisma.learning.parameters import Parameters, stacked

#: Largest bid that is believed, in shards: more than any data set has.
MOST_SHARDS = 1 << 40


def is_to_blame(error: RpcError) -> bool:
    """Return whether the learner is to blame: it raised, or broke the protocol.

    One that was restarted and lost its task is not.
    """
    if isinstance(error, RemoteError):
        return error.type != Unprepared.__name__
    return isinstance(error, ProtocolError)


def failed(learner: int, error: RpcError, after_s: float) -> Lost:
    """Return the loss of a learner whose call brought no answer."""
    if isinstance(error, CallTimeout):
        return Lost(learner=learner, reason=NOT_THERE, after_s=after_s)
    blamed = is_to_blame(error)
    reason = f"{'failed' if blamed else 'lost'}: {error}"
    return Lost(learner=learner, reason=reason, after_s=after_s, offence=blamed)


def refused(
    learner: int, reason: str, after_s: float, distance: float | None = None
) -> Lost:
    """Return the loss of a learner whose answer is wrong."""
    return Lost(
        learner=learner,
        reason=reason,
        after_s=after_s,
        offence=True,
        distance=distance,
    )


async def judged(
    update: object,
    request: TrainRequest,
    *,
    learner: int,
    name: str,
    sent: Parameters,
    after_s: float,
    audit: Audit | None = None,
) -> Updates | Lost:
    """Return an update that counts, or the loss of one that does not.

    ``sent`` is the model that was trained; ``audit`` redoes some of the work.
    """
    if not isinstance(update, Update):
        return refused(learner, "not an update", after_s)
    reason, distance = wrong_update(update, request, sent), None
    if not reason and audit:
        reason, distance = await audit(name, request, update, sent)
    if reason:
        return refused(learner, reason, after_s, distance)
    return accepted(learner, update, after_s, distance)


def accepted(
    learner: int, update: Update, after_s: float, distance: float | None = None
) -> Updates:
    """Return an update as it counts, with the learner's times where they can be."""
    report = Report(
        **update.fields(),
        learner=learner,
        downloaded_s=time_within(0.0, update.downloaded_s, after_s),
        trained_s=time_within(0.0, update.trained_s, after_s),
        uploaded_s=after_s,
        distance=distance,
    )
    return Updates([report], stacked([update.parameters]))


def wrong_update(update: Update, request: TrainRequest, sent: Parameters) -> str:
    """Judge an update by the request that it answers."""
    if update.cycle != request.cycle:
        return f"an update of cycle {update.cycle}"
    if not same_model(update.parameters, sent):
        return "parameters of another model"
    if not 0 <= update.samples <= request.samples:
        return f"{update.samples} samples claimed of {request.samples} given"
    if not (update.samples > 0) <= update.batches <= request.samples * request.steps:
        return f"{update.batches} batches claimed for {request.samples} samples"
    return ""


def wrong_slots_update(
    update: object, cycle: int, samples: int, sent: Parameters
) -> str:
    """Judge the model of a device's slots, in which it reported ``samples``."""
    if not isinstance(update, Update) or update.cycle != cycle:
        return "not an update of this cycle"
    if not same_model(update.parameters, sent):
        return "parameters of another model"
    if update.samples != samples:
        return f"{update.samples} samples claimed, {samples} before"
    return ""


def wrong_slot(done: object, slot: int, move: Move) -> str:
    """Judge what a device reports of a slot by the move that it was given."""
    if not isinstance(done, SlotDone) or done.slot != slot:
        return "not an answer of this slot"
    if not 0 <= done.trained <= move.due:
        return f"{done.trained} samples claimed of {move.due} given"
    if any(move.sent.get(name) != n for name, n in done.delivered.items()):
        return "samples delivered that were not to be"
    return ""


def wrong_gradient(gradient: object, cycle: int, size: int, *, wide: bool) -> str:
    """Judge a gradient; ``size`` is the number of the model's parameters."""
    if not isinstance(gradient, Gradient):
        return "not a gradient"
    if gradient.cycle != cycle:
        return f"a gradient of cycle {gradient.cycle}"
    kind = np.float64 if wide else np.float32
    if gradient.vector.shape != (size,) or gradient.vector.dtype != kind:
        return "a gradient of another model"
    if not np.isfinite(gradient.vector).all():
        return "a gradient that is not finite"
    return ""


def wrong_ready(ready: object, spec: TaskSpec) -> str:
    """Judge a learner's answer to ``prepare``."""
    if not isinstance(ready, Ready):
        return "not an answer to prepare"
    return wrong_samples(ready.samples, spec)


def wrong_samples(own: int | None, spec: TaskSpec) -> str:
    """Judge the number of samples that a learner says it has."""
    if spec.federated and not (own or 0) > 0:
        return f"{own} samples of its own, in federated mode"
    return ""


def wrong_speeds(speeds: object) -> str:
    """Judge the delay law that a learner reports of itself."""
    if not isinstance(speeds, Speeds):
        return "not a delay law"
    for name, seconds in msgspec.structs.asdict(speeds).items():
        if not 0 <= seconds < math.inf or (name == "step_s" and seconds == 0):
            return f"{name} = {seconds} s cannot be"
    return ""


def wrong_bid(bid: object) -> str:
    """Judge the number of shards that a learner bids for."""
    return "" if isinstance(bid, int) else f"{bid!r} is not a number of shards"


def clipped_bid(bid: int) -> int:
    """Return a bid that is neither negative nor beyond any data set."""
    return min(max(bid, 0), MOST_SHARDS)


def same_model(one: Parameters, other: Parameters) -> bool:
    """Return whether parameters have the same names, shapes and types."""
    shapes = [
        {name: (tensor.shape, tensor.dtype) for name, tensor in parameters.items()}
        for parameters in (one, other)
    ]
    return shapes[0] == shapes[1]


def time_within(low_s: float, reported_s: float | None, high_s: float) -> float:
    """Return a reported time if it can be true, and the latest possible otherwise."""
    if reported_s is not None and low_s <= reported_s <= high_s:
        return reported_s
    return high_s
