"""`melisma run` and `join` on a device, in a precision: refused before all else."""

from pathlib import Path

import pytest
from tests.cli.running import Melisma, quick_job

from melisma.learning import devices


@pytest.mark.parametrize("command", ["run", "join"])
def test_a_device_that_is_not_there_is_one_line(
    command: str, melisma: Melisma, tmp_path: Path
) -> None:
    what = quick_job(tmp_path) if command == "run" else "127.0.0.1:1"
    done = melisma(command, what, "--device", "cuda:99")
    assert done.code == 2
    assert "device 'cuda:99' cannot be used" in done.err
    assert not list(tmp_path.glob("runs/*"))


@pytest.mark.parametrize("command", ["run", "join"])
def test_a_precision_that_the_device_does_not_have_is_one_line(
    command: str, melisma: Melisma, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "multiplies_bfloat16", lambda device: False)
    what = quick_job(tmp_path) if command == "run" else "127.0.0.1:1"
    done = melisma(command, what, "--precision", "bf16")
    assert done.code == 2
    assert "bf16 on 'cpu': it has no bfloat16 products" in done.err
    assert not list(tmp_path.glob("runs/*"))


@pytest.mark.parametrize("flag", [("--device", "cpu"), ("--precision", "fp32")])
def test_nodes_of_a_cluster_take_neither(
    flag: tuple[str, str], melisma: Melisma
) -> None:
    done = melisma("run", "--engine", "ray", "--address", "127.0.0.1:1", *flag)
    assert (done.code, "not for nodes" in done.err) == (2, True)
