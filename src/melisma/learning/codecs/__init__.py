"""Codecs: how a model's change is made smaller before it travels.

    fp32          4 bytes a value; exact for a model in float32
    fp16, bf16    2 bytes a value, to nearest
    int8, int4    1 or ½ byte a value and a scale a block; stochastic rounding, unbiased
    top-k 1 %     the largest values and where they are; biased: for error feedback
    random-k 1 %  values at random places, scaled up; unbiased, of much variance
    powersgd 4    matrices as products of rank 4; biased: for error feedback

A codec is a value, made of what a job says. It encodes all floating-point tensors as
one vector, in the order of their names; integers and booleans travel as they are. How
many bytes that gives follows from the shapes, before anything is trained.
"""

from melisma.errors import unknown
from melisma.learning.codecs.blocks import Int4, Int8
from melisma.learning.codecs.codec import Codec, Encoded
from melisma.learning.codecs.feedback import Feedback
from melisma.learning.codecs.floats import Bf16, Fp16, Fp32
from melisma.learning.codecs.powersgd import PowerSGD
from melisma.learning.codecs.sparse import RandomK, TopK

__all__ = [
    "CODECS",
    "Bf16",
    "Codec",
    "Encoded",
    "Feedback",
    "Fp16",
    "Fp32",
    "Int4",
    "Int8",
    "PowerSGD",
    "RandomK",
    "TopK",
    "codec_of",
]

#: By the name with which a job begins.
CODECS: dict[str, type[Codec]] = {
    "fp32": Fp32,
    "fp16": Fp16,
    "bf16": Bf16,
    "int8": Int8,
    "int4": Int4,
    "top-k": TopK,
    "random-k": RandomK,
    "powersgd": PowerSGD,
}


def codec_of(written: str) -> Codec:
    """Return the codec that a job names; ConfigError if there is none.

    >>> codec_of("top-k 1 %")
    TopK(share=0.01)
    >>> print(codec_of("powersgd 4"))
    powersgd 4
    """
    name, _, setting = written.strip().partition(" ")
    if name not in CODECS:
        raise unknown("codec", name, (kind.example for kind in CODECS.values()))
    return CODECS[name].of(setting.strip())
