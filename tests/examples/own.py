"""Each example in plain PyTorch, and learners that run it live."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

import melisma as mel
from melisma.fleets.messages import Speeds
from melisma.jobs.building import own_rows, state_law, task_of, workload_of
from melisma.jobs.schema import Job, names_of
from melisma.learner.learner import Learner
from melisma.learning.data import Dataset
from melisma.learning.samples import Arrays
from melisma.registry import imported
from melisma.units import Deadline

Batch = dict[str, Tensor]

NAMES = ("table", "text", "autoencoder", "images", "lora")
BASE = Path("runs/text/model.safetensors")  #: that `lora` adapts
#: How much more time live learners have than they are planned for: what they are given
#: never depends on this machine, and is done long before the deadline.
PATIENCE = 20.0


@dataclass(frozen=True, kw_only=True)
class Plain:
    """What a learner of an example does, without a line of this package."""

    model: str
    loss: Callable[[nn.Module, Batch], Tensor]
    optimiser: Callable[..., torch.optim.Optimizer]
    arguments: dict[str, float] = field(default_factory=dict)
    clip: float | None = None


def _progression(model: nn.Module, batch: Batch) -> Tensor:
    return F.mse_loss(model(batch["x"]).squeeze(1), batch["y"])


def _pixels(model: nn.Module, batch: Batch) -> Tensor:
    x = batch["x"].float() / 255
    return F.mse_loss(model(x), x.flatten(1))


def _classes(model: nn.Module, batch: Batch) -> Tensor:
    return F.cross_entropy(model(batch["x"].float() / 255), batch["y"])


def _characters(model: nn.Module, batch: Batch) -> Tensor:
    logits = model(batch["x"].long())
    return F.cross_entropy(logits.flatten(0, 1), batch["y"].long().flatten())


ADAMW = torch.optim.AdamW
PLAIN = {
    "table": Plain(
        model="table:diabetes",
        loss=_progression,
        optimiser=ADAMW,
        arguments={"lr": 0.002, "weight_decay": 0.1},
    ),
    "text": Plain(
        model="text:Transformer",
        loss=_characters,
        optimiser=ADAMW,
        arguments={"lr": 0.01},
        clip=1.0,
    ),
    "autoencoder": Plain(
        model="autoencoder:squeezed",
        loss=_pixels,
        optimiser=torch.optim.Adam,
        arguments={"lr": 0.004},
    ),
    "images": Plain(
        model="images:net",
        loss=_classes,
        optimiser=torch.optim.Adam,
        arguments={"lr": 0.003},
    ),
    "lora": Plain(
        model="lora:adapted",
        loss=_characters,
        optimiser=ADAMW,
        arguments={"lr": 0.005},
        clip=1.0,
    ),
}


def made(example: str, seed: int) -> nn.Module:
    """Return the example's model as it is before the first cycle."""
    torch.manual_seed(seed)
    model = imported("model", PLAIN[example].model)()
    if isinstance(model, mel.Task):
        assert callable(model.model)
        model = model.model()
    assert isinstance(model, nn.Module)
    return model


def job_of(example: str, **changes: Any) -> Job:
    """Return the job of an example, once what it needs is in the current folder."""
    if example == "images" and not Path("digits").exists():
        imported("function", "images:write")(Path("digits"))
    if example == "lora" and not BASE.exists():
        torch.manual_seed(17)
        BASE.parent.mkdir(parents=True)
        save_file(imported("model", "text:Transformer")().state_dict(), BASE)
    return msgspec.structs.replace(mel.load(f"{example}.toml"), **changes)


class Declared(Learner):
    """Says that it is as fast as the job has it, in the time of `PATIENCE`."""

    declared: Speeds

    def speeds(self, task: str, drifted: bool) -> Speeds:
        return self.declared


def patient(job: Job) -> Job:
    """Return the job with a deadline so far away that nobody is late."""
    return msgspec.structs.replace(job, deadline=Deadline(PATIENCE * job.deadline))


def learners_of(job: Job) -> list[Declared]:
    """Return the learners of a job, with the samples that the simulator gives them."""
    task, made = task_of(job), []
    law, _ = state_law(job, workload_of(job, task.model, task.data))
    rows = own_rows(job, task.data)
    for k, name in enumerate(names_of(job)):
        own = Arrays(task.data.train[rows[k]]) if rows else None
        learner = Declared(
            name=name,
            own=Dataset(name, own, own) if own else None,
            allowed=[job.task or job.model],
        )
        learner.declared = Speeds(
            step_s=PATIENCE * float(law.step_s[k, 0]),
            sample_s=PATIENCE * float(law.sample_s[k, 0]),
            fixed_s=PATIENCE * float(law.fixed_s[k, 0]),
        )
        made.append(learner)
    return made
