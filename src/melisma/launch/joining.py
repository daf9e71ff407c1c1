"""Being a learner: connect to an orchestrator, and train what it orders."""

import logging
import math
import socket
import zlib
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from melisma import rpc
from melisma.errors import ConfigError
from melisma.jobs.files import load_states
from melisma.jobs.schema import StatesFile, probabilities
from melisma.learner import energy
from melisma.learner.background import BackgroundLoad, State
from melisma.learner.bundles import Ask, TrustedBundles
from melisma.learner.fog import FogLearner
from melisma.learner.kept import Benchmarks
from melisma.learner.service import FogService
from melisma.learning.data import Dataset, load_own
from melisma.learning.settings import Precision
from melisma.learning.task import TASKS
from melisma.learning.training import use_threads
from melisma.registry import imported
from melisma.rpc.address import Address
from melisma.units import BytesPerSecond, Quantity, SamplesPerSecond

#: Timeout of the first connection to the orchestrator.
CONNECT_S = 30.0


def join(
    address: str,
    *,
    name: str | None = None,
    token: str | None = None,
    data: Path | str | None = None,
    allow: Sequence[str] = (),
    trust: Sequence[str] = (),
    rate: str | None = None,
    bandwidth: str | None = None,
    states: Path | None = None,
    listen: str | None = None,
    share_data: bool = False,
    sensors: bool = False,
    target: str | None = None,
    features: Sequence[str] | None = None,
    device: str = "cpu",
    precision: str = Precision.FP32,
    threads: int = 1,
    quiet: bool = True,
    fresh: bool = True,
    ask: Ask | None = None,
    joined: Callable[[str, rpc.Connection], None] = lambda name, connection: None,
) -> None:
    """Be a learner of the orchestrator at ``address``, until Ctrl-C.

    Most options are those of `mel.join`. Another bundle than those that are trusted is
    shown to the owner by ``ask``, which returns whether to trust it. ``rate`` and
    ``bandwidth`` throttle this learner, as does a file of ``states``. With ``sensors``
    its battery is that of the device, where coded training has batteries. Unless
    ``fresh``, a benchmark of an earlier run is taken over if it still holds
    (`docs/benchmarking.md`). ``joined`` is called with the learner's name and its
    connection, which ends this when closed.
    """
    name = name or socket.gethostname()
    if states and (rate or bandwidth):
        raise ConfigError(
            "--states has rates of its own: leave --rate, --bandwidth out"
        )
    bundles = TrustedBundles(trust, ask)
    use_threads(threads)
    _check_allowed(allow)
    learner = FogLearner(
        name=name,
        own=_own(data, target, features),
        background=_load_on(name, rate, bandwidth, states),
        allowed=allow,
        share_data=share_data,
        sensor=energy.sensors() if sensors else None,
        device=device,
        bundles=bundles,
        precision=Precision(precision),
        benchmarks=None if fresh else Benchmarks(about=_host_of(address)),
    )
    if not quiet:
        logging.basicConfig(format="%(message)s")
        logging.getLogger("melisma.learner").setLevel(logging.INFO)
    options = {"name": name, "token": token, "patience_s": CONNECT_S, "threads": 8}
    with (
        closing(FogService(learner, listens=listen)) as service,
        rpc.connect(address, service, **options) as connection,
    ):
        joined(name, connection)
        connection.wait()


def _host_of(address: str) -> str:
    """Return the host of an orchestrator: at another one the link is another."""
    return Address.of(address).host


def _own(
    data: Path | str | None, target: str | None, features: Sequence[str] | None
) -> Dataset | None:
    """Load a device's own data, if there is any."""
    if data is None:
        if target or features:
            raise ConfigError("--target and --features are columns of --data: give it")
        return None
    return load_own(data, target=target, features=features)


def _load_on(
    name: str, rate: str | None, bandwidth: str | None, states: Path | None
) -> BackgroundLoad:
    """Return the load that slows this device down: from states, or by limits."""
    if states:
        return _background_of(load_states(states), name)
    limits = State(
        samples_per_s=_limit("--rate", SamplesPerSecond, rate),
        bytes_per_s=_limit("--bandwidth", BytesPerSecond, bandwidth),
    )
    return BackgroundLoad([limits])


def _limit(flag: str, kind: type[Quantity], written: str | None) -> float:
    """Return a rate as it was written, infinite if it was not; ConfigError if wrong."""
    if written is None:
        return math.inf
    try:
        rate = float(kind.of(written))
    except ConfigError as error:
        raise ConfigError(f"{flag}: {error}") from error
    if not rate > 0:
        raise ConfigError(f"{flag} {written!r}: give a rate above 0")
    return rate


def _check_allowed(names: Sequence[str]) -> None:
    """Raise ConfigError for a model or task that this device could not make."""
    for name in names:
        if name not in TASKS:
            if ":" not in name:
                raise ConfigError(f"--allow {name!r}: give module:function")
            imported("--allow", name)


def _background_of(table: StatesFile, name: str) -> BackgroundLoad:
    """Return the load that a file of states describes, seeded by itself or the name."""
    gamma = probabilities(table.states, table.heat, name)
    return BackgroundLoad(
        [
            State(
                probability=probability,
                activity=state.owner,
                samples_per_s=float(state.rate or math.inf),
                bytes_per_s=float(state.bandwidth or math.inf),
                task_samples_per_s={k: float(r) for k, r in state.rates.items()},
            )
            for state, probability in zip(table.states, gamma, strict=True)
        ],
        seed=zlib.crc32(name.encode()) if table.seed is None else table.seed,
        changing=table.changing,
        owner=None if table.seed is None else name,
    )
