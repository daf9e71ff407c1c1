"""All checks one after the other; none of them can spoil the others."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from melisma.doctor import machine, training
from melisma.doctor.finding import Finding, trouble
from melisma.registry import where_failed
from melisma.rpc.address import DEFAULT_PORT

Check = Callable[[], Iterator[Finding]]


def examine(
    address: str | None = None,
    *,
    token: str | None = None,
    job: Path | None = None,
    runs: Path = Path("runs"),
    port: int = DEFAULT_PORT,
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


def isolated(name: str, check: Check) -> Iterator[Finding]:
    """Yield a check's findings; what it did not foresee is one of them."""
    try:
        yield from check()
    except ImportError as error:
        missing = error.name or str(error)
        says = f"was not looked at, for {missing} cannot be imported"
        yield trouble(name, says, "see packages above")
    except Exception as error:  # the edge: the other checks go on
        yield trouble(
            name, f"could not be looked at: {where_failed(error)}", "report it as a bug"
        )


def _orchestrator(address: str, token: str | None) -> Iterator[Finding]:
    from melisma.doctor.orchestrator import orchestrator

    yield from orchestrator(address, token)
