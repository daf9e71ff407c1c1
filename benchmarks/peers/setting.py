"""The setting of the frameworks' benchmark: unlike learners with data of their own.

Delays are those of NVFlare's edge example over a hundred: an order takes 1, 2 or 4 s to
train, by the type of the device, and 0.05 s to travel.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from melisma.jobs.asynchronous_table import AsynchronousTable
from melisma.jobs.building import own_rows, task_of
from melisma.jobs.schema import Job, LearnersTable, TrainingTable
from melisma.learning.models import model_bytes
from melisma.learning.settings import Late
from melisma.system.law import Mode
from melisma.units import BytesPerSecond, Deadline, SamplesPerSecond
from peers.emulated import ARRAYS, MODEL, SETTING, TEST

SAMPLES = 4000  #: of the embedded data set, to train on
BATCH, RATE, EPOCHS = 32, 0.1, 1
UPDATES = 3  #: in FedBuff's buffer
#: Longest that anything may take: nothing but a failure ends by it.
FAR_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Everything that all frameworks have in common."""

    order_s: tuple[float, ...] = (1.0, 1.0, 2.0, 2.0, 4.0, 4.0)  #: to train, by learner
    transfer_s: float = 0.05  #: of a model to a learner and back
    target: float = 0.85  #: accuracy on the 1,000 test images
    rounds: int = 100  #: at most
    seed: int = 0

    @property
    def learners(self) -> tuple[LearnersTable, ...]:
        """Learners that emulate themselves, by samples and bytes a second."""
        share = SAMPLES / len(self.order_s)
        both_ways = 2 * model_bytes(task_of(Job()).model)
        return tuple(
            LearnersTable(
                name=f"learner-{n}",
                rate=SamplesPerSecond(share * EPOCHS / order_s),
                bandwidth=BytesPerSecond(both_ways / self.transfer_s),
            )
            for n, order_s in enumerate(self.order_s, start=1)
        )

    @property
    def job(self) -> Job:
        """FedAvg's work: all that each learner has, and all are waited for."""
        return Job(
            name="frameworks",
            scheme="fedavg",
            mode=Mode.FEDERATED,
            cycles=self.rounds,
            stop=f"accuracy >= {self.target}",
            deadline=Deadline(FAR_S),
            late=Late.WAIT,
            steps=EPOCHS,
            seed=self.seed,
            training=TrainingTable(rate=RATE, batch=BATCH),
            learners=self.learners,
        )

    @property
    def buffered(self) -> Job:
        """The same orders without rounds."""
        return msgspec.structs.replace(
            self.job,
            scheme="async:fedbuff",
            late=Late.HALT,
            cycles=6 * self.rounds,
            asynchronous=AsynchronousTable(updates=UPDATES),
        )

    @property
    def allocated(self) -> Job:
        """Half of a round's time for half of its samples, by csa."""
        round_s = max(self.order_s) + self.transfer_s
        return msgspec.structs.replace(
            self.job,
            scheme="csa",
            late=Late.HALT,
            deadline=Deadline(round_s / 2),
            samples=SAMPLES // 2,
            cycles=2 * self.rounds,
        )

    def write(self, folder: Path) -> None:
        """Write data, split, first model and delays for the other frameworks."""
        task = task_of(self.job)
        assert task.ready is not None
        train, test = task.ready.train, task.ready.test
        dealt = own_rows(self.job, task.data) or ()
        parts = {str(n): train[rows] for n, rows in enumerate(dealt)}
        parts[TEST] = test[:]
        arrays = {
            f"{owner}.{key}": array.numpy()
            for owner, part in parts.items()
            for key, array in part.items()
        }
        state = task.model.state_dict()
        arrays |= {f"{MODEL}.{key}": value.numpy() for key, value in state.items()}
        np.savez(folder / ARRAYS, **arrays)  # type: ignore[arg-type]
        numbers = {
            "sample_s": [1 / float(group.rate or 1) for group in self.learners],
            "transfer_s": self.transfer_s,
            "target": self.target,
            "rounds": self.rounds,
            "updates": UPDATES,
            "batch": BATCH,
            "rate": RATE,
            "epochs": EPOCHS,
        }
        (folder / SETTING).write_text(json.dumps(numbers))
