"""Follow a run's record files: read new records, and any earlier part again.

Watchers read the files that the orchestrator writes anyway, so a run spends nothing on
being watched.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path

from melisma.errors import DataError
from melisma.runs import records
from melisma.runs.records import Record

#: Most bytes read at a time.
CHUNK_BYTES = 1 << 22


class Tail:
    """The records of several files, in the order in which they were read."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.position = 0  #: records read so far
        self.paths = paths
        self._ends = [0] * len(paths)  # bytes read of each file
        #: Where each chunk is: its first record's position, file and offset.
        self._chunks: list[tuple[int, int, int]] = []

    def has_shrunk(self) -> bool:
        """Return whether records that were read are gone: the run was restarted."""
        return any(
            _size(path) < end for path, end in zip(self.paths, self._ends, strict=True)
        )

    def has_grown(self) -> bool:
        """Return whether a file has grown; its last line may still be incomplete."""
        return any(
            _size(path) > end for path, end in zip(self.paths, self._ends, strict=True)
        )

    def read(self) -> Iterator[tuple[int, list[Record]]]:
        """Yield (index of the file, its new records); incomplete lines are left."""
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
        """Return records as the lines of their files, from position ``after`` on."""
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
    """Return the next whole lines of a file; empty if there are none."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            chunk = file.read(CHUNK_BYTES)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from error
    return chunk[: chunk.rfind(b"\n") + 1]
