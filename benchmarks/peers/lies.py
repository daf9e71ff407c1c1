"""Wrong answers of a learner: a grammar, and a way to have a learner give them.

An answer is replaced by any value that can be sent, or has one field replaced by one,
or has arrays of the right shape that are finite and huge, or are not finite.
"""

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import torch

from melisma.fleets.messages import Ready, Speeds

#: What a call may be answered with, and what a field of an answer may hold.
WRONG: list[Any] = [
    *(None, True, 0, -1, 2**63, 1e-12, 2999.0, 1e308, float("nan"), float("inf")),
    *(-float("inf"), "x", "\x1b[31m\u202e\n" * 5000, b"", [], {}, [None], {"b": 1}),
    *(np.float32("nan"), np.zeros(3), torch.zeros(2), {"1.weight": torch.zeros(1)}),
    Ready(measured=True, samples=7),
    Speeds(step_s=1e-9, sample_s=0.0, fixed_s=0.0),
    {"1.weight": torch.full((200, 784), 3e38)},
]
#: What fills an update or a gradient whose shape is right.
FILLS = (1e30, 3e38, float("nan"))
#: All calls of the orchestrator whose answers are judged.
CALLS = (
    *("prepare", "measure", "speeds", "bid", "probe", "train", "gradient"),
    *("start", "slot", "finish"),
)
#: Those of which the model is made.
LAST = ("train", "gradient", "finish")


def spoiled(honest: Any, grammar: Sequence[Any] = WRONG) -> Iterator[Any]:
    """Return all answers in place of an honest one."""
    return itertools.chain(grammar, wrong_fields(honest, grammar), wrong_arrays(honest))


def wrong_fields(honest: Any, grammar: Sequence[Any] = WRONG) -> Iterator[Any]:
    """Yield an answer with one field wrong, for each field and value.

    Fields of what is in a field are among them.
    """
    for name in getattr(honest, "__struct_fields__", ()):
        for value in [*grammar, *wrong_fields(getattr(honest, name), grammar)]:
            wrong = msgspec.structs.replace(honest)
            msgspec.structs.force_setattr(wrong, name, value)
            yield wrong


def wrong_arrays(honest: Any) -> Iterator[Any]:
    """Yield an update or a gradient of the right shape, filled with one number."""
    if hasattr(honest, "parameters") or hasattr(honest, "vector"):
        yield from (filled(honest, fill) for fill in FILLS)


def filled(honest: Any, fill: float) -> Any:
    """Return an update or a gradient with one number in all its arrays."""
    if hasattr(honest, "vector"):
        vector = np.full_like(honest.vector, fill)
        return msgspec.structs.replace(honest, vector=vector)
    much = {n: torch.full_like(t, fill) for n, t in honest.parameters.items()}
    return msgspec.structs.replace(honest, parameters=much)


def answer_by(target: object, call: str, answer: Callable[[Any], Any]) -> None:
    """Have a learner, or its service, answer a call by what ``answer`` returns.

    ``answer`` is given the honest answer.
    """
    method = getattr(target, call)

    @functools.wraps(method)  # with the mark of an exposed function
    def answering(*args: Any) -> Any:
        return answer(method(*args))

    setattr(target, call, answering)


class Liar:
    """Draws answers by a seed: all updates and gradients are wrong, others at times.

    Whoever is refused at one call is not asked the next one: a call before the last is
    answered wrongly with a chance of ``lying``.
    """

    def __init__(self, seed: Sequence[int], lying: float) -> None:
        self.told: Counter[str] = Counter()  #: wrong answers of each call
        self._rng, self._lying = np.random.default_rng(seed), lying

    def takes(self, service: object) -> None:
        """Answer all calls of a learner's service."""
        for call in CALLS:
            if hasattr(service, call):
                answer_by(service, call, functools.partial(self._answer, call))

    def _answer(self, call: str, honest: Any) -> Any:
        if call not in LAST and self._rng.random() >= self._lying:
            return honest
        kinds = (WRONG, [*wrong_fields(honest)], [*wrong_arrays(honest)])
        wrong = self._one_of([kind for kind in kinds if kind])
        self.told[call] += 1
        return self._one_of(wrong)

    def _one_of(self, choices: Sequence[Any]) -> Any:
        return choices[int(self._rng.integers(len(choices)))]
