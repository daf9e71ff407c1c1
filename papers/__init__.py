"""The papers' figures and tables, regenerated and held against the printed numbers.

Installed as ``melisma_papers``; ``melisma papers`` runs it. README.md says how a paper
is added.
"""

from importlib import import_module

from melisma.errors import unknown

from .kit import Paper

#: Modules that have a ``PAPER``, by the key that the command takes.
KEYS = (
    "axon",
    "csa",
    "dab",
    "med",
    "tsdcfl",
    "fog",
    "peers",
)


def find(key: str) -> Paper:
    """Return the paper of that key; raises ConfigError if there is none."""
    if key not in KEYS:
        raise unknown("paper", key, KEYS)
    paper: Paper = import_module(f".{key}", __name__).PAPER
    return paper


__all__ = ["KEYS", "Paper", "find"]
