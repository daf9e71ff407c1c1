"""Learners for the live benchmark: one of four by the clock, or many in one process."""

import json
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import typer

from melisma import rpc
from melisma.fleets.messages import TrainRequest, Update
from melisma.learner.background import BackgroundLoad, State
from melisma.learner.learner import Learner
from melisma.learner.service import Service
from melisma.learner.source import Caller
from melisma.learning.training import use_threads

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class Timed(Learner):
    """Writes down how long each request took."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.busy_s: dict[int, float] = {}

    def train(self, request: TrainRequest, caller: Caller) -> Update:
        """Carry out, by the clock."""
        began = time.monotonic()
        update = super().train(request, caller)
        self.busy_s[request.cycle] = time.monotonic() - began
        return update


class Hasty(Learner):
    """One of a crowd: does one step, however long the deadline."""

    def train(self, request: TrainRequest, caller: Caller) -> Update:
        """Carry out one step."""
        return super().train(msgspec.structs.replace(request, steps=1), caller)


@app.command()
def learner(address: str, name: str, rate: float, bandwidth: float, file: Path) -> None:
    """Be one of the four."""
    use_threads(1)
    rates = State(samples_per_s=rate, bytes_per_s=bandwidth)
    own = Timed(name=name, background=BackgroundLoad([rates]))
    with rpc.connect(address, Service(own), name=name, patience_s=30.0) as line:
        sys.stdin.read()  # until the benchmark is over
        line.close()
    file.write_text(json.dumps(own.busy_s))


@app.command()
def crowd(address: str, first: int, number: int) -> None:
    """Be many."""
    use_threads(1)
    with ExitStack() as lines:
        for k in range(first, first + number):
            name = f"learner-{k}"
            service = Service(Hasty(name=name))
            lines.enter_context(
                rpc.connect(address, service, name=name, patience_s=60.0)
            )
        sys.stdin.read()


if __name__ == "__main__":
    app()
