"""How simulated learners are trained together, and what each keeps to itself."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from melisma.fleets.buffers import Here, LocalBuffers, everybody
from melisma.learning.batched import Chunk, choice_for, train_many
from melisma.learning.engines import Lesson
from melisma.learning.parameters import (
    Model,
    Parameters,
    parameters_of,
    put,
    stacked,
    trained,
)
from melisma.learning.samples import Samples
from melisma.learning.settings import Hardware, Training
from melisma.learning.submodels.part import Part
from melisma.learning.wire import Senders, Wire, seed_of
from melisma.maths.arrays import Ints


class Classroom:
    """One model, its samples and settings, and what every learner keeps of it.

    Where learners train a ``part`` of the model, that alone travels and is trained.
    """

    def __init__(
        self,
        model: Model,
        samples: Samples,
        training: Training,
        hardware: Hardware,
        wire: Wire | None = None,
        seed: int = 0,
        part: Part | None = None,
    ) -> None:
        self._model = model if part is None else part.model
        self._samples, self._part = samples, part
        self._training, self._hardware = training, hardware
        self._buffers = LocalBuffers(self._model)
        self._wire, self._seed = wire or Wire(), seed
        self._senders = Senders(self._wire.up)
        self._sent = trained(model).keys()
        self._moving = {n: p.detach() for n, p in trained(self._model).items()}

    def train(
        self,
        parameters: Parameters,
        cycle: int,
        names: Sequence[str],
        plans: Sequence[Ints],
        corrections: Sequence[Parameters] | None = None,
        starts: Sequence[Parameters] | None = None,
    ) -> Iterator[tuple[Chunk, Parameters]]:
        """Train learners by their plans; yield some at a time, and what arrives."""
        part = self._part
        arrived = self._arrived(parameters, cycle)
        if part is not None:
            put(arrived, self._model)  # what stays as it came is in the model alone
            arrived = {name: arrived[name] for name in part.up}
            parameters = part.kept(parameters)
        lesson = self._lesson(arrived, cycle, names)
        lesson = replace(lesson, corrections=corrections, starts=starts)
        for chunk in train_many(lesson, plans, self._hardware.threads):
            whose = [names[place] for place in chunk.learners]
            stack = self._buffers.keep(whose, chunk.parameters)
            yield chunk, self._learnt(stack, whose, arrived, parameters, cycle)

    def _arrived(self, parameters: Parameters, cycle: int) -> Parameters:
        """Return the model as learners have it, once it has travelled."""
        sent = parameters if self._part is None else self._part.sent(parameters)
        if self._wire.is_plain:
            return sent
        seed = seed_of(self._seed, cycle)
        packed = self._wire.sent(sent, self._sent, seed)
        found = self._wire.arrived(packed, sent, self._sent)
        return {name: t.to(sent[name].device) for name, t in found.items()}

    def _learnt(
        self,
        stack: Parameters,
        names: Sequence[str],
        arrived: Parameters,
        parameters: Parameters,
        cycle: int,
    ) -> Parameters:
        """Return what learners trained, once it has travelled back."""
        if self._wire.is_plain:
            return stack
        found = []
        for row, name in enumerate(names):
            own = {n: rows[row] for n, rows in stack.items()}
            seed = seed_of(self._seed, cycle, name)
            update = self._senders[name].update(own, arrived, self._moving, seed)
            found.append(self._wire.learnt(update, parameters, self._moving, seed))
        return stacked(found)

    def how(self, names: Sequence[str]) -> str:
        """Say how these learners are trained, and why not faster."""
        return str(choice_for(self._lesson(parameters_of(self._model), 1, names)))

    def state(self) -> Parameters:
        """Return what learners keep to themselves."""
        return self._buffers.state() | self._senders.state()

    def restore(self, saved: Parameters, is_here: Here = everybody) -> None:
        """Restore that, of who is here."""
        self._buffers.restore(saved, is_here)
        self._senders.restore(saved, self._moving, is_here)

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
