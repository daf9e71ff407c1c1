"""Simulated learners of one model, some of which train a part of it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from melisma.fleets.buffers import Here
from melisma.fleets.classroom import Classroom
from melisma.learning.batched import Chunk
from melisma.learning.parameters import Parameters
from melisma.learning.submodels.part import Part
from melisma.maths.arrays import Ints


class Classrooms:
    """A classroom for each part of a model, and one for the whole of it.

    ``parts`` are those of learners by name; all others train the whole. ``make``
    returns the classroom of a part.
    """

    def __init__(
        self, make: Callable[[Part | None], Classroom], parts: Mapping[str, Part]
    ) -> None:
        self.whole, self._parts = make(None), parts
        self._rooms = {part: make(part) for part in parts.values()}

    def train(
        self,
        parameters: Parameters,
        cycle: int,
        names: Sequence[str],
        plans: Sequence[Ints],
        corrections: Sequence[Parameters | None] = (),
        options: Sequence[int] = (),
    ) -> Iterator[tuple[Chunk, Parameters, Part | None]]:
        """Train learners by their plans; yield some at a time, of one part each.

        Corrections are for who trains the whole.
        """
        for part, room in self._each():
            places = [k for k, n in enumerate(names) if self._parts.get(n) is part]
            if not places:
                continue
            trained = room.train(
                parameters,
                cycle,
                [names[k] for k in places],
                [plans[k] for k in places],
                [corrections[k] for k in places] if corrections else (),
                options=[options[k] for k in places] if options else None,
            )
            for chunk, stack in trained:
                whose = [places[k] for k in chunk.learners]
                yield replace(chunk, learners=whose), stack, part

    def how(self, names: Sequence[str]) -> str:
        """Say how learners of each part are trained, and why not faster."""
        lines = []
        for part, room in self._each():
            some = [name for name in names if self._parts.get(name) is part]
            if some or (part is None and not names):
                line = room.how(some)
                lines.append(line if part is None else f"{part.submodel}: {line}")
        return "; ".join(lines)

    def state(self) -> Parameters:
        """Return what learners keep to themselves."""
        return {n: t for _, room in self._each() for n, t in room.state().items()}

    def restore(self, saved: Parameters) -> None:
        """Restore that, of each learner in its own classroom."""
        for part, room in self._each():
            room.restore(saved, self._who_trains(part))

    def _who_trains(self, part: Part | None) -> Here:
        return lambda name: self._parts.get(name) is part

    def _each(self) -> Iterator[tuple[Part | None, Classroom]]:
        yield None, self.whole
        yield from self._rooms.items()
