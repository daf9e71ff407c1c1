"""Frameworks are timed to a target on learners that are slow alike everywhere."""

import json
import time
from pathlib import Path

import bench_frameworks
import numpy as np
import pytest
import torch
from peers import emulated
from peers.environments import python_of
from peers.frameworks import Outcome, started
from peers.setting import Setting
from tests.benchmarks.printed import output, row

from melisma.jobs.building import task_of

OURS = ("ours fedavg", "ours async:fedbuff", "ours csa")
PEERS = ("Flower FedAvg  ", "Flower FedAvg, sim.", "NVFlare FedAvg", "NVFlare FedBuff")


def absent(name: str) -> Path:
    raise FileNotFoundError(f".venv-{name} is not set up")


def runs(pid: str) -> bool:
    """Whether a process does: one that ended and is not yet reaped has no command."""
    command = Path("/proc", pid, "cmdline")
    return command.exists() and command.read_bytes() != b""


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a setting with two learners, as a peer's client finds it."""
    Setting(order_s=(0.05, 0.4), target=0.0).write(tmp_path)
    monkeypatch.setenv(emulated.FOLDER, str(tmp_path))
    emulated.setting.cache_clear()
    emulated.samples.cache_clear()
    return tmp_path


def test_peers_begin_with_our_model(written: Path) -> None:
    theirs = emulated.Perceptron().state_dict()
    ours = task_of(Setting().job).model.state_dict()
    assert list(theirs) == list(ours)
    assert all(torch.equal(theirs[key], value) for key, value in ours.items())


def test_peers_have_every_training_sample_once(written: Path) -> None:
    dealt = np.concatenate([emulated.samples(str(n))[0].numpy() for n in (0, 1)])
    task = task_of(Setting().job)
    assert task.ready is not None
    ours = task.ready.train[np.arange(len(task.ready.train))]["x"].numpy()
    assert sorted(x.tobytes() for x in dealt) == sorted(x.tobytes() for x in ours)


def test_an_order_of_a_peer_takes_as_long_as_the_device_would(written: Path) -> None:
    model = emulated.Perceptron()
    began = time.monotonic()
    assert emulated.train(model, 1) == 2000
    # 2,000 samples in 0.4 s, and 0.05 s to travel.
    assert 0.45 <= time.monotonic() - began < 2.0


def test_every_order_and_every_model_is_noted(written: Path) -> None:
    model = emulated.Perceptron()
    emulated.train(model, 0)
    assert emulated.evaluate(model)
    lines = (written / emulated.PROGRESS).read_text().splitlines()
    began, evaluated = map(json.loads, lines)
    assert (began["event"], began["learner"]) == ("began", 0)
    assert evaluated["event"] == "evaluated"
    assert 0.1 < evaluated["accuracy"] <= 1.0
    assert began["time"] < evaluated["time"]


@pytest.mark.parametrize("how", [("setsid", "--fork"), ("env", "-i", "setsid", "-f")])
def test_programs_of_any_session_and_environment_end_with_the_block(
    tmp_path: Path, how: tuple[str, ...]
) -> None:
    with started([*how, "sh", "-c", "echo $$ > pid; sleep 100"], tmp_path):
        while not (pid := tmp_path / "pid").exists() or not pid.read_text().strip():
            time.sleep(0.01)
    assert not runs(pid.read_text().strip())


def test_a_run_that_does_not_come_to_the_target_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="not accurate enough after 7 models"):
        Outcome.of(0.0, 1.0, None, 7)


@pytest.mark.slow
def test_bench_frameworks_times_ours_where_no_peer_is_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_frameworks, "lack_of", lambda packages: "no flwr")
    monkeypatch.setattr(bench_frameworks, "python_of", absent)
    bench_frameworks.main(seeds=1, only="", quick=True)
    text = output(capsys)
    assert "Flower is left out: no flwr" in text
    assert "NVFlare is left out: .venv-nvflare is not set up" in text
    for name in OURS:
        seconds, models, *_ = row(text, f"│ {name}")
        assert seconds > 0
        assert models >= 1


@pytest.mark.slow
@pytest.mark.long
def test_bench_frameworks_times_the_peers(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("flwr")
    try:
        python_of("nvflare")
    except FileNotFoundError as error:
        pytest.skip(str(error))
    for only in ("Flower", "NVFlare"):
        bench_frameworks.main(seeds=1, only=only, quick=True)
        text = output(capsys)
        for name in PEERS:
            if name.startswith(only):
                seconds, models, *_ = row(text, f"│ {name}")
                assert seconds > 0
                assert models >= 1
