"""`melisma costs`: what is wrong is said before anything is measured."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.running import Melisma, quick_job
from tests.testbed.places import real

from melisma.fog import traces
from melisma.testbed import Device


def test_who_is_not_root_is_told_so(
    melisma: Melisma, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    result = melisma("costs")
    assert result.code == 2
    assert result.err == "melisma: emulated devices need root (this is user 1000)\n"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--devices", "pi1,pi9"], "unknown device 'pi9': did you mean"),
        (["--link", "wify"], "unknown link 'wify': did you mean 'wifi'"),
        (["--slot", "soon"], "'soon' is not a number and a unit"),
        (["--slots", "0"], "--slots"),
        (["no.toml"], "no.toml: No such file"),
    ],
)
def test_a_wrong_word_is_named(melisma: Melisma, words: list[str], why: str) -> None:
    result = melisma("costs", *words)
    assert result.code == 2
    assert why in result.err
    assert result.err.count("\n") == 1


@real
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--devices", "pi1"], "1 devices: give two at least"),
        (["--out", "job.toml"], "job.toml is there: give a new file"),
        (["--out", "no/costs.csv"], "no is no folder"),
        (["--samples", "5001"], "5001 samples: the job has 4000"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    melisma: Melisma, tmp_path: Path, words: list[str], why: str
) -> None:
    result = melisma("costs", quick_job(tmp_path), *words)
    assert (result.code, result.out) == (2, "")
    assert why in result.err
    assert not (tmp_path / "costs.csv").exists()


def test_what_is_asked_for_is_measured_and_told(
    melisma: Melisma, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def measure(job: Any, devices: Sequence[Device], path: Path, **keys: Any) -> None:
        asked.update(keys, devices=[(d.name, d.link and d.link.name) for d in devices])
        asked.pop("watch")(2)
        traces.write(path, traces.Trace(sample_s=np.full((2, 2, 2), 0.125)))

    monkeypatch.setattr("melisma.launch.costs.measure", measure)
    words = ["--devices", "pi1,jetson-nano", "--slots", "2", "--samples", "5"]
    words += ["--slot", "250 ms", "--link", "lte", "--out", "new.csv"]
    result = melisma("costs", *words)
    assert result.code == 0
    assert asked == {
        "devices": [("pi1", "lte"), ("jetson-nano", "lte")],
        "slots": 2,
        "samples": 5,
        "slot_s": 0.25,
    }
    assert 'costs = "new.csv" in [fog]' in result.out
    assert "jetson-nano" in result.out
