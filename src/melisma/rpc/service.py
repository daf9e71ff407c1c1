"""Exposed functions: those marked by ``expose``, found by exact name."""

import inspect
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, overload

from melisma.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])
Kind = Literal["function", "coroutine", "generator", "async generator"]

MARK = "__melisma_rpc__"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposed:
    """A function that peers may call."""

    name: str
    function: Callable[..., Any]
    idempotent: bool  #: running it twice has the effect of running it once
    executor: Executor | None  #: where it runs; None for the server's threads
    kind: Kind


@dataclass(frozen=True, slots=True)
class Mark:
    """The attribute that ``expose`` sets on a function."""

    name: str
    idempotent: bool
    executor: Executor | None


_marked: dict[str, Exposed] = {}


@overload
def expose(function: F) -> F: ...
@overload
def expose(
    *,
    name: str | None = None,
    idempotent: bool = False,
    executor: Executor | None = None,
) -> Callable[[F], F]: ...
def expose(
    function: Any = None,
    *,
    name: str | None = None,
    idempotent: bool = False,
    executor: Executor | None = None,
) -> Any:
    """Mark a function or method as one that peers may call.

    A plain function runs in a thread, or in ``executor``; ``async def`` runs on the
    event loop and must not block it; generators of either kind answer with a stream.
    A call of an ``idempotent`` function is repeated if it is not known to have run.
    """

    def mark(function: F) -> F:
        label = name or function.__name__
        if not label.isidentifier() or label.startswith("_"):
            raise ConfigError(f"'{label}' cannot be exposed: use a public name")
        setattr(function, MARK, Mark(label, idempotent, executor))
        if "." not in function.__qualname__.rpartition("<locals>.")[2]:
            _marked[label] = _exposed(function)
        return function

    return mark if function is None else mark(function)


class Service:
    """Exposed functions by name: those of the targets, or all if there are none."""

    def __init__(self, targets: Iterable[object] = ()) -> None:
        found = [exposed for target in targets for exposed in _exposed_of(target)]
        self.functions = {exposed.name: exposed for exposed in found}
        if len(self.functions) < len(found):
            names = sorted(exposed.name for exposed in found)
            raise ConfigError(f"two functions are exposed under one name: {names}")
        if not found:
            self.functions = (
                _marked  # the dict itself: functions marked later count too
            )


def _exposed_of(target: object) -> list[Exposed]:
    if hasattr(target, MARK):
        return [_exposed(target)]
    members = (getattr(target, name) for name in _marked_names(type(target)))
    exposed = [_exposed(member) for member in members]
    if not exposed:
        raise ConfigError(
            f"{target!r} exposes nothing: mark its methods with @melisma.rpc.expose"
        )
    return exposed


def _marked_names(cls: type) -> list[str]:
    return [name for name in dir(cls) if hasattr(getattr(cls, name, None), MARK)]


def _exposed(function: Any) -> Exposed:
    mark: Mark = getattr(function, MARK)
    return Exposed(
        name=mark.name,
        function=function,
        idempotent=mark.idempotent,
        executor=mark.executor,
        kind=_kind(function),
    )


def _kind(function: Callable[..., Any]) -> Kind:
    if inspect.isasyncgenfunction(function):
        return "async generator"
    if inspect.isgeneratorfunction(function):
        return "generator"
    if inspect.iscoroutinefunction(function):
        return "coroutine"
    return "function"
