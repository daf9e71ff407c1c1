"""Simulated learners of one model, some of which train a part of it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from melisma.fleets.classroom import Classroom
from melisma.fleets.ways import Ways
from melisma.learning.batched import Chunk
from melisma.learning.codecs import Codec
from melisma.learning.parameters import Parameters
from melisma.learning.submodels.part import Part
from melisma.learning.wire import Senders
from melisma.maths.arrays import Ints

#: Before what learners of a part keep, and its name, in a checkpoint.
PREFIX = "part/"


class Classrooms:
    """A classroom for each part of a model, and one for the whole of it.

    ``make`` returns the classroom of a part. What a codec left out stays with its
    learner, whichever part it trains next; buffers stay with the part.
    """

    def __init__(
        self, make: Callable[[Part | None, Senders], Classroom], ways: Ways
    ) -> None:
        self._ways, self._senders = ways, Senders()
        self.whole = make(None, self._senders)
        parts = dict.fromkeys(way.part for way in ways.each)
        self._rooms: dict[Part | None, Classroom] = {None: self.whole}
        self._rooms |= {p: make(p, self._senders) for p in parts if p is not None}

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
        taken = [
            self._ways.place(name, option)
            for name, option in zip(names, options or [0] * len(names), strict=True)
        ]
        for part, places in self._together(taken):
            trained = self._rooms[part].train(
                parameters,
                cycle,
                [names[k] for k in places],
                [plans[k] for k in places],
                [corrections[k] for k in places] if corrections else (),
                options=[taken[k] for k in places],
            )
            for chunk, stack in trained:
                whose = [places[k] for k in chunk.learners]
                yield replace(chunk, learners=whose), stack, part

    def _together(
        self, taken: Sequence[int]
    ) -> Iterator[tuple[Part | None, list[int]]]:
        """Yield who can be trained together, by their places.

        What stays as it came has to have come alike.
        """
        found: dict[tuple[Part | None, Codec | None], list[int]] = {}
        for part in self._rooms:
            for k, place in enumerate(taken):
                way = self._ways.each[place]
                if way.part is part:
                    came = None if part is None else way.wire.down
                    found.setdefault((part, came), []).append(k)
        for (part, _), places in found.items():
            yield part, places

    def how(self, names: Sequence[str]) -> str:
        """Say how learners of each part are trained, and why not faster."""
        fixed, lines = bool(self._ways.fixed), []
        for part, room in self._rooms.items():
            some = names
            if fixed:
                some = [name for name in names if self._ways.of(name).part is part]
            if some or (part is None and not names):
                line = room.how(some)
                lines.append(line if part is None else f"{part.submodel}: {line}")
        return "; ".join(lines)

    def state(self) -> Parameters:
        """Return what learners keep to themselves."""
        kept = self._senders.state()
        for part, room in self._rooms.items():
            kept |= {_prefix(part) + key: t for key, t in room.state().items()}
        return kept

    def restore(self, saved: Parameters) -> None:
        """Restore that."""
        self._senders.restore(saved, self.whole.moving)
        for part, room in self._rooms.items():
            prefix = _prefix(part)
            own = {n: t for n, t in saved.items() if n.startswith(prefix)}
            room.restore({n.removeprefix(prefix): t for n, t in own.items()})


def _prefix(part: Part | None) -> str:
    return "" if part is None else f"{PREFIX}{part.submodel}/"
