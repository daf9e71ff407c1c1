"""A run's records as they come: what is new since the last look, and any part of them.

Who looks reads the files that the orchestrator writes anyway: a run that nobody looks
at does nothing for it.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path

from melisma.errors import DataError
from melisma.runs import records
from melisma.runs.records import Record

#: Read at a time.
CHUNK_BYTES = 1 << 22


class Tail:
    """The records in some files, in the order in which they were found there."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.position = 0  #: records read so far
        self.paths = paths
        self._ends = [0] * len(paths)  # bytes read of each file
        #: Where each chunk is: its first record's position, file and offset.
        self._chunks: list[tuple[int, int, int]] = []

    def has_shrunk(self) -> bool:
        """Whether records that were read are gone: the run was begun anew."""
        return any(
            _size(path) < end for path, end in zip(self.paths, self._ends, strict=True)
        )

    def has_grown(self) -> bool:
        """Whether there may be more to read."""
        return any(
            _size(path) > end for path, end in zip(self.paths, self._ends, strict=True)
        )

    def read(self) -> Iterator[tuple[int, list[Record]]]:
        """Yield the new records of whole lines, and which file they are in."""
        for number, path in enumerate(self.paths):
            while lines := _lines(path, self._ends[number]):
                try:
                    found = records.decode(lines)
                except DataError as error:
                    raise DataError(f"{path}: {error}") from error
                self._chunks.append((self.position, number, self._ends[number]))
                self._ends[number] += len(lines)
                self.position += len(found)
                yield number, found

    def raw(self, after: int, limit: int) -> list[bytes]:
        """Return records as they are written, from position ``after`` on."""
        found: list[bytes] = []
        first = max(
            0, bisect_right(self._chunks, after, key=lambda chunk: chunk[0]) - 1
        )
        for place in range(first, len(self._chunks)):
            start, number, offset = self._chunks[place]
            lines = _lines(self.paths[number], offset).splitlines()
            ends = [chunk[0] for chunk in self._chunks[place + 1 : place + 2]]
            lines = lines[: (ends or [self.position])[0] - start]
            skip = max(0, after - start)
            found += lines[skip : skip + limit - len(found)]
            if len(found) >= limit:
                break
        return found


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _lines(path: Path, offset: int) -> bytes:
    """Return the next whole lines of a file; nothing if there are none."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            chunk = file.read(CHUNK_BYTES)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from error
    return chunk[: chunk.rfind(b"\n") + 1]
