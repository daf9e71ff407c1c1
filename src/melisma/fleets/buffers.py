"""Buffers that each simulated learner keeps, where they do not travel."""

from collections.abc import Sequence

from melisma.learning.parameters import (
    Model,
    Parameters,
    buffers_are_local,
    staying_of,
)

#: Prefix of a learner's buffers in a checkpoint, before its name.
PREFIX = "buffers/"


class LocalBuffers:
    """Each learner's buffers from cycle to cycle; at first those of the model."""

    def __init__(self, model: Model) -> None:
        self._first = staying_of(model) if buffers_are_local(model) else {}
        self._kept: dict[str, Parameters] = {}

    def of(self, names: Sequence[str]) -> list[Parameters] | None:
        """Return the buffers of learners; None if nothing stays with them."""
        if not self._first:
            return None
        return [self._kept.get(name, self._first) for name in names]

    def keep(self, names: Sequence[str], stack: Parameters) -> Parameters:
        """Keep what stays with the learners of a stack; return what travels."""
        if not self._first:
            return stack
        for row, name in enumerate(names):
            self._kept[name] = {key: stack[key][row] for key in self._first}
        return {key: rows for key, rows in stack.items() if key not in self._first}

    def state(self) -> Parameters:
        """Return all learners' buffers, by names that tell them apart."""
        return {
            f"{PREFIX}{name}/{key}": value.clone()
            for name, kept in self._kept.items()
            for key, value in kept.items()
        }

    def restore(self, saved: Parameters) -> None:
        """Take the buffers out of what `state` returned and others added to."""
        self._kept = {}
        for key, value in saved.items():
            name, _, buffer = key.removeprefix(PREFIX).rpartition("/")
            if key.startswith(PREFIX) and buffer in self._first:
                kept = self._kept.setdefault(name, {})
                kept[buffer] = value.to(self._first[buffer].device)
