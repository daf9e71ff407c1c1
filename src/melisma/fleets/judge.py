"""The one place where answers of learners are judged: what counts, who is to blame.

A learner is not trusted: whatever it returns passes here before anything uses it. A
``wrong_…`` function returns why an answer cannot be true, or nothing if it can. Values
come as the sender wrote them: any plain value, any registered struct.
"""

import math
from typing import Any, TypeGuard

import msgspec
import numpy as np

from melisma.errors import (
    CallTimeout,
    ProtocolError,
    RemoteError,
    RpcError,
    readable,
)
from melisma.fleets.audit import Audit
from melisma.fleets.messages import (
    Charge,
    Gradient,
    Ready,
    ShortOfMemory,
    SlotDone,
    Speeds,
    StateSpeeds,
    TaskSpec,
    TrainRequest,
    Unprepared,
    Untrusted,
    Update,
)
from melisma.fleets.moves import Move
from melisma.fleets.protocols import NOT_FINITE, NOT_THERE, Lost, Report, Updates
from melisma.learning.parameters import Parameters, all_finite, largest, stacked

#: Largest bid that is believed, in shards: more than any data set has.
MOST_SHARDS = 1 << 40
#: Most samples that a learner may have of its own: ten times the largest public sets.
MOST_SAMPLES = 10**10
#: Least time of a batch. It is a hundred calls of torch, each of a microsecond or more,
#: on the fastest device; who claims less gains nothing.
LEAST_BATCH_S = 1e-5
#: Longest time of one sample, or of one exchange of models: ten times what a benchmark
#: may take in all.
MOST_S = 3000.0
#: States that a learner's owner may have it in, and the largest seed of them.
MOST_STATES, MOST_SEED = 64, (1 << 63) - 1
#: Spread of a benchmark's times that is believed (σ of the logarithm).
MOST_SPREAD = 10.0
#: Times the largest parameter of the model that was sent, or 1, that an update may have
#: at most, and the most of a sample's gradient. What is finite and larger would leave a
#: model that nobody can train on.
MOST_TIMES = 1e6
#: Most energy of a battery in all its life: a ton of batteries, filled a hundred times.
MOST_J = 1e11
#: Longest address of a device, a join string: host, token and fingerprint.
ADDRESS_CHARACTERS = 1000


def is_to_blame(error: RpcError) -> bool:
    """Return whether the learner is to blame: it raised, or broke the protocol.

    Not one that was restarted and lost its task, that has too little memory, or that
    runs no code of others.
    """
    if isinstance(error, RemoteError):
        known = (Unprepared.__name__, Untrusted.__name__, ShortOfMemory.__name__)
        return error.type not in known
    return isinstance(error, ProtocolError)


def is_short(error: Exception) -> TypeGuard[RemoteError]:
    """Return whether a learner has not the memory for what it was asked."""
    return isinstance(error, RemoteError) and error.type == ShortOfMemory.__name__


def failed(learner: int, error: RpcError, after_s: float) -> Lost:
    """Return the loss of a learner whose call brought no answer."""
    if isinstance(error, CallTimeout):
        return Lost(learner=learner, reason=NOT_THERE, after_s=after_s)
    blamed = is_to_blame(error)
    said = error.message if is_short(error) else error
    reason = readable(f"{'failed' if blamed else 'lost'}: {said}")
    return Lost(learner=learner, reason=reason, after_s=after_s, offence=blamed)


def refused(
    learner: int, reason: str, after_s: float, distance: float | None = None
) -> Lost:
    """Return the loss of a learner whose answer is wrong."""
    return Lost(
        learner=learner,
        reason=readable(reason),
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
    downloaded_s = time_within(0.0, update.downloaded_s, after_s)
    report = Report(
        **update.fields(),
        learner=learner,
        downloaded_s=downloaded_s,
        trained_s=time_within(downloaded_s, update.trained_s, after_s),
        uploaded_s=after_s,
        distance=distance,
        spent_j=None if update.spent_j is None else float(update.spent_j),
    )
    return Updates([report], stacked([update.parameters]))


def wrong_update(update: Update, request: TrainRequest, sent: Parameters) -> str:
    """Judge an update by the request that it answers."""
    if update.cycle != request.cycle:
        return f"an update of cycle {update.cycle}"
    if not same_model(update.parameters, sent):
        return "parameters of another model"
    if reason := wrong_size(update.parameters, sent):
        return reason
    if not _is_whole(update.samples, 0, request.samples):
        return f"{update.samples} samples claimed of {request.samples} given"
    most = request.samples * request.steps
    if not _is_whole(update.batches, int(update.samples > 0), most):
        return f"{update.batches} batches claimed for {request.samples} samples"
    return _wrong_report(update)


def wrong_slots_update(
    update: object, cycle: int, samples: int, sent: Parameters, *, steps: int
) -> str:
    """Judge the model of a device's slots, in which it reported ``samples``."""
    if not isinstance(update, Update) or update.cycle != cycle:
        return "not an update of this cycle"
    if not same_model(update.parameters, sent):
        return "parameters of another model"
    if reason := wrong_size(update.parameters, sent):
        return reason
    if not _is_whole(update.samples, samples, samples):
        return f"{update.samples} samples claimed, {samples} before"
    if not _is_whole(update.batches, int(samples > 0), samples * steps):
        return f"{update.batches} batches claimed for {samples} samples"
    return _wrong_report(update)


def _wrong_report(update: Update) -> str:
    """Judge what an update says of itself. Its loss may be of a model that diverged."""
    if type(update.halted) is not bool or not isinstance(update.loss, float):
        return "a report of other types"
    for reported_s in (update.downloaded_s, update.trained_s):
        if reported_s is not None and not _is_number(reported_s):
            return f"a time of {reported_s} s"
    spent_j = update.spent_j
    if spent_j is not None and not (_is_number(spent_j) and 0 <= spent_j <= MOST_J):
        return "an energy that cannot be"
    return ""


def wrong_slot(done: object, slot: int, move: Move) -> str:
    """Judge what a device reports of a slot by the move that it was given."""
    if not isinstance(done, SlotDone) or done.slot != slot:
        return "not an answer of this slot"
    if not _is_whole(done.trained, 0, move.due):
        return f"{done.trained} samples claimed of {move.due} given"
    delivered: Any = done.delivered
    if not isinstance(delivered, dict) or any(
        type(n) is not int or move.sent.get(name) != n for name, n in delivered.items()
    ):
        return "samples delivered that were not to be"
    directly: Any = done.directly
    if not isinstance(directly, list) or not all(
        isinstance(name, str) and name in move.sent for name in directly
    ):
        return "samples delivered directly that were not to be"
    return ""


def wrong_gradient(
    gradient: object, cycle: int, size: int, *, wide: bool, weight: float = 1.0
) -> str:
    """Judge a gradient; ``size`` is the number of the model's parameters.

    ``weight`` is Σ |coefficient| over all samples that it sums.
    """
    if not isinstance(gradient, Gradient):
        return "not a gradient"
    if gradient.cycle != cycle:
        return f"a gradient of cycle {gradient.cycle}"
    kind = np.float64 if wide else np.float32
    vector: Any = gradient.vector
    if not isinstance(vector, np.ndarray):
        return "not a gradient"
    if vector.shape != (size,) or vector.dtype != kind:
        return "a gradient of another model"
    if not np.isfinite(vector).all():
        return f"a gradient that is {NOT_FINITE}"
    if np.abs(vector).max(initial=0.0) > MOST_TIMES * weight:
        return "a gradient too large for any model"
    for reported_s in (gradient.downloaded_s, gradient.trained_s):
        if not _is_number(reported_s):
            return f"a time of {reported_s} s"
    return ""


def wrong_charge(charge: object, most_j: float) -> str:
    """Judge the books of a battery that holds ``most_j``: they have to balance."""
    if not isinstance(charge, Charge):
        return "no account of its battery"
    books = msgspec.structs.asdict(charge)
    for name, value in books.items():
        if not _is_number(value) or not 0 <= value <= MOST_J:
            return f"a battery with {name} = {value!r}"
    if not charge.lowest_j <= charge.battery_j <= most_j * (1 + 1e-9):
        return f"a battery with {charge.battery_j:.3g} J of {most_j:.3g} J"
    spent_j = charge.computing_j + charge.sending_j
    wrong_j = charge.began_j + charge.stored_j - spent_j - charge.battery_j
    if abs(wrong_j) > 1e-6 * (1 + charge.began_j + charge.stored_j):
        return f"a battery whose books are wrong by {wrong_j:.3g} J"
    return ""


def is_level(battery_j: object, most_j: float) -> bool:
    """Return whether a battery can hold that."""
    return _is_number(battery_j) and 0 <= battery_j <= most_j * (1 + 1e-9)  # type: ignore[operator]


def wrong_ready(ready: object, spec: TaskSpec) -> str:
    """Judge a learner's answer to ``prepare``."""
    if not isinstance(ready, Ready) or type(ready.measured) is not bool:
        return "not an answer to prepare"
    if ready.speeds is not None and (spec.private or not ready.measured):
        return "speeds that nobody asked for"
    return wrong_samples(ready.samples, spec)


def wrong_samples(own: object, spec: TaskSpec) -> str:
    """Judge the number of samples that a learner says it has."""
    if spec.federated:
        good = _is_whole(own, 1, MOST_SAMPLES)
        return "" if good else f"{own!r} samples of its own, in federated mode"
    return "" if own is None else f"{own!r} samples of its own, where all are sent"


def wrong_nothing(answer: object, function: str) -> str:
    """Judge the answer of a function that returns nothing."""
    return "" if answer is None else f"an answer to {function}, which has none"


def wrong_speeds(speeds: object) -> str:
    """Judge the delay law that a learner reports of itself."""
    if not isinstance(speeds, Speeds):
        return "not a delay law"
    if speeds.owner is not None and not _is_whole(speeds.owner, 0, MOST_SEED):
        return f"{speeds.owner!r} is no seed"
    for spread in (speeds.compute_spread, speeds.link_spread):
        if not _is_number(spread) or not 0 <= spread <= MOST_SPREAD:
            return f"a spread of {spread!r}"
    return _wrong_law(speeds) or _wrong_states(speeds.states)


def _wrong_law(law: Speeds | StateSpeeds) -> str:
    for name in ("step_s", "sample_s", "fixed_s"):
        seconds = getattr(law, name)
        good = _is_number(seconds) and 0 <= seconds <= MOST_S
        if not good or (name == "step_s" and seconds == 0):
            return f"{name} = {seconds!r} s cannot be"
    return ""


def _wrong_states(states: object) -> str:
    """Judge the states that a learner says its owner has it in."""
    if not isinstance(states, list) or len(states) > MOST_STATES:
        return f"not a list of up to {MOST_STATES} states"
    total = 0.0
    for state in states:
        if not isinstance(state, StateSpeeds):
            return "not the delay law of a state"
        if not _is_number(state.probability) or not 0 <= state.probability <= 1:
            return f"a state of probability {state.probability!r}"
        if reason := _wrong_law(state):
            return reason
        total += state.probability
    is_whole = not states or math.isclose(total, 1.0, abs_tol=1e-6)
    return "" if is_whole else f"states of probabilities that sum to {total:.6g}"


def believed(speeds: Speeds, batch: int) -> Speeds:
    """Return a delay law that is no faster than any device, in batches of ``batch``."""
    least_s = LEAST_BATCH_S / batch
    replace = msgspec.structs.replace
    return replace(
        speeds,
        step_s=max(speeds.step_s, least_s),
        states=[replace(s, step_s=max(s.step_s, least_s)) for s in speeds.states],
    )


def wrong_bid(bid: object) -> str:
    """Judge the number of shards that a learner bids for."""
    good = type(bid) is int and bid >= 0
    return "" if good else f"{bid!r} is not a number of shards"


def clipped_bid(bid: int) -> int:
    """Return a bid that is neither negative nor beyond any data set."""
    return min(max(bid, 0), MOST_SHARDS)


def wrong_address(address: object) -> str:
    """Judge where a device says that others reach it; None: nowhere."""
    if address is None:
        return ""
    if not isinstance(address, str) or len(address) > ADDRESS_CHARACTERS:
        return "not an address"
    return "" if address.isascii() and address.isprintable() else "not an address"


def wrong_size(parameters: Parameters, sent: Parameters) -> str:
    """Judge how far parameters are from the model that was sent.

    Those that are not finite are left for who averages them: that may be the model's.
    """
    found, before = largest(parameters), max(1.0, largest(sent))
    if found <= MOST_TIMES * before or not all_finite(parameters):
        return ""
    return f"parameters of up to {found:.2g}, where the model has {before:.2g}"


def same_model(one: Parameters, other: Parameters) -> bool:
    """Return whether parameters have the same names, shapes and types."""
    if not isinstance(one, dict):
        return False
    shapes = [
        {
            name: (getattr(tensor, "shape", None), getattr(tensor, "dtype", None))
            for name, tensor in parameters.items()
        }
        for parameters in (one, other)
    ]
    return shapes[0] == shapes[1]


def time_within(low_s: float, reported_s: float | None, high_s: float) -> float:
    """Return a reported time if it can be true, and the latest possible otherwise."""
    if reported_s is not None and low_s <= reported_s <= high_s:
        return reported_s
    return high_s


def _is_whole(value: object, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most  # True is an int too


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -math.inf < value < math.inf
