"""Optimisers of local training: torch's by name, for one learner or for many at once.

For many, torch's own optimiser works on stacks with a row for each learner. Its steps
go value by value, so every row moves as it would alone; a learner that is done leaves
with the last rows, and the state is cut to those that go on.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from melisma.errors import ConfigError, unknown
from melisma.learning.losses import OwnTraining
from melisma.learning.parameters import Model, Parameters, trained
from melisma.learning.settings import OWN, Training

#: Optimisers of torch that move each value by its own gradient and state alone.
BY_VALUE = frozenset(
    (
        *("SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam"),
        *("Adagrad", "Adadelta", "RMSprop", "Rprop", "ASGD"),
    )
)

#: torch's word for optimisers whose every number lies on the device.
CAPTURABLE = "capturable"
#: Values that an optimiser moves by one call of each kernel, at most.
TOGETHER = 1 << 20


def _optimisers() -> dict[str, type[torch.optim.Optimizer]]:
    found: Mapping[str, Any] = vars(torch.optim)
    return {
        name: kind
        for name, kind in found.items()
        if inspect.isclass(kind)
        and issubclass(kind, torch.optim.Optimizer)
        and name not in ("Optimizer", "LBFGS", "SparseAdam")
    }


#: LBFGS asks for the loss again and again; SparseAdam is for sparse gradients.
OPTIMISERS = _optimisers()


def named(optimiser: str) -> str:
    """Return an optimiser's name as torch writes it; ConfigError if there is none."""
    for name in OPTIMISERS:
        if name.lower() == optimiser.lower():
            return name
    raise unknown("optimiser", optimiser, OPTIMISERS)


def optimiser_for(
    values: Iterable[Tensor], training: Training
) -> torch.optim.Optimizer:
    """Return an optimiser of these tensors; ConfigError if its arguments are wrong."""
    values = list(values)
    kind: Any = _kind(training)
    arguments = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in training.arguments.items()
    }
    if training.optimiser != OWN and _goes_together(kind, values, arguments):
        arguments["foreach"] = True
    try:
        made: torch.optim.Optimizer = kind(values, lr=training.rate, **arguments)
    except (TypeError, ValueError, IndexError) as error:
        raise ConfigError(f"optimiser {training.optimiser!r}: {error}") from error
    return made


def _kind(training: Training) -> Callable[..., torch.optim.Optimizer]:
    """Return what makes the optimiser; ConfigError if there is none of its name."""
    own = training.own_optimiser if isinstance(training, OwnTraining) else None
    if training.optimiser == OWN and own:
        return own
    return OPTIMISERS[named(training.optimiser)]


def _goes_together(
    kind: Any,
    values: Sequence[Tensor],
    arguments: Mapping[str, object],
) -> bool:
    """Whether all tensors are moved by one call of each kernel; the result is the same.

    Twice as fast where they are small. Of large ones it would hold copies in memory.
    """
    return (
        _has(kind, "foreach")
        and not arguments.keys() & {"foreach", "fused", "differentiable"}
        and sum(value.numel() for value in values) <= TOGETHER
    )


def _counted_there(training: Training) -> Training:
    """Have the number of steps on the device too, where an optimiser can."""
    if not _has(_kind(training), CAPTURABLE):
        return training
    return replace(training, arguments={CAPTURABLE: True, **training.arguments})


@cache
def _has(kind: Any, argument: str) -> bool:
    return argument in inspect.signature(kind).parameters


def check_optimiser(training: Training, model: Model | None = None) -> None:
    """Raise ConfigError unless there is such an optimiser, with such arguments.

    Of ``model``, if that is given: some take matrices alone.
    """
    optimiser_for(trained(model).values() if model else [torch.zeros(1, 1)], training)


def goes_by_value(training: Training) -> bool:
    """Return whether many learners' values may be moved together."""
    return training.optimiser != OWN and named(training.optimiser) in BY_VALUE


class Pull:
    """What is added to gradients: μ·(w − w⁰), w⁰ being where training began, and h.

    The first is the gradient of μ/2·‖w − w⁰‖², which keeps what learners do apart from
    leading far from the model that they share (FedProx). The second is given
    (SCAFFOLD, in `algorithms.controls`).

    Paper: T. Li et al., "Federated Optimization in Heterogeneous Networks",
    arXiv:1812.06127.
    """

    def __init__(
        self,
        start: Iterable[Tensor],
        proximal: float,
        correction: Sequence[Tensor] | None = None,
    ) -> None:
        self._proximal, self._correction = proximal, correction
        self._start = [value.detach().clone() for value in start] if proximal else []

    def add(self, values: Iterable[Tensor], gradients: Iterable[Tensor | None]) -> None:
        """Add it to gradients, in place: of one learner, or of the first of many."""
        gradients = list(gradients)
        if self._proximal:
            for value, gradient, start in zip(
                values, gradients, self._start, strict=True
            ):
                if gradient is not None:
                    away = value.detach() - _first(start, value)
                    gradient.add_(away, alpha=self._proximal)
        for correction, gradient in zip(
            self._correction or (), gradients, strict=self._correction is not None
        ):
            if gradient is not None:
                gradient.add_(_first(correction, gradient))


def _first(rows: Tensor, some: Tensor) -> Tensor:
    """Return the rows of those who go on; all where it is one learner's."""
    return rows if rows.shape == some.shape else rows[: len(some)]


class StackOptimiser:
    """Moves the first rows of a stack, fewer and fewer, as one optimiser each would."""

    def __init__(
        self, stack: Parameters, training: Training, corrections: Parameters | None
    ) -> None:
        self._stack, self._training, self._rows = stack, training, -1
        self._values: list[Tensor] = []
        self._pull = Pull(
            stack.values(),
            training.proximal,
            [corrections[name] for name in stack] if corrections else None,
        )
        self._plain = training.is_plain_sgd and not corrections
        if any(value.is_cuda for value in stack.values()):
            self._training = _counted_there(training)
        self._optimiser: torch.optim.Optimizer | None = None

    @property
    def on_device(self) -> bool:
        """Whether all that a step changes lies on the device, its number included."""
        by_number = named(self._training.optimiser) != "SGD"
        return not by_number or bool(self._training.arguments.get(CAPTURABLE))

    def step(self, rows: int, gradients: Parameters) -> None:
        """Move the first ``rows`` learners along their gradients."""
        if self._plain:
            for name, gradient in gradients.items():
                self._stack[name][:rows].sub_(gradient, alpha=self._training.rate)
            return
        if rows != self._rows:
            self._cut(rows)
        self._pull.add(self._values, gradients.values())
        if self._training.clip is not None:
            gradients = _clipped(gradients, self._training.clip)
        for value, gradient in zip(self._values, gradients.values(), strict=True):
            value.grad = gradient
        if self._optimiser:
            self._optimiser.step()

    def _cut(self, rows: int) -> None:
        """Go on with fewer rows, and with their part of the state."""
        values = [value[:rows] for value in self._stack.values()]
        optimiser = optimiser_for(values, self._training)
        for before, value in zip(self._values, values, strict=False):
            state = self._optimiser.state[before] if self._optimiser else {}
            optimiser.state[value] = {
                name: part[:rows] if _is_like(part, before) else part
                for name, part in state.items()
            }
        self._values, self._optimiser, self._rows = values, optimiser, rows


def _is_like(part: object, value: Tensor) -> bool:
    return isinstance(part, Tensor) and part.shape == value.shape


def _clipped(gradients: Parameters, most: float) -> Parameters:
    """Scale each learner's gradient down to a norm, as ``clip_grad_norm_`` does."""
    norms = [torch.linalg.vector_norm(g.flatten(1), dim=1) for g in gradients.values()]
    total = torch.linalg.vector_norm(torch.stack(norms), dim=0)
    scale = (most / (total + 1e-6)).clamp(max=1.0)
    return {
        name: g * scale.view(-1, *[1] * (g.ndim - 1)) for name, g in gradients.items()
    }
