"""A learner as an actor on a node: called by Ray, and fetching by Ray."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from melisma.errors import CallTimeout
from melisma.learner.learner import Learner
from melisma.learner.service import Service
from melisma.learner.source import Caller
from melisma.learning.data import load_own
from melisma.learning.parameters import Parameters
from melisma.learning.shards import Shard
from melisma.learning.training import use_threads
from melisma.maths.arrays import Bytes
from melisma.ray.cluster import ray

#: Makes a learner of its name, on its node.
Make = Callable[[str], Learner]


def learner(name: str, *, allowed: Sequence[str], data: str | None) -> Learner:
    """Make a learner whose own data, if it has any, lies in ``data/NAME`` there."""
    own = load_own(Path(data) / name) if data else None
    return Learner(name=name, own=own, allowed=allowed)


class Actor:
    """One node's learner, made when it is first called."""

    def __init__(self, name: str, make: Make, model_server: Any) -> None:
        use_threads(1)
        self._name, self._make, self._model_server = name, make, model_server

    @cached_property
    def _learner(self) -> Learner:
        return self._make(self._name)

    async def answer(
        self,
        function: str,
        args: tuple[Any, ...],
        models: list[Any],
        within_s: float | None,
    ) -> Any:
        """Call the learner; it is cancelled when the call is, or its time is over.

        ``models`` holds a reference to the cycle's parameters, where there are any.
        """
        gave_up, timer = threading.Event(), None
        source = RaySource(self._model_server, models)
        caller = Caller(
            source, gave_up.is_set, corrections=source if models[1:] else None
        )
        if within_s is not None:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(within_s, gave_up.set)
        try:
            return await asyncio.to_thread(self._call, function, args, caller)
        except asyncio.CancelledError:
            gave_up.set()
            raise
        finally:
            if timer:
                timer.cancel()

    def _call(self, function: str, args: tuple[Any, ...], caller: Caller) -> Any:
        return getattr(Service(self._learner, lambda: caller), function)(*args)


@dataclass(frozen=True, slots=True)
class RaySource:
    """The object store, which has the cycle's model, and the model server's actor."""

    model_server: Any
    models: list[Any]

    def parameters(
        self, task: str, cycle: int, within_s: float | None = None
    ) -> Parameters:
        """Fetch the model that came with the call, which is its cycle's."""
        model: Parameters = _fetched("parameters", self.models[0], within_s)
        return model

    def correction(
        self, task: str, cycle: int, within_s: float | None = None
    ) -> Parameters:
        """Fetch the correction that came with the call."""
        correction: Parameters = _fetched("correction", self.models[1], within_s)
        return correction

    def frozen(self, task: str, within_s: float | None = None) -> Parameters:
        """Fetch the parameters that no cycle changes."""
        reference = self.model_server.frozen.remote(task)
        frozen: Parameters = _fetched("frozen", reference, within_s)
        return frozen

    def shards(
        self, task: str, keys: list[str], within_s: float | None = None
    ) -> list[Shard]:
        """Fetch shards by key."""
        reference = self.model_server.shards.remote(task, keys)
        shards: list[Shard] = _fetched("shards", reference, within_s)
        return shards

    def filler(self, task: str, size: int) -> Bytes:
        """Fetch that many bytes."""
        reference = self.model_server.filler.remote(task, size)
        filler: Bytes = _fetched("filler", reference, None)
        return filler


def _fetched(what: str, reference: Any, within_s: float | None) -> Any:
    """Return an object of the store; CallTimeout if that takes too long."""
    try:
        return ray.get(reference, timeout=within_s)
    except ray.exceptions.GetTimeoutError:
        raise CallTimeout(f"{what}: not fetched within {within_s:g} s") from None
