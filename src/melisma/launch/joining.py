"""Being a learner: dial an orchestrator, and train what it sends."""

import logging
import math
import socket
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from melisma import rpc
from melisma.errors import ConfigError
from melisma.jobs.files import load_states
from melisma.launch.local import background_of
from melisma.learner.background import BackgroundLoad, State
from melisma.learner.fog import FogLearner
from melisma.learner.service import FogService
from melisma.learning.data import load_own
from melisma.learning.training import use_threads
from melisma.units import BytesPerSecond, SamplesPerSecond

#: Longest that the orchestrator may take to answer at all.
PATIENCE_S = 30.0


def join(
    address: str,
    *,
    name: str | None = None,
    token: str | None = None,
    data: Path | str | None = None,
    allow: Sequence[str] = (),
    rate: str | None = None,
    bandwidth: str | None = None,
    states: Path | None = None,
    listen: str | None = None,
    threads: int = 1,
    quiet: bool = True,
    joined: Callable[[str, str], None] = lambda name, server: None,
) -> None:
    """Be a learner of the orchestrator at ``address``, until Ctrl-C.

    ``data`` is a folder of one's own data, which never leaves the device. ``allow``
    names models of one's own, ``module:factory``, that jobs may ask for. ``rate`` and
    ``bandwidth`` slow this learner down, as do the ``states`` of a file. ``joined`` is
    called with the learner's name and the server's once both know each other.
    """
    name = name or socket.gethostname()
    if states and (rate or bandwidth):
        raise ConfigError(
            "--states has rates of its own: leave --rate, --bandwidth out"
        )
    use_threads(threads)
    learner = FogLearner(
        name=name,
        own=load_own(Path(data).expanduser()) if data else None,
        background=_load_on(name, rate, bandwidth, states),
        allowed=allow,
    )
    if not quiet:
        logging.basicConfig(format="%(message)s")
        logging.getLogger("melisma.learner").setLevel(logging.INFO)
    options = {"name": name, "token": token, "patience_s": PATIENCE_S, "threads": 8}
    with (
        closing(FogService(learner, listens=listen)) as service,
        rpc.connect(address, service, **options) as line,
    ):
        joined(name, line.name)
        line.wait()


def _load_on(
    name: str, rate: str | None, bandwidth: str | None, states: Path | None
) -> BackgroundLoad:
    """What keeps this device from being as fast as it can be."""
    if states:
        return background_of(load_states(states), name)
    limits = State(
        samples_per_s=float(SamplesPerSecond.of(rate)) if rate else math.inf,
        bytes_per_s=float(BytesPerSecond.of(bandwidth)) if bandwidth else math.inf,
    )
    return BackgroundLoad([limits])
