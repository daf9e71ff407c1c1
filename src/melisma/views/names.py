"""Number names, so that rows hold small integers instead of text."""

from collections.abc import Iterator


class Names:
    """Names in order of first use."""

    def __init__(self, *first: str) -> None:
        self._places: dict[str, int] = {}
        self._latest = 0
        for name in first:
            self.place(name, 0)

    def place(self, name: str, position: int) -> int:
        """Return the number of a name; a new name is added as of ``position``."""
        if name not in self._places:
            self._places[name] = len(self._places)
            self._latest = position
        return self._places[name]

    def grew_after(self, position: int) -> bool:
        """Return whether a name was added after ``position``; always at 0."""
        return position == 0 or self._latest > position

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
