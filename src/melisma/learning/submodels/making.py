"""Parts of a model, made of what a job names and tried on a few of its samples."""

import copy
from collections.abc import Iterable

from torch import nn

from melisma.learning.losses import loss_of, transform_of
from melisma.learning.samples import Samples
from melisma.learning.settings import Training
from melisma.learning.submodels import submodel_of
from melisma.learning.submodels.cost import cost_of, whole_of
from melisma.learning.submodels.part import Part
from melisma.learning.submodels.submodel import Example

#: Samples by which a model is tried; two of them are enough for batch norm.
TRIED = 4


class Made:
    """Parts of one model, by the submodels that a job names, and what they compute.

    Of samples only the shape matters: an orchestrator and a learner make the same part
    of the same model, each of its own. Raises ConfigError where there is no such part.
    """

    def __init__(
        self,
        written: Iterable[str],
        model: nn.Module,
        samples: Samples,
        training: Training,
    ) -> None:
        self.parts: dict[str, Part] = {}
        #: Share of C² that is left, by operations.
        self.steps: dict[Part | None, float] = {None: 1.0}
        if not (names := sorted(set(written))):
            return
        few = transform_of(training)(samples[:TRIED])
        example = Example(loss_of(training), few)
        device = next(model.parameters()).device
        model = copy.deepcopy(model).cpu()
        whole = cost_of(whole_of(model), model, example)
        for name in names:
            part = submodel_of(name).part(model, example)
            self.steps[part] = cost_of(part, model, example).step(whole)
            part.model.to(device)
            self.parts[name] = part
