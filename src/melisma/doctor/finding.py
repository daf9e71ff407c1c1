"""What a check found: one line, and what to do about it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    NOTE = "note"  #: training works, and would be better otherwise
    PROBLEM = "problem"  #: training does not work


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of what was found."""

    check: str  #: what was looked at
    level: Level
    says: str
    fix: str = ""  #: what to change; none where all is well
    facts: dict[str, Any] = field(default_factory=dict)  #: the numbers, SI


def ok(check: str, says: str, **facts: Any) -> Finding:
    """Return a finding that needs nothing to be done."""
    return Finding(check=check, level=Level.OK, says=says, facts=facts)


def note(check: str, says: str, fix: str, **facts: Any) -> Finding:
    """Return a finding that makes training worse, but does not stop it."""
    return Finding(check=check, level=Level.NOTE, says=says, fix=fix, facts=facts)


def trouble(check: str, says: str, fix: str, **facts: Any) -> Finding:
    """Return a finding that stops training."""
    return Finding(check=check, level=Level.PROBLEM, says=says, fix=fix, facts=facts)


def verdict(findings: Sequence[Finding]) -> str:
    """Return all findings in a sentence.

    >>> verdict([ok("cores", "2 cores")])
    'Nothing to change.'
    """
    problems = sum(f.level == Level.PROBLEM for f in findings)
    notes = sum(f.level == Level.NOTE for f in findings)
    told = f"{notes} {'note' if notes == 1 else 'notes'}"
    if problems:
        many = "problem stops" if problems == 1 else "problems stop"
        return f"{problems} {many} training here{f', {told}' if notes else ''}."
    return (
        f"{told}, and nothing that stops training." if notes else "Nothing to change."
    )
