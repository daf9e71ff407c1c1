"""A run's figures by cycle, for TensorBoard and MLflow."""

import os
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from melisma.errors import ConfigError
from melisma.runs.files import RECORDS
from melisma.views.document import document

SCALARS = (
    *("loss", "cycle_s", "counted", "carried", "samples", "max_staleness"),
    *("mean_staleness", "truancy", "utilisation", "error", "cost", "deadline_s"),
)
DATABASE = "mlflow.db"
#: Most metrics that MLflow accepts in one call.
AT_ONCE = 1000
#: What the name of a metric may not have in MLflow.
_NOT_IN_MLFLOW = re.compile(r"[^\w.\-/: ]")


class Scalar(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of one cycle."""

    name: str  #: with its task's before it, where there are several
    value: float
    cycle: int
    time_s: float  #: on the run's clock, when the cycle ended


def scalars(contents: dict[str, Any]) -> Iterator[Scalar]:
    """Yield every known figure of a document."""
    tasks, cycles = contents["tasks"], contents["cycles"]
    metrics = {_scalar_name(n): values for n, values in cycles["metrics"].items()}
    columns = metrics | {name: cycles[name] for name in SCALARS}
    for row, (task, cycle) in enumerate(
        zip(cycles["task"], cycles["cycle"], strict=True)
    ):
        prefix = f"{tasks[task]['name']}/" if len(tasks) > 1 else ""
        for name, values in columns.items():
            value, time_s = values[row], cycles["time_s"][row]
            if value is not None and time_s is not None:
                yield Scalar(
                    name=prefix + name, value=value, cycle=cycle, time_s=time_s
                )


def _scalar_name(metric: str) -> str:
    """Return a metric's name, told apart from a figure that has the same."""
    return f"metric_{metric}" if metric in SCALARS else metric


def to_tensorboard(run: Path, folder: Path) -> int:
    """Write event files into ``folder``; return how many scalars there are."""
    writers = _extra("tensorboardX", "tensorboard")
    figures = list(scalars(document(run)))
    began = _began(run, figures)
    with writers.SummaryWriter(str(folder)) as writer:
        for scalar in figures:
            writer.add_scalar(
                scalar.name, scalar.value, scalar.cycle, began + scalar.time_s
            )
    return len(figures)


def to_mlflow(run: Path, folder: Path) -> int:
    """Write a run into ``folder``/mlflow.db; return how many scalars there are."""
    # An export to a local folder must not send telemetry.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    mlflow, entities = (
        _extra(name, "mlflow") for name in ("mlflow", "mlflow.entities")
    )
    contents = document(run)
    figures, header = list(scalars(contents)), contents["run"]
    began, target = _began(run, figures), folder.resolve()
    target.mkdir(parents=True, exist_ok=True)
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{target / DATABASE}")
    created = client.create_run(
        _experiment(client, header["name"], target / "artifacts"),
        run_name=header["id"],
        start_time=_ms(began),
    )
    facts = {key: header[key] for key in ("scheme", "mode", "seed", "deadline_s")}
    params = [entities.Param(key, str(value)) for key, value in facts.items()]
    client.log_batch(created.info.run_id, params=params)
    metrics = [
        entities.Metric(
            _NOT_IN_MLFLOW.sub("_", scalar.name),
            scalar.value,
            _ms(began + scalar.time_s),
            scalar.cycle,
        )
        for scalar in figures
    ]
    for start in range(0, len(metrics), AT_ONCE):
        client.log_batch(created.info.run_id, metrics[start : start + AT_ONCE])
    client.set_terminated(created.info.run_id)
    return len(figures)


def _experiment(client: Any, name: str, artifacts: Path) -> str:
    """Return the id of the experiment of this name, created if there is none."""
    known = client.get_experiment_by_name(name)
    made: str = (
        known.experiment_id
        if known
        else client.create_experiment(name, artifact_location=artifacts.as_uri())
    )
    return made


def _began(run: Path, figures: list[Scalar]) -> float:
    """Estimate when the run began, in seconds since 1970.

    Records have the run's own clock, so count back from when the file last changed.
    """
    last_s = max((scalar.time_s for scalar in figures), default=0.0)
    return max(path.stat().st_mtime for path in run.rglob(RECORDS)) - last_s


def _ms(seconds: float) -> int:
    return round(1000 * seconds)


def _extra(module: str, extra: str) -> ModuleType:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{module} is not installed: pip install 'melisma[{extra}]'"
        ) from error
