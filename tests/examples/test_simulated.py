"""Every example is trained as its page says, and has one."""

import re
from pathlib import Path

import numpy as np
import pytest
from tests.examples.own import NAMES, job_of

import melisma as mel
from melisma.jobs.building import task_of
from melisma.learning.engines import Lesson, functional
from melisma.learning.parameters import parameters_of
from melisma.registry import imported
from melisma.units import Deadline

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("example", NAMES)
def test_an_example_learns(example: str) -> None:
    job = job_of(example, cycles=2, samples=100, deadline=Deadline(0.5))
    run = mel.simulate(job, runs=None)
    assert run.history.loss[1] < run.history.loss[0]


def test_code_is_not_adapted_to_before_there_is_a_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of("lora")
    imported("task", "lora:coder")  # is known from here on, wherever one is
    monkeypatch.chdir(tmp_path)
    with pytest.raises(mel.DataError, match=r"is missing: melisma simulate text\.toml"):
        mel.simulate(job, runs=None)


@pytest.mark.parametrize("example", NAMES)
def test_an_example_has_a_page_and_it_is_linked(example: str) -> None:
    page = ROOT / "docs" / "examples" / f"{example}.md"
    text = page.read_text("utf-8")
    assert f"{example}.toml" in text
    assert re.search(r"commit [0-9a-f]{7}\b", text)
    for link in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert (page.parent / link).exists(), link
    tasks = (ROOT / "docs" / "tasks.md").read_text("utf-8")
    assert f"(examples/{example}.md)" in tasks


def test_attention_is_mapped_and_torch_does_not_complain() -> None:
    task = task_of(job_of("text"))
    lesson = Lesson(
        task.model, parameters_of(task.model), task.taken.train, task.training
    )
    few = np.arange(4).reshape(1, 4)
    _, loss = functional(lesson, [few, few])  # warnings are errors here
    assert np.isfinite(loss).all()
