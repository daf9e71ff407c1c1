"""Live runs on this machine: learners as processes, or in a testbed."""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from melisma import rpc
from melisma.algorithms.control import Control
from melisma.errors import ConfigError, DataError, TrainingError, unknown
from melisma.fleets.gathering import Gathering
from melisma.jobs.building import own_rows, task_of
from melisma.jobs.demo import DEMO
from melisma.jobs.families import family_of
from melisma.jobs.files import dump
from melisma.jobs.schema import Job, LearnersTable, StatesFile, names_of, own_code
from melisma.launch import processes
from melisma.launch.processes import Learners
from melisma.launch.serve import orchestrate
from melisma.learning import devices
from melisma.learning.data import save_own
from melisma.learning.settings import HERE, Hardware
from melisma.registry import check_importable
from melisma.runs.records import Record
from melisma.runs.store import CONFIG, Watch, ignore
from melisma.system.law import Mode
from melisma.testbed import DEVICES, Device, Testbed

__all__ = [
    "DEMO",
    "LOCAL",
    "join_command",
    "own_data",
    "resumable",
    "run_locally",
    "run_on_testbed",
]

#: In run.toml, of runs with learner processes here.
LOCAL = "local"
#: Timeout for the learners of a testbed to start and join.
JOIN_S = 120.0


def run_locally(
    job: Job,
    folder: Path,
    watch: Watch = ignore,
    show: Callable[[str], None] = lambda link: None,
    control: Control | None = None,
    *,
    hardware: Hardware = HERE,
    start: Learners | None = None,
    gathering: Gathering | None = None,
    fresh: bool = True,
) -> list[Record]:
    """Run a job with its learners as processes here, throttled to their rates.

    All train on ``hardware``; ConfigError if they cannot. ``start`` is what starts
    them, where `processes.learners` was entered before torch was imported here. Unless
    ``fresh``, they take over benchmarks of earlier runs that still hold.
    """
    devices.ready(hardware)  # a learner that fails at its start would be waited for
    _check_speeds(job)
    names = names_of(job)
    groups = [group for group in job.learners for _ in range(group.count)]
    gathering, control = gathering or Gathering(), control or Control()
    codes: dict[str, int] = {}  # of those that have ended by themselves

    def ended(server: rpc.Server, place: int, code: int) -> None:
        if not code:  # as at the end of the run
            return
        codes[names[place]] = code
        why = f"its process ended with exit code {code}"
        gathering.lose(names[place], why)
        server.expel(names[place], why)  # or the run would wait for it to come back
        if len(codes) == len(names):
            control.stop()

    with (
        own_data(job, names) as data,
        _owners(groups, job) as owners,
        nullcontext(start) if start else processes.learners() as start,
    ):

        def begin(server: rpc.Server) -> None:
            start.ended = partial(ended, server)
            for name, group, owner in zip(names, groups, owners, strict=True):
                words = join_words(job, server.address, name, data, owner)
                words += ["--device", hardware.device]
                words += ["--precision", hardware.precision.value]
                words += ["--fresh"] * fresh
                words += ["--listen", "127.0.0.1"] * family_of(job).moves_data
                start([*words, *_limits(group), "--until-eof"])

        records = orchestrate(
            job,
            folder,
            learners=len(names),
            at_once=len(names),  # benchmarks: they share the cores in cycles too
            watch=watch,
            ready=begin,
            show=show,
            engine=LOCAL,
            hardware=hardware,
            control=control,
            gathering=gathering,
            port=0,
            say=lambda text: None,
        )
    if len(codes) == len(names) and not gathering.begun:
        raise TrainingError(
            "all learners have ended by themselves, with exit codes "
            f"{', '.join(f'{code} ({name})' for name, code in codes.items())}"
        )
    return records


def _check_speeds(job: Job) -> None:
    """Raise ConfigError for learners without a speed: they are slowed down to it."""
    for group in job.learners:
        if not group.states and (group.rate is None or group.bandwidth is None):
            raise ConfigError(
                f"learners {group.name!r}: a live run needs rate and bandwidth, or "
                "states"
            )


def _limits(group: LearnersTable) -> list[str]:
    """Return the options of `join` that slow a learner down; its states do it too."""
    if group.states:
        return []
    rate, bandwidth = float(group.rate or 0), float(group.bandwidth or 0)
    return ["--rate", f"{rate} samples/s", "--bandwidth", f"{bandwidth} B/s"]


@contextmanager
def _owners(
    groups: Sequence[LearnersTable | None], job: Job
) -> Iterator[list[Path | None]]:
    """Write a file of states for each learner that has them; yield paths or None."""
    with TemporaryDirectory(prefix="melisma-") as root:
        files: dict[int, Path] = {}
        for n, group in enumerate(groups):
            if group and group.states:
                files[n] = Path(root, f"{n}.toml")
                states = StatesFile(
                    states=group.states,
                    heat=group.heat,
                    changing=job.changing,
                    seed=job.seed,
                )
                files[n].write_text(dump(states), encoding="utf-8")
        yield [files.get(n) for n in range(len(groups))]


@contextmanager
def own_data(job: Job, names: Sequence[str]) -> Iterator[Path | None]:
    """In federated mode, a folder with a folder of own data for each learner."""
    if job.mode == Mode.PARALLEL:
        yield None
        return
    dataset = task_of(job).data
    with TemporaryDirectory(prefix="melisma-") as root:
        dealt = own_rows(job, dataset, len(names)) or ()
        for name, rows in zip(names, dealt, strict=True):
            Path(root, name).mkdir()
            save_own(dataset.train[rows], Path(root, name))
        yield Path(root)


def join_words(
    job: Job, address: str | None, name: str, data: Path | None, owner: Path | None
) -> list[str]:
    """Return the words behind `melisma` that make one of a job's learners here.

    Without an ``address`` it is in the environment, where `ps` does not show its token.
    """
    words = ["join", "--name", name]
    words += [address] if address else []
    if data:
        words += ["--data", str(data / name)]
    if owner:
        words += ["--states", str(owner)]
    if family_of(job).moves_data:
        words += ["--share-data"]  # a part of the job's own data set
    for what, own in own_code(job):
        check_importable(what, own)
        words += ["--allow", own]
    return [*words, "--quiet"]


def join_command(
    job: Job, address: str | None, name: str, data: Path | None, owner: Path | None
) -> list[str]:
    """Return the command that starts one of a job's learners on this machine."""
    words = join_words(job, address, name, data, owner)
    return processes.command_of(["join", "--fresh", *words[1:]])


def run_on_testbed(
    job: Job,
    folder: Path,
    devices: Sequence[str | Device],
    watch: Watch = ignore,
    show: Callable[[str], None] = lambda link: None,
    ready: Callable[[rpc.Server], None] = lambda server: None,
    gathering: Gathering | None = None,
) -> list[Record]:
    """Run a job with learners in namespaces, as slow as these devices; needs root.

    ``devices`` are names in DEVICES, or one's own. One that is named like a group of
    the job's learners has that group's states. ``ready`` is called when all joined.
    """
    unlike = [_device_of(device) for device in devices]
    names = [f"{device.name}-{n}" for n, device in enumerate(unlike, start=1)]
    groups = {group.name: group for group in job.learners}
    with (
        Testbed(job.name) as testbed,
        TemporaryDirectory() as secrets,
        own_data(job, names) as data,
        _owners([groups.get(d.name) for d in unlike], job) as owners,
    ):
        places = [
            testbed.place(device, name)
            for name, device in zip(names, unlike, strict=True)
        ]

        def start(server: rpc.Server) -> None:
            address = server.invite()
            for place in places:
                place.open(server.port)
            with ExitStack() as unhurried:
                for place, owner in zip(places, owners, strict=True):
                    # Importing torch under a low CPU quota would take long.
                    unhurried.enter_context(place.full_speed())
                    command = join_command(job, None, place.name, data, owner)
                    place.popen(command, env={**os.environ, "MELISMA_JOIN": address})
                server.wait_until(len(places), timeout_s=JOIN_S)
            ready(server)

        return orchestrate(
            job,
            folder,
            learners=len(places),
            at_once=_at_once(unlike),
            watch=watch,
            ready=start,
            show=show,
            engine="testbed",
            gathering=gathering,
            host=testbed.address,
            port=0,
            folder=secrets,
            say=lambda text: None,
        )


def _device_of(device: str | Device) -> Device:
    if isinstance(device, str) and device not in DEVICES:
        raise unknown("device", device, DEVICES)
    return DEVICES[device] if isinstance(device, str) else device


def _at_once(devices: Sequence[Device]) -> int:
    """Return how many devices may benchmark themselves at a time.

    All, if the machine has a core for all quotas and some more; else they would slow
    each other down, and one does so after the other.
    """
    quotas = sum(math.inf if device.cpu is None else device.cpu for device in devices)
    return len(devices) if quotas <= 0.8 * (os.cpu_count() or 1) else 1


def resumable(folder: Path) -> Path:
    """Return the job file of a run; DataError if there is none in ``folder``."""
    if not (folder / CONFIG).exists():
        raise DataError(f"{folder} is no run: there is no {CONFIG} in it")
    return folder / CONFIG
