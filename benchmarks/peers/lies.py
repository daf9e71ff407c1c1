"""Wrong answers of a learner: a grammar, and a learner that draws from it.

An answer is replaced by any value that can be sent, or has one field replaced by one,
or has parameters that are finite and huge, or are not finite.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import torch

from melisma.fleets.messages import Ready, Speeds
from melisma.learner.learner import Learner

#: What a call may be answered with, and what a field of an answer may hold.
WRONG: list[Any] = [
    *(None, True, 0, -1, 2**63, 1e-12, 2999.0, 1e308, float("nan"), float("inf")),
    *(-float("inf"), "x", "\x1b[31m\u202e\n" * 5000, b"", [], {}, [None], {"b": 1}),
    *(np.float32("nan"), np.zeros(3), torch.zeros(2), {"1.weight": torch.zeros(1)}),
    Ready(measured=True, samples=7),
    Speeds(step_s=1e-9, sample_s=0.0, fixed_s=0.0),
    {"1.weight": torch.full((200, 784), 3e38)},
]
#: All calls of the orchestrator whose answers count.
CALLS = (
    *("prepare", "measure", "speeds", "bid", "probe", "train", "gradient"),
    *("start", "slot", "finish"),
)


def spoiled(honest: Any, grammar: list[Any]) -> Iterator[Any]:
    """Answers in place of an honest one: anything, and itself with one field wrong."""
    yield from grammar
    if not isinstance(honest, msgspec.Struct):
        return
    for name, value in itertools.product(honest.__struct_fields__, grammar):
        wrong = msgspec.structs.replace(honest)
        msgspec.structs.force_setattr(wrong, name, value)
        yield wrong
    if hasattr(honest, "parameters"):
        for factor in (1e30, 3e38, torch.nan):
            much = {n: t * 0 + factor for n, t in honest.parameters.items()}
            yield msgspec.structs.replace(honest, parameters=much)


def lie_at(learner: Learner, call: str, lie: Callable[[list[Any]], Any | None]) -> None:
    """Make a learner answer a call by what ``lie`` chooses of the wrong answers."""
    method = getattr(learner, call)

    def lying(*args: Any) -> Any:
        return lie([*spoiled(method(*args), WRONG)])

    setattr(learner, call, lying)
