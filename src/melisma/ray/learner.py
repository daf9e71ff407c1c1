"""A learner as an actor: the one that dials in elsewhere, called and fed by Ray."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from melisma.errors import CallTimeout
from melisma.learner.learner import Learner
from melisma.learning.data import load_own
from melisma.learning.training import use_threads
from melisma.ray.cluster import ray
from melisma.rpc import Request
from melisma.rpc.request import current_request

#: Makes a learner of its name, on its node.
Make = Callable[[str], Learner]


def learner(name: str, *, allowed: Sequence[str], data: str | None) -> Learner:
    """Make a learner whose own data, if it has any, lies in ``data/NAME`` there."""
    own = load_own(Path(data) / name) if data else None
    return Learner(name=name, own=own, allowed=allowed)


class Actor:
    """One node's learner, which is made when it is first called."""

    def __init__(self, name: str, make: Make, stock: Any) -> None:
        use_threads(1)
        self._name, self._make, self._models_actor = name, make, stock

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
        """Call the learner; it is told to stop when nobody waits any more.

        ``models`` holds a reference to the cycle's parameters, where there are any.
        """
        orchestrator: Any = Orchestrator(self._models_actor, models)
        request = Request(function, "orchestrator", orchestrator)
        current_request.set(request)
        loop, timer = asyncio.get_running_loop(), None
        if within_s is not None:
            timer = loop.call_later(within_s, request.cancel)
        try:
            return await asyncio.to_thread(self._call, function, args)
        finally:
            request.cancel()
            if timer:
                timer.cancel()

    def _call(self, function: str, args: tuple[Any, ...]) -> Any:
        return getattr(self._learner, function)(*args)


@dataclass(frozen=True, slots=True)
class Orchestrator:
    """The orchestrator as a learner calls it: ``orchestrator[name](task, argument)``.

    Parameters are in the object store; all else is asked of the stock.
    """

    stock: Any
    models: list[Any]

    def __getitem__(self, name: str) -> "Fetch":
        return Fetch(self, name)

    def filler(self, task: str, size: int) -> Any:
        """Fetch so many bytes that mean nothing."""
        return self["filler"](task, size)


@dataclass(frozen=True, slots=True)
class Fetch:
    """One thing to fetch."""

    source: Orchestrator
    name: str
    within_s: float | None = None

    def within(self, seconds: float) -> "Fetch":
        """Return the same with a time limit."""
        return replace(self, within_s=seconds)

    def __call__(self, task: str, argument: Any) -> Any:
        """Fetch; CallTimeout if that takes too long."""
        if self.name == "parameters":
            (ref,) = self.source.models
        else:
            ref = getattr(self.source.stock, self.name).remote(task, argument)
        try:
            return ray.get(ref, timeout=self.within_s)
        except ray.exceptions.GetTimeoutError:
            raise CallTimeout(
                f"{self.name}: not here within {self.within_s:g} s"
            ) from None
