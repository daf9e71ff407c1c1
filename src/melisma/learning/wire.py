"""What travels: the model to learners, and the change that each of them made.

    down    θ̂ = D(θ)                   encoded once a cycle, the same for all
    up      θ̂ₖ − θ̂ = what it learnt    encoded by each, with what it left out before

A learner trains from θ̂, the model as it arrived, and what it learnt is added to θ, the
model as it is: what a codec takes away on the way down is lost for a cycle and no more.
Where learners work in their own time, each order is a cycle of its own in this.
Codecs are for what is trained; buffers, such as the statistics of batch norm, are small
and travel as they are. What `top-k`, `random-k` and `powersgd` leave out is added to a
learner's next change, by whichever codec that travels.
"""

import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import msgspec
import numpy as np

from melisma.errors import ConfigError, DataError
from melisma.learning.codecs import Codec, Encoded, Feedback, Fp32, codec_of
from melisma.learning.parameters import Parameters, packed, unpacked
from melisma.learning.submodels.part import Part
from melisma.system.streams import Stream

#: Before what a learner's feedback keeps, in a checkpoint.
PREFIX = "wire/"
PLAIN = Fp32()


class Packed(msgspec.Struct, frozen=True, kw_only=True):
    """A model or a change as it travels: what is trained, encoded, and the rest."""

    encoded: Encoded
    rest: Parameters


@dataclass(frozen=True, slots=True)
class Wire:
    """The codecs of both ways."""

    down: Codec = PLAIN
    up: Codec = PLAIN

    @classmethod
    def of(cls, down: str, up: str) -> "Wire":
        """Return the wire with codecs as jobs write them; ConfigError if unknown."""
        codec = codec_of(down)
        if codec.feeds_back:
            raise ConfigError(
                f"down = {down!r} leaves out most of the model: give fp32, fp16, bf16, "
                "int8 or int4"
            )
        return cls(codec, codec_of(up))

    def size_bytes(self, like: Parameters, moving: Collection[str]) -> tuple[int, int]:
        """Return what a model takes on the way down, and a change on the way up."""
        some, rest = _apart(like, moving)
        plain = sum(tensor.nbytes for tensor in rest.values())
        return plain + self.down.size_bytes(some), plain + self.up.size_bytes(some)

    def share(self, like: Parameters, moving: Collection[str]) -> float:
        """Return what travels both ways, of what two models would take."""
        if self.is_plain:
            return 1.0
        whole = 2 * sum(tensor.nbytes for tensor in like.values())
        return sum(self.size_bytes(like, moving)) / whole

    @property
    def is_plain(self) -> bool:
        """Whether models travel as they are, both ways."""
        return self.down == self.up == PLAIN

    def sent(self, model: Parameters, moving: Collection[str], seed: int) -> Packed:
        """Return a model as it travels to learners."""
        some, rest = _apart(model, moving)
        return Packed(encoded=self.down.encode(some, seed), rest=rest)

    def arrived(
        self, sent: object, like: Parameters, moving: Collection[str]
    ) -> Parameters:
        """Return the model as a learner has it; DataError if this is none."""
        return _unpacked(self.down, sent, like, moving)

    def learnt(
        self, update: object, model: Parameters, moving: Collection[str], seed: int
    ) -> Parameters:
        """Return a model and what a learner learnt; DataError if this is no update.

        Draws are by the seed that it was to take: who may choose one chooses, for
        example, which values are sent and scaled up.
        """
        found = _unpacked(self.up, update, model, moving, seed)
        for name in moving:
            found[name] = model[name] + found[name].to(model[name])
        return found


class Sender:
    """One learner's way up: its changes, with what was left out before."""

    def __init__(self, codec: Codec = PLAIN) -> None:
        self._feedback = Feedback(codec)
        self._seed: int | None = None  # of the last update

    def update(
        self,
        trained: Parameters,
        arrived: Parameters,
        moving: Collection[str],
        seed: int,
        codec: Codec | None = None,
        part: Part | None = None,
    ) -> Packed:
        """Return what training changed, as it travels; by another codec from now on.

        It is of a part of the model, or of all of it. The seed of the update before
        asks for the same cycle again: an orchestrator that was killed goes on from its
        checkpoint, and has not counted that update.
        """
        if seed == self._seed:
            self._feedback.undo()
        self._seed = seed
        changed = dict(trained)
        for name in moving:
            changed[name] = trained[name] - arrived[name].to(trained[name])
        some, rest = _apart(changed, moving)
        self._feedback.codec = codec or self._feedback.codec
        if self._feedback.codec.feeds_back:
            encoded = self._feedback.encode(some, seed, part)
        else:
            settled = self._feedback.settle(some, part)
            encoded = self._feedback.codec.encode(settled, seed)
        return Packed(encoded=encoded, rest=rest)

    def state(self) -> Parameters:
        """Return what is kept, for a checkpoint."""
        return self._feedback.state()

    def restore(self, saved: Parameters, like: Parameters) -> None:
        """Go on with it; DataError if it is of another model."""
        self._feedback.restore(saved, like)


class Senders:
    """Simulated learners' ways up, each made when it is first needed."""

    def __init__(self, codec: Codec = PLAIN) -> None:
        self._codec = codec
        self._made: dict[str, Sender] = {}

    def __getitem__(self, name: str) -> Sender:
        return self._made.setdefault(name, Sender(self._codec))

    def state(self) -> Parameters:
        """Return what all of them keep, for a checkpoint."""
        return packed(PREFIX, {name: one.state() for name, one in self._made.items()})

    def restore(self, saved: Parameters, like: Parameters) -> None:
        """Go on with what all of them keep; DataError if it is of another model."""
        self._made = {}
        for name, own in unpacked(PREFIX, saved).items():
            self[name].restore(own, like)


def seed_of(seed: int, cycle: int, name: str = "") -> int:
    """Return the seed of a learner's draws in a cycle, or of those for the model."""
    entropy = [seed, Stream.WIRE, cycle, zlib.crc32(name.encode())]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> 1)


def _unpacked(
    codec: Codec,
    came: object,
    like: Parameters,
    moving: Collection[str],
    seed: int | None = None,
) -> Parameters:
    if not isinstance(came, Packed):
        raise DataError(f"parameters came in place of what {codec} makes of them")
    some, rest = _apart(like, moving)
    found = codec.decode(came.encoded, some)
    if seed is not None and came.encoded.seed != seed:
        raise DataError(f"{codec} came with draws of another seed")
    if _kinds(came.rest) != _kinds(rest):
        raise DataError("buffers of another model came")
    both = found | came.rest
    return {name: both[name] for name in like}


def _apart(
    tensors: Parameters, moving: Collection[str]
) -> tuple[Parameters, Parameters]:
    """Return what is trained, and what is not."""
    some = {name: t for name, t in tensors.items() if name in moving}
    return some, {name: t for name, t in tensors.items() if name not in moving}


def _kinds(tensors: object) -> Mapping[str, object]:
    if not isinstance(tensors, dict):
        raise DataError("no buffers came")
    return {
        str(name): (getattr(t, "shape", None), getattr(t, "dtype", None))
        for name, t in tensors.items()
    }
