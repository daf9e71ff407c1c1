"""Channels that layers share: outputs of one layer, and inputs of all that take them.

Where tensors are added, their channels are the same, so that they are kept or cut
together. An axis of a tensor is *pieces* of channels, one after another: several where
tensors were joined, and each channel a block of entries where an image was flattened.
An axis without pieces stays whole.
"""

import math

import torch
from torch import Tensor

#: Channels, and how many entries each of them is.
Piece = tuple["Channels", int]
Pieces = tuple[Piece, ...] | None


class Channels:
    """Channels of one width; joined ones are the same."""

    def __init__(self, size: int, *, whole: bool = False) -> None:
        self.size = size
        self._unit, self._whole = 1, whole
        self._same: Channels | None = None

    def root(self) -> "Channels":
        """Return those that stand for all that are joined."""
        return self._same.root() if self._same else self

    def join(self, other: "Channels") -> None:
        """Keep the same of both from now on."""
        mine, theirs = self.root(), other.root()
        if mine is not theirs:
            theirs._unit = math.lcm(mine._unit, theirs._unit)
            theirs._whole |= mine._whole
            mine._same = theirs

    def keep_whole(self) -> None:
        """Cut nothing from them."""
        self.root()._whole = True

    def keep_blocks(self, size: int) -> None:
        """Keep blocks of so many or none of them: heads, groups."""
        root = self.root()
        root._unit = math.lcm(root._unit, size)

    def kept(self, share: float) -> int:
        """Return how many are kept: the first so many, one block at least."""
        root = self.root()
        if root._whole or self.size % root._unit:
            return self.size
        blocks = self.size // root._unit
        # In binary 0.1·30 is just above 3, the number that was meant.
        return root._unit * min(blocks, max(1, math.ceil(share * blocks - 1e-9)))


def keep_whole(pieces: Pieces) -> None:
    """Cut nothing from an axis."""
    for channels, _ in pieces or ():
        channels.keep_whole()


def joined(one: Pieces, other: Pieces) -> Pieces:
    """Return an axis that is both: cut as one where they are alike, else whole."""
    if one is None or other is None or _widths(one) != _widths(other):
        keep_whole(one)
        keep_whole(other)
        return None
    for (mine, _), (theirs, _) in zip(one, other, strict=True):
        mine.join(theirs)
    return one


def in_blocks(pieces: Pieces, size: int) -> Pieces:
    """Return an axis on which every entry has become so many."""
    return pieces and tuple((channels, block * size) for channels, block in pieces)


def places(pieces: Pieces, size: int, share: float) -> Tensor:
    """Return the places along an axis of so many entries that are kept."""
    if pieces is None:
        return torch.arange(size)
    parts, first = [], 0
    for channels, block in pieces:
        parts.append(torch.arange(first, first + channels.kept(share) * block))
        first += channels.size * block
    assert first == size, (first, size)
    return torch.cat(parts)


def _widths(pieces: tuple[Piece, ...]) -> list[tuple[int, int]]:
    return [(channels.size, block) for channels, block in pieces]
