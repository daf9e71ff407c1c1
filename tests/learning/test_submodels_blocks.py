"""Blocks of a model, held against masks of every entry."""

import pytest
import torch
from tests.learning.test_submodels_coverage import drawn, part

from melisma.learning.submodels.blocks import blocks_of


@pytest.mark.parametrize("seed", range(20))
def test_a_block_is_what_the_same_parts_train(seed: int) -> None:
    like = drawn(0)
    parts = [None, *(part(10 * seed + k) for k in range(seed % 4 + 1))]
    masks = [
        {n: torch.ones_like(t, dtype=torch.bool) for n, t in like.items()}
        if one is None
        else one.mask(like)
        for one in parts
    ]
    entries = {
        tuple(bool(mask[n].flatten()[i]) for mask in masks)
        for n, t in like.items()
        for i in range(t.numel())
    }
    as_sets = [{m for m, has in enumerate(entry) if has} for entry in entries]
    least = [one for one in as_sets if not any(other < one for other in as_sets)]
    found = blocks_of(parts, like)
    assert sorted(map(sorted, least)) == sorted(
        [m for m, has in enumerate(column) if has] for column in found.T.tolist()
    )
    # So who covers these covers every entry.
    assert found[0].all()


def test_without_parts_there_is_one_block() -> None:
    assert blocks_of([None, None], drawn(0)).tolist() == [[True], [True]]
