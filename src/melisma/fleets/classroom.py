"""How simulated learners are trained together, and what each keeps to itself."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from melisma.fleets.buffers import LocalBuffers
from melisma.learning.batched import Chunk, choice_for, train_many
from melisma.learning.engines import Lesson
from melisma.learning.parameters import Model, Parameters, parameters_of
from melisma.learning.samples import Samples
from melisma.learning.settings import Hardware, Training
from melisma.maths.arrays import Ints


class Classroom:
    """One model, its samples and settings, and the buffers of every learner."""

    def __init__(
        self, model: Model, samples: Samples, training: Training, hardware: Hardware
    ) -> None:
        self._model, self._samples = model, samples
        self._training, self._hardware = training, hardware
        self._buffers = LocalBuffers(model)

    def train(
        self,
        parameters: Parameters,
        cycle: int,
        names: Sequence[str],
        plans: Sequence[Ints],
        corrections: Sequence[Parameters] | None = None,
        starts: Sequence[Parameters] | None = None,
    ) -> Iterator[tuple[Chunk, Parameters]]:
        """Train learners by their plans; yield some at a time, and what travels."""
        lesson = self._lesson(parameters, cycle, names)
        lesson = replace(lesson, corrections=corrections, starts=starts)
        for chunk in train_many(lesson, plans, self._hardware.threads):
            whose = [names[place] for place in chunk.learners]
            yield chunk, self._buffers.keep(whose, chunk.parameters)

    def how(self, names: Sequence[str]) -> str:
        """Say how these learners are trained, and why not faster."""
        return str(choice_for(self._lesson(parameters_of(self._model), 1, names)))

    def state(self) -> Parameters:
        """Return the buffers that learners keep to themselves."""
        return self._buffers.state()

    def restore(self, saved: Parameters) -> None:
        """Restore those buffers."""
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
