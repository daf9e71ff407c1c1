"""The allocation schemes: each a pure function from a Problem to an Allocation."""

from collections.abc import Callable

from melisma.errors import unknown
from melisma.schemes.csa import csa, csa_strict
from melisma.schemes.csa_relaxed import csa_relaxed
from melisma.schemes.csa_sai import csa_sai
from melisma.schemes.csa_testbed import csa_testbed
from melisma.schemes.dab import dab
from melisma.schemes.eta import eta
from melisma.schemes.sync import sync
from melisma.system.problem import Allocation, Problem

Scheme = Callable[[Problem], Allocation]

#: Every scheme by the name that configurations use.
SCHEMES: dict[str, Scheme] = {
    "eta": eta,
    "sync": sync,
    "csa": csa,
    "csa-strict": csa_strict,
    "csa-relaxed": csa_relaxed,
    "csa-sai": csa_sai,
    "csa-testbed": csa_testbed,
    "dab": dab,
}


#: Schemes under which learners decide for themselves, each from what it alone knows.
DECENTRALISED = frozenset({"dab"})


def find(name: str) -> Scheme:
    """Return the scheme of that name; raises ConfigError if there is none."""
    if name not in SCHEMES:
        raise unknown("scheme", name, SCHEMES)
    return SCHEMES[name]


def summary(name: str) -> str:
    """One sentence on what the scheme does."""
    return (find(name).__doc__ or "").partition("\n")[0]


__all__ = ["DECENTRALISED", "SCHEMES", "Scheme", "find", "summary"]
