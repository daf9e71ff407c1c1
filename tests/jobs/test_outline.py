"""What the orchestrator tells learners without PyTorch, and which jobs it refuses."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from melisma.errors import ConfigError
from melisma.fleets.messages import Outline
from melisma.fleets.served import ModelServer
from melisma.jobs.files import load
from melisma.jobs.live_task import LiveTask
from melisma.jobs.schema import Job
from melisma.jobs.wire_table import WireTable
from melisma.launch.simulate import opened
from melisma.learning.losses import OwnTraining

DEMO = Path(__file__).parents[2] / "examples" / "demo.toml"


def live_of(**changes: Any) -> LiveTask:
    job: Job = msgspec.structs.replace(load(DEMO), **changes)
    with opened(job, None, {}) as runs:
        live = LiveTask.of(job, runs[job.name])
    live.offer_outline()
    return live


def test_the_outline_of_a_task_is_made_once_and_has_what_travels() -> None:
    live = live_of()
    server = ModelServer([live.served])
    outline = server.outline("demo")
    assert outline is server.outline("demo")
    assert isinstance(outline, Outline)
    assert [layer.kind for layer in outline.layers][-1] == "Linear"
    assert {n: s.shape for n, s in outline.parameters.items()} == {
        n: [*p.shape] for n, p in live.served.parameters.items()
    }
    assert type(outline.training) is not OwnTraining
    assert outline.training == live.announcement.spec.training
    assert outline.fields["x"].shape == [1, 28, 28]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"checks": 0.5}, "checks of work"),
        ({"wire": WireTable(up="int8")}, "codecs fp32 and int8"),
        ({"scheme": "coded"}, "scheme 'coded'"),
    ],
)
def test_what_a_browser_cannot_do_is_refused_by_name(
    changes: dict[str, Any], reason: str
) -> None:
    live = live_of(**changes)
    assert live.served.outline is not None
    with pytest.raises(ConfigError, match=reason):
        live.served.outline()


def test_a_task_without_an_outline_says_so() -> None:
    live = live_of()
    live.served.outline = None
    with pytest.raises(ConfigError, match="use a Python learner"):
        ModelServer([live.served]).outline("demo")
