"""Submodels: the part of a model that a slow device trains, in place of none.

    width 0.5     the first half of every layer's channels (HeteroFL)
    freeze 0.5    all but the first half of the layers, which stay as they came
    rank 4        the first four ranks of adapters (LoRA)

A submodel is a value, made of what a job says. It makes a `Part` of any model: a module
that really computes less, and where its tensors lie in the whole model's.
"""

from melisma.errors import unknown
from melisma.learning.submodels.freeze import Freeze
from melisma.learning.submodels.part import Part
from melisma.learning.submodels.rank import Rank
from melisma.learning.submodels.submodel import Example, Submodel
from melisma.learning.submodels.width import Width

__all__ = [
    "SUBMODELS",
    "Example",
    "Freeze",
    "Part",
    "Rank",
    "Submodel",
    "Width",
    "submodel_of",
]

#: By the name with which a job begins.
SUBMODELS: dict[str, type[Submodel]] = {"width": Width, "freeze": Freeze, "rank": Rank}


def submodel_of(written: str) -> Submodel:
    """Return the submodel that a job names; ConfigError if there is none.

    >>> submodel_of("width 0.5")
    Width(share=0.5)
    """
    name, _, setting = written.strip().partition(" ")
    if name not in SUBMODELS:
        raise unknown("submodel", name, (kind.example for kind in SUBMODELS.values()))
    return SUBMODELS[name].of(setting.strip())
