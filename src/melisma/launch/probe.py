"""A device whose costs are measured: it trains on samples while it sends others.

Runs as a program in a place of a testbed. It dials the orchestrator, which says when a
slot begins and hands samples on to other devices, as it does in a live fog.
"""

import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from melisma import rpc
from melisma.jobs.building import task_of
from melisma.jobs.files import load
from melisma.jobs.schema import Job
from melisma.learning.shards import Shard
from melisma.learning.training import Session, batch_plan, use_threads

#: Environment variable with the join string.
JOIN = "MELISMA_JOIN"


class Probe:
    """Trains a job's model on the first ``samples`` of its data, and sends them."""

    def __init__(self, job: Job, samples: int) -> None:
        task = task_of(job)
        self._rows = rows = np.arange(samples)
        self._samples, self._shard = task.taken.train, task.data.train[rows]
        self._session = Session(task.model, task.training)
        rng = np.random.default_rng(job.seed)
        self._plan = batch_plan(rows, 1, task.training, rng)

    @rpc.expose
    def slot(self, receivers: list[str]) -> tuple[float, dict[str, float]]:
        """Send samples to these one after the other, and train until that is done.

        Returns the seconds of a sample: of training on it, and of its way to each.
        """
        orchestrator = rpc.current().peer
        assert orchestrator is not None  # slots are called over its connection
        before, began = self._session.passes, time.monotonic()
        with ThreadPoolExecutor(1) as thread:
            sending = thread.submit(self._send, orchestrator, receivers)
            while True:
                self._session.train(self._samples, self._plan)
                if sending.done():
                    break
            took_s = time.monotonic() - began
            return took_s / (self._session.passes - before), sending.result()

    def _send(
        self, orchestrator: rpc.Peer, receivers: Sequence[str]
    ) -> dict[str, float]:
        sample_s = {}
        for receiver in receivers:
            began = time.monotonic()
            orchestrator.relay(receiver, self._shard)
            sample_s[receiver] = (time.monotonic() - began) / len(self._rows)
        return sample_s

    @rpc.expose
    async def take(self, shard: Shard) -> None:
        """Take samples of another device."""


def main() -> None:
    """Serve the orchestrator of ``MELISMA_JOIN`` until it ends: JOB NAME SAMPLES."""
    job, name, samples = sys.argv[1:]
    use_threads(1)
    probe = Probe(load(Path(job)), int(samples))
    rpc.connect(os.environ[JOIN], probe, name=name).wait()


if __name__ == "__main__":
    main()
