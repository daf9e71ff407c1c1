"""DAB's measurements in the places of the emulated testbed; needs root.

As a module (``python -m melisma_papers.dab_testbed``) it is what runs in a place: it
reads what to time from standard input and answers with one line of JSON.
"""

import fcntl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from threading import Thread
from typing import Any
from urllib.request import urlopen

import msgspec
import numpy as np

import melisma as mel
from melisma.jobs import Job
from melisma.launch import run_on_testbed
from melisma.learning import (
    Arrays,
    Training,
    benchmark,
    data,
    models,
    numbers,
    use_threads,
)
from melisma.maths import Floats
from melisma.testbed import DEVICES, Place, Still, Testbed

#: Device without a quota, by whose time others' are predicted from FLOPS.
REFERENCE = "2070-super"
COPIES = 2  #: of a link, to time downloads over
#: A trial in which the machine itself stood still for so long is made again: a virtual
#: machine may stop for seconds, which is no property of the link.
STILL_S, ATTEMPTS = 0.1, 10


class TrainingOrder(msgspec.Struct, frozen=True, kw_only=True, tag="training"):
    """Time one pass over each number of shards, and matrix products."""

    shards: list[int]
    shard: int
    trials: int
    dataset: str


class DownloadOrder(msgspec.Struct, frozen=True, kw_only=True, tag="download"):
    """Time the download of each number of shards."""

    shards: list[int]
    trials: int
    url: str


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """What one trial came to."""

    seconds: dict[str, float]  #: by shards
    flops: float = 0.0

    @property
    def by_shards(self) -> dict[int, float]:
        """Seconds by number of shards."""
        return {int(n): seconds for n, seconds in self.seconds.items()}


#: A Nano whose memory and link are as before, and of which two cores can keep four.
SLOW_NANO = replace(DEVICES["jetson-nano"], name="slow-nano", cpu=0.35)
PLACES = {**DEVICES, SLOW_NANO.name: SLOW_NANO}


@contextmanager
def alone() -> Iterator[None]:
    """Wait until no other process here measures: trials may be handed to several."""
    with Path(gettempdir(), "melisma-dab-testbed.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def trained(job: Job, devices: Sequence[str]) -> mel.History:
    """Run a job on devices; return what its cycles came to."""
    with alone(), TemporaryDirectory() as folder:
        records = run_on_testbed(job, Path(folder), [PLACES[name] for name in devices])
        return mel.Run(job, records=records).history


class TrainingTimes(msgspec.Struct, frozen=True, kw_only=True):
    """What was timed of devices, trial by trial."""

    seconds: list[list[dict[int, float]]]  #: by shards, devices × trials
    flops: Floats  #: errors as shares of FLOPS read the right way, devices × trials
    flops_inverted: Floats  #: the same, upside down as the author's code has it


def training_times(
    devices: Sequence[str],
    *,
    sizes: list[int],
    predicted: Sequence[int],
    shard: int,
    trials: int,
    dataset: str,
) -> TrainingTimes:
    """Time devices one after another; FLOPS is read by the reference device."""
    told: dict[str, list[Timed]] = {}
    with alone(), Testbed("benchmark") as testbed:
        for device, whole in zip(devices, predicted, strict=True):
            order = TrainingOrder(
                shards=[*sizes, *sorted({*predicted, whole} - {*sizes})]
                if device == REFERENCE
                else [*sizes, whole],
                shard=shard,
                trials=trials,
                dataset=dataset,
            )
            told[device] = _told(testbed.place(DEVICES[device], device), order)
    others = [(d, n) for d, n in zip(devices, predicted, strict=True) if d != REFERENCE]
    right = [_flops_errors(told, d, n, upside_down=False) for d, n in others]
    wrong = [_flops_errors(told, d, n, upside_down=True) for d, n in others]
    return TrainingTimes(
        seconds=[[one.by_shards for one in told[device]] for device in devices],
        flops=np.array(right),
        flops_inverted=np.array(wrong),
    )


def _flops_errors(
    told: dict[str, list[Timed]], device: str, whole: int, *, upside_down: bool
) -> list[float]:
    """Error of each trial in the time of ``whole`` shards, as a share."""
    found = []
    for base, one in zip(told[REFERENCE], told[device], strict=True):
        scores = (one.flops, base.flops) if upside_down else (base.flops, one.flops)
        predicted_s = benchmark.predicted_by_flops(base.by_shards[whole], *scores)
        found.append(predicted_s / one.by_shards[whole] - 1.0)
    return found


def download_times(
    devices: Sequence[str], *, sizes: list[int], shard_bytes: int, trials: int
) -> list[list[dict[int, float]]]:
    """Seconds by shards of each device's link and trial.

    Each has `COPIES` links, which share its trials and vary apart from each other.
    """
    with alone(), Testbed("download") as testbed:
        server = ThreadingHTTPServer((testbed.address, 0), _shards(shard_bytes))
        Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        url = f"http://{testbed.address}:{port}"
        order = DownloadOrder(shards=sizes, trials=-(-trials // COPIES), url=url)
        places = [
            testbed.place(DEVICES[name], f"{name}-{copy}")
            for name in devices
            for copy in range(COPIES)
        ]
        try:
            for place in places:
                place.open(port)
            # At once: each has a link of its own, and little to compute.
            with ThreadPoolExecutor(len(places)) as threads:
                timed = list(threads.map(lambda place: _told(place, order), places))
            seconds = [[one.by_shards for one in some] for some in timed]
            return [
                [one for some in seconds[first : first + COPIES] for one in some]
                for first in range(0, len(seconds), COPIES)
            ]
        finally:
            server.shutdown()
            server.server_close()


def _shards(shard_bytes: int) -> type[BaseHTTPRequestHandler]:
    """A server of as many shards as its path says."""

    class Shards(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = bytes(int(self.path[1:]) * shard_bytes)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    return Shards


def _told(place: Place, order: TrainingOrder | DownloadOrder) -> list[Timed]:
    """What is timed in a place; nothing is limited until its imports are done."""
    command = [sys.executable, "-m", f"{__package__}.dab_testbed"]
    with place.popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        with place.full_speed():
            process.stdout.readline()
        answer, _ = process.communicate(msgspec.json.encode(order))
    return msgspec.json.decode(answer, type=list[Timed])


def main() -> None:
    """Time what standard input says."""
    use_threads(1)
    print("ready", flush=True)
    order = msgspec.json.decode(
        sys.stdin.buffer.read(), type=TrainingOrder | DownloadOrder
    )
    trial = _training(order) if isinstance(order, TrainingOrder) else _download(order)
    trial()  # a warm-up
    print(msgspec.json.encode([trial() for _ in range(order.trials)]).decode())


def _training(order: TrainingOrder) -> Callable[[], Timed]:
    dataset, model = data.load(order.dataset), models.build("TwoNN", 0)
    rows = np.arange(max(order.shards) * order.shard) % len(dataset.train)
    samples, training = numbers(dataset.train[rows]), Training(rate=0.1)

    def seconds(shards: int) -> float:
        n = shards * order.shard
        some = Arrays({name: value[:n] for name, value in samples.items()})
        return benchmark.time_cycle(model, some, training, steps=1)

    return lambda: Timed(
        seconds={str(n): seconds(n) for n in order.shards}, flops=benchmark.flops()
    )


def _download(order: DownloadOrder) -> Callable[[], Timed]:
    still = Still()

    def seconds(shards: int) -> float:
        began = time.perf_counter()
        with urlopen(f"{order.url}/{shards}") as answer:
            while answer.read(1 << 16):  # gives way to the thread that looks
                pass
        return time.perf_counter() - began

    def trial() -> Timed:
        for _ in range(ATTEMPTS):
            still.longest_s = 0.0
            found = Timed(seconds={str(n): seconds(n) for n in order.shards})
            if still.longest_s < STILL_S:
                return found
            print("the machine stood still: once more", file=sys.stderr, flush=True)
        raise RuntimeError(f"the machine stood still in {ATTEMPTS} trials, one by one")

    return trial


if __name__ == "__main__":
    main()
