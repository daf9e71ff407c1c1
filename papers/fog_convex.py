"""Fog with a convex error: every table and figure of ``fog``, with γ/√(G + 1) beside f.

melisma papers run fog_convex --figure III
"""

from dataclasses import replace
from typing import Any

from .fog import PAPER as LINEAR
from .fog_runs import FogStudy, MediaStudy
from .kit import Exhibit

#: γ at which the error of a device that trains on nothing in a slot costs as much as
#: discarding five samples in the first.
GAMMA = 10.0


def convex(exhibit: Exhibit[Any]) -> Exhibit[Any]:
    """The same exhibit, its runs with a convex error."""

    def changed(study: Any) -> Any:
        return None if study is None else replace(study, gamma=GAMMA)

    return replace(
        exhibit,
        quick=changed(exhibit.quick),
        full=changed(exhibit.full),
        embedded=changed(exhibit.embedded),
        file=f"{exhibit.file}_convex",
        caption=f"{exhibit.caption} Convex error: γ = {{gamma:g}}.",
    )


PAPER = replace(
    LINEAR,
    key="fog_convex",
    title="Fog: network-aware learning with a convex error",
    differences=(
        "The error of a device in a slot is γ/√(G + 1) with γ = 10, beside f/√t for "
        "what is discarded; the paper's figures do not say which of the two they have, "
        "and γ is not printed. Claims are those of the linear error, which the paper "
        "makes without saying which.",
        *LINEAR.differences,
    ),
    main=(),
    exhibits=tuple(
        convex(exhibit)
        for exhibit in LINEAR.exhibits
        if isinstance(exhibit.quick, FogStudy | MediaStudy)
    ),
)
