"""Everything this package raises on purpose.

MelismaError
├── ConfigError          a file, flag or value does not describe a runnable system
├── DataError            a data set is missing, damaged or of another shape
├── InfeasibleError      no allocation meets the constraints
│   └── NotDecodable     the answers received do not determine the gradient (`coding`)
├── LostError            the process or node that did a trial ended, each time
├── RpcError
│   ├── AccessError      the far side refuses this peer, or this call
│   │   └── UnverifiedError  who answers has not proved to be the server
│   ├── CallTimeout      no answer within the time the caller gave
│   ├── RemoteError      the call arrived, and the far side raised
│   └── TransportError   the message did not arrive, or may not have
│       └── ProtocolError    the far side broke the protocol
├── SolverError          a numerical solver stopped without an answer
└── TrainingError        a cycle ended without an update that can be merged

Each message says what is wrong, with its values and units, and what would fix it.
"""

import difflib
from collections.abc import Iterable


class MelismaError(Exception):
    """Base of everything this package raises on purpose."""


class ConfigError(MelismaError, ValueError):
    """A file, flag or value does not describe a runnable system."""


class DataError(MelismaError):
    """A data set is missing, damaged or of another shape than expected."""


class InfeasibleError(MelismaError):
    """No allocation meets the constraints."""


class LostError(MelismaError):
    """The process or node that did a trial ended, each time that it was tried."""


class RpcError(MelismaError):
    """A call to another process did not bring back its answer."""


class AccessError(RpcError):
    """The far side refuses this peer, or refuses it this function."""


class UnverifiedError(AccessError):
    """Who answers has not proved to be the server: another certificate, or none."""


class CallTimeout(RpcError, TimeoutError):
    """No answer came within the time the caller gave; the far side is told."""


class RemoteError(RpcError):
    """The far side raised: its exception's type, message and traceback, as text."""

    def __init__(self, type: str, message: str, traceback: str = "") -> None:
        super().__init__(f"{type}: {message}" if message else type)
        self.type = type
        self.message = message
        self.traceback = traceback


class TransportError(RpcError):
    """The message did not arrive, or it is not known whether it did."""


class ProtocolError(TransportError):
    """The far side broke the protocol: its session is over, or its answer useless."""


class SolverError(MelismaError):
    """A numerical solver stopped without an answer."""


class TrainingError(MelismaError):
    """A cycle ended without an update that can be merged."""


def readable(text: str, most: int = 200) -> str:
    """Return text of others as one short line: no control, escape or bidi characters.

    >>> readable("\\x1b[31mno\\nway")
    ' [31mno way'
    >>> readable("x" * 1000, most=5)
    'xxxx…'
    """
    line = "".join(c if c.isprintable() else " " for c in text[: most + 1])
    return line if len(line) <= most else line[: most - 1] + "…"


def unknown(what: str, name: str, known: Iterable[str]) -> ConfigError:
    """Return the error for a name that is not known, with the nearest and all that are.

    >>> print(unknown("scheme", "cas", ["csa", "eta"]))
    unknown scheme 'cas': did you mean 'csa'? Known: csa, eta
    """
    names = sorted(known)
    lower = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower(), lower, n=1)
    guess = f"did you mean '{lower[near[0]]}'? " if near else ""
    return ConfigError(f"unknown {what} '{name}': {guess}Known: {', '.join(names)}")
