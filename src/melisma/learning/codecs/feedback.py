"""Error feedback: what a codec left out is added to the next change.

    x = change + residual,   sent = C(x),   residual = x − sent

so that everything is sent in the end, and biased codecs converge as unbiased ones do.

Paper: S. P. Karimireddy et al., "Error Feedback Fixes SignSGD and other Gradient
Compression Schemes", arXiv:1901.09847.
"""

from melisma.errors import DataError
from melisma.learning.codecs.codec import Codec, Encoded, shapes_of, values_of
from melisma.learning.parameters import Parameters

#: Before the name of a parameter in a checkpoint.
RESIDUAL, START = "codec/residual/", "codec/start/"


class Feedback:
    """Encodes one sender's changes, from cycle to cycle."""

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        self._residual, self._start = Parameters(), Parameters()
        self._before = self._residual, self._start

    def encode(self, change: Parameters, seed: int) -> Encoded:
        """Return the change and what is left of those before, as they travel.

        An update that did not arrive is lost, unless `undo` follows.
        """
        self._before = self._residual, self._start
        shapes = shapes_of(change)
        total = dict(change)
        for name in shapes:
            if name in self._residual:
                total[name] = change[name] + self._residual[name].to(change[name])
        damping = self.codec.damping(values_of(shapes))
        scaled = {n: t * damping if n in shapes else t for n, t in total.items()}
        encoded = self.codec.encode(
            scaled if damping != 1 else total, seed, self._start
        )
        sent = self.codec.decode(encoded, change)
        self._residual = {n: total[n].cpu() - sent[n] for n in shapes}
        self._start = self.codec.next_start(encoded, change)
        return encoded

    def undo(self) -> None:
        """Take the last change back: it is owed as if it had never been sent."""
        self._residual, self._start = self._before

    def state(self) -> Parameters:
        """Return what is kept, for a checkpoint."""
        kept = {RESIDUAL + name: t.clone() for name, t in self._residual.items()}
        return kept | {START + name: t.clone() for name, t in self._start.items()}

    def restore(self, saved: Parameters, like: Parameters) -> None:
        """Go on with what a checkpoint has; DataError if it is of another model."""
        residual = _named(RESIDUAL, saved)
        if residual and shapes_of(residual) != shapes_of(like):
            raise DataError("the checkpoint has residuals of another model")
        self._residual, self._start = residual, _named(START, saved)


def _named(prefix: str, saved: Parameters) -> Parameters:
    return {
        name.removeprefix(prefix): tensor.clone()
        for name, tensor in saved.items()
        if name.startswith(prefix)
    }
