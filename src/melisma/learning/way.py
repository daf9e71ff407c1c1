"""A way of taking part: what a learner trains of the model, and how that travels."""

from collections.abc import Collection
from dataclasses import dataclass

from melisma.learning.codecs import Codec
from melisma.learning.parameters import Parameters
from melisma.learning.submodels.part import Part
from melisma.learning.wire import Packed, Wire

#: Models travel as they are.
PLAINLY = Wire()
#: How a model arrives: by a codec, and what of it.
Downwards = tuple[Codec, Part | None]


@dataclass(frozen=True, slots=True)
class Way:
    """Codecs of both ways, and the part of the model for which they are.

    ``model`` and ``like`` are the whole model's parameters, and ``moving`` the names of
    what is trained of it, here and below.
    """

    wire: Wire = PLAINLY
    part: Part | None = None  #: None: all of it

    @property
    def submodel(self) -> str:
        """The part, as a job writes it; empty where it is all of the model."""
        return "" if self.part is None else self.part.submodel

    @property
    def is_plain(self) -> bool:
        """Whether models travel whole and as they are, both ways."""
        return self.part is None and self.wire.is_plain

    @property
    def downwards(self) -> Downwards:
        """How a model arrives, which may be the same for unlike parts."""
        part = self.part
        cut = None if part is None or part.travels_whole else part
        return self.wire.down, cut

    def down(self, model: Parameters) -> Parameters:
        """Return what of a model travels to a learner."""
        return model if self.part is None else self.part.sent(model)

    def up(self, model: Parameters) -> Parameters:
        """Return what of a model a learner trains and sends back."""
        return model if self.part is None else self.part.kept(model)

    def moving(self, moving: Collection[str]) -> Collection[str]:
        """Return the names of what a learner trains, without buffers."""
        return moving if self.part is None else self.part.moving().keys()

    def size_bytes(self, like: Parameters, moving: Collection[str]) -> tuple[int, int]:
        """Return what travels down, and up."""
        down, _ = self.wire.size_bytes(self.down(like), moving)
        _, up = self.wire.size_bytes(self.up(like), self.moving(moving))
        return down, up

    def share(self, like: Parameters, moving: Collection[str]) -> float:
        """Return what travels both ways, of what two whole models would take."""
        whole = 2 * sum(tensor.nbytes for tensor in like.values())
        return 1.0 if self.is_plain else sum(self.size_bytes(like, moving)) / whole

    def sent(self, model: Parameters, moving: Collection[str], seed: int) -> Packed:
        """Return a model as it travels to learners."""
        return self.wire.sent(self.down(model), moving, seed)

    def arrived(
        self, sent: object, like: Parameters, moving: Collection[str]
    ) -> Parameters:
        """Return it as a learner has it; DataError if this is none."""
        return self.wire.arrived(sent, self.down(like), moving)

    def learnt(
        self, update: object, model: Parameters, moving: Collection[str], seed: int
    ) -> Parameters:
        """Return what a learner made of its part of a model; DataError if it did not.

        Names and shapes have to be the part's own.
        """
        return self.wire.learnt(update, self.up(model), self.moving(moving), seed)
