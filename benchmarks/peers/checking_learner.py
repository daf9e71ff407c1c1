"""A learner that compares every row that it fetches with what was written."""

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import typer

from melisma import rpc
from melisma.fleets.messages import TrainRequest, Update
from melisma.learner import device
from melisma.learner.learner import Learner
from melisma.learner.service import Service
from melisma.learner.source import Caller, Source
from melisma.learning.shards import Shard
from melisma.learning.training import use_threads
from peers.large_set import wrong_rows


class Checked:
    """A source whose shards are looked at as they come."""

    def __init__(self, source: Source, seen: dict[str, int]) -> None:
        self._source, self._seen = source, seen

    def __getattr__(self, name: str) -> Any:
        """Pass on what is not looked at."""
        return getattr(self._source, name)

    def shards(
        self, task: str, keys: list[str], within_s: float | None = None
    ) -> list[Shard]:
        """Fetch shards, and count their rows, their bytes and those that are wrong."""
        shards = self._source.shards(task, keys, within_s)
        for shard in shards:
            self._seen["rows"] += len(shard["x"])
            self._seen["bytes"] += device.bytes_of(shard)
            self._seen["wrong"] += wrong_rows(shard)
        return shards


class Careful(Learner):
    """Trains on what it has looked at."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.seen = {"rows": 0, "bytes": 0, "wrong": 0}

    def train(self, request: TrainRequest, caller: Caller) -> Update:
        """Go over the samples once, however long the deadline."""
        checked: Any = Checked(caller.source, self.seen)
        once = msgspec.structs.replace(request, steps=1)
        return super().train(once, Caller(checked, caller.gave_up))


def main(address: str, name: str, file: Path) -> None:
    """Take part until standard input ends; then write what was seen."""
    use_threads(1)
    device.CACHE_BYTES = 1 << 26  # so that shards are sent again when they come again
    learner = Careful(name=name)
    with rpc.connect(address, Service(learner), name=name, patience_s=60.0) as line:
        sys.stdin.read()
        line.close()
    file.write_text(json.dumps(learner.seen))


if __name__ == "__main__":
    typer.run(main)
