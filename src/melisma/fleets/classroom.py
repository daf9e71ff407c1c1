"""How simulated learners are trained together, and what each keeps to itself."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from melisma.fleets.buffers import LocalBuffers
from melisma.learning.batched import Chunk, choice_for, train_many
from melisma.learning.codecs import Codec
from melisma.learning.engines import Lesson
from melisma.learning.parameters import (
    Model,
    Parameters,
    parameters_of,
    put,
    stacked,
    trained,
    zeros_like,
)
from melisma.learning.samples import Samples
from melisma.learning.settings import Hardware, Training
from melisma.learning.submodels.part import Part
from melisma.learning.wire import Senders, Wire, seed_of
from melisma.maths.arrays import Ints


class Ordered(NamedTuple):
    """What a learner is to train."""

    number: (
        int  #: of the cycle, or of the order where each has its own: draws are by it
    )
    model: Parameters  #: as the orchestrator has it


class Classroom:
    """One model, its samples and settings, and what every learner keeps of it.

    Where learners train a ``part`` of the model, that alone travels and is trained.
    ``senders`` are theirs whatever they train.
    """

    def __init__(
        self,
        model: Model,
        samples: Samples,
        training: Training,
        hardware: Hardware,
        wires: Sequence[Wire] = (Wire(),),
        seed: int = 0,
        part: Part | None = None,
        senders: Senders | None = None,
    ) -> None:
        self._model = model if part is None else part.model
        self._samples, self._part = samples, part
        self._training, self._hardware = training, hardware
        self._buffers = LocalBuffers(self._model)
        self._wires, self._seed = wires, seed
        self._is_plain = all(wire.is_plain for wire in wires)
        self._senders = senders or Senders()
        self._sent = trained(model).keys()
        #: What is trained, of the part or the whole.
        self.moving = {n: p.detach() for n, p in trained(self._model).items()}

    def train(
        self,
        parameters: Parameters,
        cycle: int,
        names: Sequence[str],
        plans: Sequence[Ints],
        corrections: Sequence[Parameters | None] = (),
        orders: Sequence[Ordered] | None = None,
        options: Sequence[int] | None = None,
    ) -> Iterator[tuple[Chunk, Parameters]]:
        """Train learners by their plans; yield some at a time, and what arrives.

        What travels does so by each learner's option, or by the first. All learners
        train one model in a cycle, unless each has an order of its own.
        """
        part = self._part
        wires = [self._wires[m] for m in options or [0] * len(names)]
        given = orders or [Ordered(cycle, parameters)] * len(names)
        arrived = self._arrived(given, wires)
        if part is not None and arrived:
            put(arrived[0], self._model)  # what stays as it came is in the model alone
            arrived = [{n: model[n] for n in part.up} for model in arrived]
            parameters = part.kept(parameters)
            given = [Ordered(cycle, parameters)] * len(names)
        differ = orders is not None or len({wire.down for wire in wires}) > 1
        starts = arrived if differ else None
        common = arrived[0] if arrived else parameters
        lesson = self._lesson(common, cycle, names)
        whole = _whole(corrections, parameters)
        lesson = replace(lesson, corrections=whole, starts=starts)
        for chunk in train_many(lesson, plans, self._hardware.threads):
            whose = [names[place] for place in chunk.learners]
            stack = self._buffers.keep(whose, chunk.parameters)
            if self._is_plain:
                yield chunk, stack
                continue
            found = [
                self._learnt(
                    {n: rows[row] for n, rows in stack.items()},
                    names[place],
                    wires[place],
                    arrived[place],
                    given[place],
                )
                for row, place in enumerate(chunk.learners)
            ]
            yield chunk, stacked(found)

    def _arrived(
        self, given: Sequence[Ordered], wires: Sequence[Wire]
    ) -> list[Parameters]:
        """Return the model as each learner has it, once it has travelled its way."""
        keys = [(w.down, o.number) for o, w in zip(given, wires, strict=True)]
        ways = dict[tuple[Codec, int], Parameters]()
        for key, order, wire in zip(keys, given, wires, strict=True):
            if key not in ways:
                ways[key] = self._travelled(order, wire)
        return [ways[key] for key in keys]

    def _travelled(self, order: Ordered, wire: Wire) -> Parameters:
        part, model = self._part, order.model
        sent = model if part is None else part.sent(model)
        if self._is_plain:
            return sent
        packed = wire.sent(sent, self._sent, seed_of(self._seed, order.number))
        found = wire.arrived(packed, sent, self._sent)
        return {n: t.to(sent[n]) for n, t in found.items()}

    def _learnt(
        self,
        own: Parameters,
        name: str,
        wire: Wire,
        arrived: Parameters,
        order: Ordered,
    ) -> Parameters:
        """Return what a learner trained, once it has travelled back."""
        seed = seed_of(self._seed, order.number, name)
        update = self._senders[name].update(
            own, arrived, self.moving, seed, wire.up, self._part
        )
        return wire.learnt(update, order.model, self.moving, seed)

    def how(self, names: Sequence[str]) -> str:
        """Say how these learners are trained, and why not faster."""
        return str(choice_for(self._lesson(parameters_of(self._model), 1, names)))

    def state(self) -> Parameters:
        """Return the buffers that learners keep to themselves."""
        return self._buffers.state()

    def restore(self, saved: Parameters) -> None:
        """Restore them."""
        self._buffers.restore(saved)

    def _lesson(
        self, parameters: Parameters, cycle: int, names: Sequence[str]
    ) -> Lesson:
        return Lesson(
            self._model,
            parameters,
            self._samples,
            self._training.at(cycle),
            self._hardware.precision,
            self._buffers.of(names),
        )


def _whole(
    corrections: Sequence[Parameters | None], parameters: Parameters
) -> list[Parameters] | None:
    """Return everybody's correction, if anybody has one: that of the others is 0."""
    if not any(corrections):
        return None
    none = zeros_like(parameters)
    return [none if one is None else one for one in corrections]
