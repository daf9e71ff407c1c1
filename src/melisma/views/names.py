"""Words that rows refer to by their places."""

from collections.abc import Iterator


class Names:
    """Words in the order in which they came."""

    def __init__(self, *first: str) -> None:
        self._places: dict[str, int] = {}
        self._latest = 0
        for name in first:
            self.place(name, 0)

    def place(self, name: str, position: int) -> int:
        """Return the place of a word, which may be new as of ``position``."""
        if name not in self._places:
            self._places[name] = len(self._places)
            self._latest = position
        return self._places[name]

    def grew_after(self, position: int) -> bool:
        """Whether one came after ``position``; at 0, all of them did."""
        return position == 0 or self._latest > position

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
