"""All checks one after the other; none of them can spoil the others."""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from melisma.doctor import machine, training
from melisma.doctor.finding import Finding, trouble
from melisma.registry import where_failed

#: Longest that a check may take; torch alone takes ten seconds on a slow card.
LIMIT_S = 60.0

Check = Callable[[], Iterator[Finding]]


def examine(
    address: str | None = None,
    *,
    token: str | None = None,
    job: Path | None = None,
    runs: Path = Path("runs"),
    port: int = 8765,
) -> Iterator[Finding]:
    """Yield what is found, each as soon as it is known; takes some seconds.

    With an ``address`` or join string, also whether the orchestrator there can be
    reached; with a ``job``, whether what it trains can be made here.
    """
    checks: dict[str, Check] = {
        "version": machine.version,
        "packages": machine.packages,
        "clock": machine.clock,
        "cores": machine.cores,
        "memory": machine.memory,
        "disk": partial(machine.disk, runs),
        "port": partial(machine.port, port),
        "torch": training.torch,
        "data": training.data,
    }
    if job is not None:
        checks["job"] = partial(training.job, job)
    if address is not None:
        checks["orchestrator"] = partial(_orchestrator, address, token)
    for name, check in checks.items():
        yield from isolated(name, check)


def isolated(name: str, check: Check, limit_s: float = LIMIT_S) -> list[Finding]:
    """Return a check's findings; what it did not foresee is one of them.

    So is that it takes too long: a driver or a server may hang, and the thread with it.
    """
    found: list[Finding] = []
    thread = threading.Thread(target=_carry_out, args=(name, check, found), daemon=True)
    thread.start()
    thread.join(limit_s)
    if not thread.is_alive():
        return found
    says = f"not done within {limit_s:.0f} s"
    return [*found, trouble(name, says, "try again; if it hangs, report it as a bug")]


def _carry_out(name: str, check: Check, found: list[Finding]) -> None:
    """Add what a check finds."""
    try:
        for finding in check():
            found.append(finding)
    except ImportError as error:
        missing = error.name or str(error)
        says = f"was not looked at, for {missing} cannot be imported"
        found.append(trouble(name, says, "see packages above"))
    except Exception as error:  # the edge: the other checks go on
        says = f"could not be looked at: {where_failed(error)}"
        found.append(trouble(name, says, "report it as a bug"))


def _orchestrator(address: str, token: str | None) -> Iterator[Finding]:
    from melisma.doctor.orchestrator import orchestrator

    yield from orchestrator(address, token)
