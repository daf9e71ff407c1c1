"""`melisma runs`, `dashboard` and `export`, as a user starts them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.web.clients import Visitor, write_run
from typer.testing import CliRunner

from melisma.cli import app
from melisma.errors import ConfigError
from melisma.runs.lock import lock
from melisma.runs.store import RECORDS
from melisma.views import export
from melisma.views.document import document


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    root = tmp_path / "runs"
    write_run(root / "one")
    write_run(root / "two", cycles=5, done=2, scheme="eta")
    return root


def melisma(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_runs_are_listed_the_latest_first(runs: Path) -> None:
    lines = melisma("runs", runs).splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["two", "one"]
    one, two = lines[3].split(), lines[2].split()
    assert one[:7] == ["one", "csa", "finished", "3/3", "30.00", "0.333", "7.0"]
    assert two[:5] == ["two", "eta", "cut", "short", "2/5"]


def test_runs_are_listed_as_json(runs: Path) -> None:
    two, one = json.loads(melisma("runs", runs, "--json"))
    assert (one["id"], one["value"], two["cycles_done"]) == ("one", 0.3, 2)


def test_who_writes_a_run_is_seen(runs: Path) -> None:
    with (runs / "two" / RECORDS).open("ab") as file:
        lock(file)
        assert json.loads(melisma("runs", runs, "--json"))[0]["state"] == "running"
    assert json.loads(melisma("runs", runs, "--json"))[0]["state"] == "cut short"


def test_two_runs_stand_side_by_side(runs: Path) -> None:
    output = melisma("runs", runs / "one", runs / "two")
    rows = {line[:32].strip(): line[32:].split() for line in output.splitlines()}
    assert rows[""] == ["one", "two"]
    assert rows["scheme"] == ["csa", "eta"]
    assert rows["accuracy in the end (%)"] == ["30.00", "20.00"]
    assert rows["updates that count"] == ["3", "2"]
    assert rows["cost of a cycle, mean"] == ["–", "–"]
    one, two = json.loads(melisma("runs", runs / "one", runs / "two", "--json"))
    assert (one["cycles"], two["cycles"], one["cycle_s"]) == (3, 2, 1.0)


def test_no_runs_are_said_to_be_none(tmp_path: Path) -> None:
    assert "No runs" in melisma("runs", tmp_path)


@pytest.mark.slow
def test_saved_runs_are_served_without_an_orchestrator_and_without_torch(
    runs: Path,
) -> None:
    code = (
        "import sys\n"
        "from melisma.cli import app\n"
        "try:\n    app()\n"
        "finally:\n    print('torch' in sys.modules, flush=True)\n"
    )
    command = [sys.executable, "-c", code, "dashboard", str(runs), "--port", "0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        visitor = Visitor(said.split()[1].rstrip("/"))
        answer = visitor.get("/api/runs/one")
        assert answer["run"]["state"] == "finished"
        assert visitor.steer("stop")[0] == 401
    finally:
        process.send_signal(2)
        output, _ = process.communicate(timeout=60)
    assert output.splitlines()[-1] == "False"


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["dashboard", str(tmp_path / "none")])
    assert "is no folder" in str(result.exception)


# Export


def test_every_figure_that_is_known_is_exported(runs: Path) -> None:
    found = list(export.scalars(document(runs / "one")))
    accuracy = [(s.cycle, s.value) for s in found if s.name == "accuracy"]
    assert accuracy == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert not [s for s in found if s.name == "error"]


def test_an_extra_that_is_missing_is_named(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, write in (
        ("tensorboardX", export.to_tensorboard),
        ("mlflow", export.to_mlflow),
    ):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ConfigError, match=r"pip install 'melisma\["):
            write(runs / "one", runs / "out")


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_reads_what_was_exported(runs: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="needs melisma[tensorboard]")
    reading: Any = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="needs tensorboard, to read it again",
    )
    output = melisma(
        "export", runs / "one", "--to", "tensorboard", "--folder", tmp_path
    )
    assert "figures" in output
    events = reading.EventAccumulator(str(tmp_path))
    events.Reload()
    scalars = events.Scalars("accuracy")
    assert [s.step for s in scalars] == [1, 2, 3]
    assert [s.value for s in scalars] == pytest.approx([0.1, 0.2, 0.3])
    # Two seconds a cycle, on the run's clock.
    assert scalars[2].wall_time - scalars[0].wall_time == pytest.approx(4.0, abs=0.01)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_mlflow_reads_what_was_exported(runs: Path, tmp_path: Path) -> None:
    mlflow: Any = pytest.importorskip("mlflow", reason="needs melisma[mlflow]")
    melisma("export", runs / "one", "--to", "mlflow", "--folder", tmp_path / "ml")
    there = tmp_path / "ml" / export.DATABASE
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{there}")
    number = client.get_experiment_by_name("job").experiment_id
    (run,) = client.search_runs([number])
    assert run.info.run_name == "one"
    assert run.data.params["scheme"] == "csa"
    history = client.get_metric_history(run.info.run_id, "accuracy")
    assert sorted((s.step, s.value) for s in history) == [
        (1, 0.1),
        (2, 0.2),
        (3, 0.3),
    ]
