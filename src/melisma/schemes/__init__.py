"""The allocation schemes: each a pure function from a Problem to an Allocation.

One's own is registered under a name, or found where it lies (``my_schemes:fastest``):

    @scheme("fastest")
    def fastest(problem: Problem) -> Allocation: ...
"""

from collections.abc import Callable
from inspect import unwrap
from typing import TYPE_CHECKING, TypeVar

from melisma.errors import ConfigError, unknown
from melisma.lazy import offer
from melisma.registry import imported, reference, register
from melisma.schemes.checked import Scheme, checked
from melisma.schemes.csa import csa, csa_strict
from melisma.schemes.csa_options import csa_with_options
from melisma.schemes.csa_relaxed import csa_relaxed
from melisma.schemes.csa_sai import csa_sai
from melisma.schemes.csa_testbed import csa_testbed
from melisma.schemes.dab import dab, dab_adaptive
from melisma.schemes.energy import energy_least, energy_most
from melisma.schemes.eta import eta
from melisma.schemes.sync import sync

if TYPE_CHECKING:
    from melisma.schemes import multitask
    from melisma.schemes.participation import TakesPart

AnyScheme = TypeVar("AnyScheme", bound=Scheme)

#: Every scheme by the name that configurations use.
SCHEMES: dict[str, Scheme] = {
    "eta": eta,
    "sync": sync,
    "csa": csa,
    "csa-strict": csa_strict,
    "csa-options": csa_with_options,
    "csa-relaxed": csa_relaxed,
    "csa-sai": csa_sai,
    "csa-testbed": csa_testbed,
    "dab": dab,
    "dab-adaptive": dab_adaptive,
    "energy-least": energy_least,
    "energy-most": energy_most,
}

#: Those of them that choose no option: every learner takes the first.
TAKES_FIRST = frozenset(SCHEMES) - {"csa-options"}

#: What needs no Problem: as much work for everyone, whatever the deadline.
FIXED = {"fedavg": "As much for everyone, `steps` times, whatever the deadline."}

#: Schemes under which learners decide for themselves, each from what it alone knows.
DECENTRALISED = frozenset({"dab", "dab-adaptive"})
#: The paper's own among them: benchmarked once, no margin, no drift.
AS_PRINTED = frozenset({"dab"})

#: Schemes that plan by what is spent, with a given number of steps.
SPENDING = frozenset({"energy-least", "energy-most"})

#: What a job's scheme says where no Problem is allocated at all.
RESERVED = frozenset({"coded", "fog", "async"})


def chooses_steps(name: str) -> bool:
    """Return whether a scheme of one task decides how many steps a learner does.

    >>> chooses_steps("csa"), chooses_steps("dab")
    (True, False)
    """
    given = DECENTRALISED | SPENDING | FIXED.keys()
    return name not in given and name.partition(":")[0] not in RESERVED


def scheme(name: str) -> Callable[[AnyScheme], AnyScheme]:
    """Register the decorated function as a scheme; it stays as it is.

    In SCHEMES its answers are checked. Raises ConfigError for a name that is taken,
    unless by an earlier version of the same function.
    """
    if not isinstance(name, str):
        raise TypeError('a scheme has a name: write @scheme("name")')

    def add(function: AnyScheme) -> AnyScheme:
        if name in RESERVED or name in FIXED:
            raise ConfigError(f"scheme {name!r} is another way to train: take another")
        register(SCHEMES, "scheme", name, checked(name, function))
        return function

    return add


def find(name: str) -> Scheme:
    """Return the scheme of that name, or import it as ``module:function``.

    Raises ConfigError if there is none. The answers of imported ones are checked.
    """
    if name in SCHEMES:
        return SCHEMES[name]
    if ":" in name:
        return checked(name, imported("scheme", name))
    raise unknown("scheme", name, SCHEMES)


def name_of(given: str | Scheme) -> str:
    """Return the name of a scheme; one that is given as a function is registered.

    >>> name_of(csa)
    'csa'
    """
    if isinstance(given, str):
        return given
    for name, known in SCHEMES.items():
        if unwrap(known) is given:
            return name
    name = reference(given)
    SCHEMES[name] = checked(name, given)
    return name


def summary(name: str) -> str:
    """One sentence on what the scheme does."""
    return (find(name).__doc__ or "").partition("\n")[0]


__all__ = [
    "AS_PRINTED",
    "DECENTRALISED",
    "FIXED",
    "RESERVED",
    "SCHEMES",
    "SPENDING",
    "TAKES_FIRST",
    "Scheme",
    "TakesPart",
    "chooses_steps",
    "csa",
    "find",
    "multitask",
    "name_of",
    "scheme",
    "summary",
]

offer(globals(), participation="TakesPart")
