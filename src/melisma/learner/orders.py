"""The one place where orders to a learner are checked, before anything is done.

An orchestrator is not trusted with the device: what it asks for passes here first. A
``check_…`` function raises ConfigError for an order that no correct orchestrator gives,
and the learner lives on. What it sends is checked where it arrives (`device.Link`),
and answers of learners are judged by ``fleets.judge``.
"""

import math
import re
import reprlib
import shlex
from collections.abc import Collection, Mapping
from numbers import Integral, Real
from typing import TypeVar

import numpy as np

from melisma.errors import ConfigError, unknown
from melisma.fleets.messages import (
    MOST_SUBMODELS,
    Budget,
    GradientRequest,
    SlotRequest,
    TaskSpec,
    TrainRequest,
)
from melisma.learning.codecs import codec_of
from melisma.learning.losses import loss_of
from melisma.learning.optimisers import check_optimiser
from melisma.learning.settings import (
    MOST_REPEATS,
    OWN,
    Buffers,
    Late,
    Schedule,
    Training,
)
from melisma.learning.submodels import submodel_of
from melisma.learning.wire import Wire
from melisma.rpc.address import Address
from melisma.rpc.tokens import check_name

#: Samples of an order, each as often as it is trained on: 8 bytes each to plan batches.
MOST_PASSES = 1 << 26
#: Samples in a batch, and in a shard.
MOST_BATCH = MOST_SHARD = 1 << 24
#: Shards that an order names, and characters of a name or key.
MOST_KEYS, MOST_CHARACTERS = 1 << 20, 255
#: Devices that a device of a fog sends to, and that send to it.
MOST_NEIGHBOURS = 4096
#: Longest deadline of a cycle or slot.
LONGEST_S = 30 * 86_400.0
#: Share of cycles that a learner may be told to be late in, at most.
MOST_LATE = 0.49
#: Cycles and slots are counted up to this.
MOST_CYCLES = 1 << 40

Request = TypeVar("Request", TrainRequest, GradientRequest, SlotRequest)


def check_task(task: object) -> None:
    """Check the name of a task."""
    _check_text("task", task)


def task_of(request: object, kind: type[Request]) -> str:
    """Return the task of an order, which has to be of this kind."""
    if not isinstance(request, kind):
        raise _not_a(kind.__name__, request)
    return request.task


def check_spec(spec: object) -> None:
    """Check a task before a model is built for it."""
    if not isinstance(spec, TaskSpec):
        raise _not_a("TaskSpec", spec)
    check_task(spec.task)
    _check_text("model", spec.model)
    _check_whole("seed", spec.seed, 0, (1 << 63) - 1)
    _check_training(spec.training)
    _check_whole("shard", spec.shard, 1, MOST_SHARD)
    _check_whole("steps", spec.steps, 1, MOST_PASSES)
    _check_whole("look_every", spec.look_every, 1, MOST_PASSES)
    for name in ("base", "bundle"):
        hash = getattr(spec, name)
        is_hash = isinstance(hash, str) and re.fullmatch("[0-9a-f]{64}", hash)
        if hash != "" and not is_hash:
            raise ConfigError(f"{name} {_shown(hash)}: give a SHA-256")
    if spec.recipe:
        _check_text("recipe", spec.recipe)
    for name in ("down", "up"):
        _check_text(name, getattr(spec, name))
        codec_of(getattr(spec, name))
    if not isinstance(spec.submodels, list) or len(spec.submodels) > MOST_SUBMODELS:
        raise ConfigError(f"submodels: give a list of up to {MOST_SUBMODELS}")
    for written in spec.submodels:
        _check_text("submodel", written)
        submodel_of(written)
    _check_whole("benchmarked", spec.benchmarked, 1, MOST_KEYS)
    _check_whole("sizes", spec.sizes, 1, 2)
    _check_whole("repeats", spec.repeats, 1, MOST_REPEATS)
    if spec.patience_s != 0:
        _check_number("patience_s", spec.patience_s)
    if spec.late_at_most != 0:
        _check_number("late_at_most", spec.late_at_most, most=MOST_LATE)
    for name in ("federated", "private", "moving", "exact", "adaptive", "states"):
        check_flag(name, getattr(spec, name))
    if spec.moving and not spec.federated:
        raise ConfigError("a task in which samples move (fog) has to be federated")


def _check_training(training: object) -> None:
    if not isinstance(training, Training):
        raise _not_a("Training", training)
    for name in ("optimiser", "loss"):
        _check_text(name, getattr(training, name))
    if training.optimiser != OWN:  # which is known once the task is made
        check_optimiser(training)
    loss_of(training)
    if training.schedule not in list(Schedule):
        raise ConfigError(f"schedule {_shown(training.schedule)} is not known")
    if training.buffers not in list(Buffers):
        raise ConfigError(f"buffers {_shown(training.buffers)} are not known")
    for name in ("warmup", "cycles"):
        _check_whole(name, getattr(training, name), 0, MOST_CYCLES)
    for name in ("floor", "decay"):
        _check_number(name, getattr(training, name), least=-1.0, most=1.0)
    if training.clip is not None:
        _check_number("clip", training.clip)
    _check_number("proximal", training.proximal, least=-1.0)
    _check_number("learning rate", training.rate, most=float(np.finfo("f4").max))
    _check_whole("batch", training.batch, 1, MOST_BATCH)
    check_flag("shuffle", training.shuffle)


def check_benchmark(keys: object, spec: TaskSpec) -> None:
    """Check the shards that a learner is to benchmark itself on."""
    shards = _checked_keys(keys)
    if not spec.federated and not shards:
        raise ConfigError("a benchmark needs one shard at least")
    _check_passes(len(shards) * spec.shard, 1, spec.training)


def check_bid(deadline_s: object, steps: object) -> None:
    """Check what a learner is to bid for."""
    _check_number("deadline_s", deadline_s, most=LONGEST_S)
    _check_whole("steps", steps, 1, MOST_PASSES)


def check_train(request: TrainRequest, spec: TaskSpec, own: int | None) -> None:
    """Check an order to train; ``own`` is the number of the learner's own samples."""
    check_cycle(request.cycle)
    shards = len(_checked_keys(request.keys))
    _check_whole("samples", request.samples, 1, MOST_PASSES)
    _check_whole("first", request.first, 0, request.samples)
    check_flag("corrected", request.corrected)
    check_flag("anew", request.anew)
    if (request.down, request.up) != ("", ""):
        _check_text("down", request.down)
        _check_text("up", request.up)
        Wire.of(request.down, request.up)
    if request.submodel != "":
        _check_submodel(request, spec)
    _check_whole("steps", request.steps, 1, MOST_PASSES)
    _check_number("deadline_s", request.deadline_s, most=LONGEST_S)
    if request.late not in list(Late):
        raise ConfigError(f"late = {_shown(request.late)}: give {', '.join(Late)}")
    if spec.federated and (shards or request.samples > (own or 0)):
        raise ConfigError(
            f"{request.samples} samples and {shards} shards: there are {own} samples "
            "here, and no shards in federated mode"
        )
    if not spec.federated and -(-request.samples // spec.shard) != shards:
        raise ConfigError(
            f"{request.samples} samples are not {shards} shards of {spec.shard}"
        )
    _check_passes(request.samples, request.steps, spec.training)


def _check_submodel(request: TrainRequest, spec: TaskSpec) -> None:
    """Check the part of the model that an order names: codecs have to be named, too."""
    if request.submodel not in spec.submodels:
        raise ConfigError(f"submodel {_shown(request.submodel)} is none of its task's")
    if not request.up or request.corrected:
        raise ConfigError("a submodel is ordered with codecs, and without correction")


def check_gradient(request: GradientRequest, spec: TaskSpec) -> None:
    """Check an order for a coded gradient."""
    check_cycle(request.cycle)
    if len(request.parts) != len(request.coefficients):
        raise ConfigError(
            f"{len(request.parts)} parts with {len(request.coefficients)} coefficients"
        )
    shards = [len(_checked_keys(part)) for part in request.parts]
    if min(shards, default=1) < 1 or sum(shards) > MOST_KEYS:
        raise ConfigError(f"parts of {shards[:10]} shards: give each some, few in all")
    _check_passes(sum(shards) * spec.shard, 1, spec.training)
    for coefficient in request.coefficients:
        _check_number("coefficient", coefficient, least=-math.inf)
    if not request.slower >= 1:  # ∞: does not answer until it is cancelled
        raise ConfigError(f"slower = {request.slower}: give 1 or more")
    check_flag("wide", request.wide)
    if request.budget is not None:
        _check_budget(request.budget)


def _check_budget(budget: object) -> None:
    """Check what an orchestrator says of this worker's battery."""
    if not isinstance(budget, Budget):
        raise _not_a("Budget", budget)
    check_flag("steady", budget.steady)
    for name in ("battery_j", "slot_s"):
        _check_number(name, getattr(budget, name))
    for name in ("start_j", "harvest_w", "sample_j", "sending_w", "above_j"):
        if getattr(budget, name) != 0:
            _check_number(name, getattr(budget, name))
    if budget.start_j > budget.battery_j:
        raise ConfigError(f"{budget.start_j} J in a battery of {budget.battery_j} J")


def check_start(cycle: object, slot: object) -> None:
    """Check the beginning of a cycle of slots."""
    check_cycle(cycle)
    _check_whole("slot", slot, 1, MOST_CYCLES)


def check_slot(request: SlotRequest, spec: TaskSpec, own: int, due: int) -> None:
    """Check the order of a slot; ``due`` is the one that follows the last."""
    check_cycle(request.cycle)
    if request.slot != due:
        raise ConfigError(f"slot {_shown(request.slot)} is not due: {due} is next")
    _check_number("ends_s", request.ends_s, most=LONGEST_S)
    for name in ("skipped", "collected", "kept"):
        _check_whole(name, getattr(request, name), 0, own)
    if request.skipped + request.collected > own:
        raise ConfigError(
            f"{request.collected} samples after {request.skipped}: there are {own}"
        )
    sent, arrived = (
        _total(name, getattr(request, name)) for name in ("sent", "arrived")
    )
    if request.kept + sent > request.collected:
        raise ConfigError(
            f"{request.kept} samples kept and {sent} sent: {request.collected} are "
            "collected"
        )
    _check_passes(request.kept + arrived, spec.steps, spec.training)


def _total(name: str, samples: Mapping[str, int]) -> int:
    """Return the sum of the samples that go to, or come from, other devices."""
    if not isinstance(samples, Mapping) or len(samples) > MOST_NEIGHBOURS:
        raise ConfigError(f"{name}: give up to {MOST_NEIGHBOURS} devices")
    for device, number in samples.items():
        check_device(device)
        _check_whole(f"{name} of {device}", number, 0, MOST_PASSES)
    return sum(samples.values())


def check_device(name: object) -> None:
    """Check the name of another device."""
    _check_text("device", name)
    check_name(str(name))


def check_delivery(slot: object, sender: object, shard: object) -> None:
    """Check samples of another device, as far as any task has them."""
    _check_whole("slot", slot, 0, MOST_CYCLES)
    check_device(sender)
    if not isinstance(shard, Mapping):
        raise _not_a("shard", shard)


def check_address(address: object) -> None:
    """Check where samples are to go: over TLS, to one certificate."""
    if not isinstance(address, str) or not Address.of(address).fingerprint:
        raise ConfigError("other devices are reached over TLS, by a join string")


def check_cycle(cycle: object) -> None:
    """Check the number of a cycle."""
    _check_whole("cycle", cycle, 0, MOST_CYCLES)


def check_flag(name: str, value: object) -> None:
    """Check what is true or false."""
    if not isinstance(value, bool):
        raise ConfigError(f"{name} = {_shown(value)}: give true or false")


def _checked_keys(keys: object) -> list[str]:
    if not isinstance(keys, list) or len(keys) > MOST_KEYS:
        raise ConfigError(f"shards: give a list of up to {MOST_KEYS} keys")
    for key in keys:
        _check_text("key", key)
    return keys


def _check_passes(samples: int, steps: int, training: Training) -> None:
    """Check the size of a plan of batches, whose last one is filled up."""
    passes = steps * -(-samples // training.batch) * training.batch
    if passes > MOST_PASSES:
        raise ConfigError(
            f"{steps} epochs over {samples} samples in batches of {training.batch} are "
            f"{passes} samples to train on: give up to {MOST_PASSES} in an order"
        )


def _check_text(what: str, text: object) -> None:
    if not isinstance(text, str) or not 1 <= len(text) <= MOST_CHARACTERS:
        raise ConfigError(
            f"{what} {_shown(text)}: give 1 to {MOST_CHARACTERS} characters"
        )
    if not text.isprintable():
        raise ConfigError(f"{what} {_shown(text)}: give printable characters")


def _check_whole(what: str, value: object, least: int, most: int) -> None:
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or not least <= int(value) <= most:  # type: ignore[call-overload]
        raise ConfigError(
            f"{what} = {_shown(value)}: give a whole number from {least} to {most}"
        )


def _check_number(
    what: str, value: object, *, least: float = 0.0, most: float = math.inf
) -> None:
    """Check that a number is finite, above ``least`` and not above ``most``."""
    real = isinstance(value, Real) and not isinstance(value, bool)
    if not real or not (least < value <= most and math.isfinite(value)):  # type: ignore[operator, arg-type]
        raise ConfigError(
            f"{what} = {_shown(value)}: give a finite number above {least:g}, up to "
            f"{most:g}"
        )


def _not_a(kind: str, value: object) -> ConfigError:
    return ConfigError(f"{_shown(value)} is not a {kind}")


def _shown(value: object) -> str:
    """Return a value as messages show it: short, and printable."""
    return reprlib.repr(value)[:80]


def not_allowed(
    what: str, name: str, known: Collection[str], bundle: str | None
) -> ConfigError:
    """Return the refusal of a name, with the flag by which its owner allows it."""
    if bundle or ":" not in name:
        return unknown(what, name, known)
    return ConfigError(
        f"unknown {what} {name!r}: its owner allows it by `melisma join … --allow "
        f"{shlex.quote(name)}`. Known: {', '.join(sorted(known))}"
    )
