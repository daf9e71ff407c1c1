"""Error feedback: what a codec left out is added to the next change.

    x = change + residual,   sent = C(x),   residual = x − sent

so that everything is sent in the end, and biased codecs converge as unbiased ones do.
A residual is a change of the model, and so of no codec: a sender that goes over to
another one adds it there, and one that goes over to another part of the model what is
left in that; the rest is owed until a part travels that has it. What a codec starts
from is its own, and of the part that it is used for.

Paper: S. P. Karimireddy et al., "Error Feedback Fixes SignSGD and other Gradient
Compression Schemes", arXiv:1901.09847.
"""

from melisma.errors import DataError
from melisma.learning.codecs.codec import Codec, Encoded, shapes_of, values_of
from melisma.learning.parameters import Parameters, zeros_like
from melisma.learning.submodels.part import Part

#: Before the name of a parameter in a checkpoint.
RESIDUAL, START = "codec/residual/", "codec/start/"


class Feedback:
    """Encodes one sender's changes, from cycle to cycle, by the codec it has then."""

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        self._residual = Parameters()
        self._starts: dict[str, Parameters] = {}  # by codec and part
        self._before = self._residual, self._starts

    def encode(
        self, change: Parameters, seed: int, part: Part | None = None
    ) -> Encoded:
        """Return the change and what is left of those before, as they travel.

        It is of a part, or of the whole model. An update that did not arrive is lost,
        unless `undo` follows.
        """
        self._before = self._residual, self._starts
        shapes, total = shapes_of(change), self._total(change, part)
        used = str(self.codec) if part is None else f"{self.codec} {part.submodel}"
        damping = self.codec.damping(values_of(shapes))
        scaled = {n: t * damping if n in shapes else t for n, t in total.items()}
        encoded = self.codec.encode(
            scaled if damping != 1 else total, seed, self._starts.get(used)
        )
        sent = self.codec.decode(encoded, change)
        self._owe({n: total[n].cpu() - sent[n] for n in shapes}, part)
        start = self.codec.next_start(encoded, change)
        self._starts = self._starts | {used: start}
        return encoded

    def settle(self, change: Parameters, part: Part | None = None) -> Parameters:
        """Return the change and what is left of those before: nothing is, of it, then.

        For a codec that leaves nothing out.
        """
        self._before = self._residual, self._starts
        total = self._total(change, part)
        if part is None:
            self._residual = Parameters()
        else:
            self._owe(zeros_like(part.owned(self._residual)), part)
        return total

    def undo(self) -> None:
        """Take the last change back: it is owed as if it had never been sent."""
        self._residual, self._starts = self._before

    def _owe(self, left: Parameters, part: Part | None) -> None:
        """Keep what is left of a change; what others left elsewhere stays."""
        self._residual = left if part is None else part.renewed(left, self._residual)

    def _total(self, change: Parameters, part: Part | None) -> Parameters:
        left = self._residual if part is None else part.owned(self._residual)
        return {n: t + left[n].to(t) if n in left else t for n, t in change.items()}

    def state(self) -> Parameters:
        """Return what is kept, for a checkpoint."""
        kept = {RESIDUAL + name: t.clone() for name, t in self._residual.items()}
        for codec, start in self._starts.items():
            kept |= {f"{START}{codec}/{name}": t.clone() for name, t in start.items()}
        return kept

    def restore(self, saved: Parameters, like: Parameters) -> None:
        """Go on with what a checkpoint has; DataError if it is of another model."""
        residual = _named(RESIDUAL, saved)
        if not shapes_of(residual).items() <= shapes_of(like).items():
            raise DataError("the checkpoint has residuals of another model")
        self._residual, self._starts = residual, {}
        for key, start in _named(START, saved).items():
            codec, _, name = key.partition("/")
            self._starts.setdefault(codec, {})[name] = start


def _named(prefix: str, saved: Parameters) -> Parameters:
    return {
        name.removeprefix(prefix): tensor.clone()
        for name, tensor in saved.items()
        if name.startswith(prefix)
    }
