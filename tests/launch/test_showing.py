"""What a notebook's cell is shown of a run, from its records alone."""

import re
from typing import Any

import melisma as mel
from melisma.launch.showing import Showing
from melisma.runs.store import ignore
from melisma.views.notebook import WIDTH

JOB = mel.Job(cycles=3000)


def shown() -> tuple[Showing, mel.Control]:
    control = mel.Control()
    return Showing(JOB, None, None, control), control


def evaluated(cycle: int) -> mel.Evaluated:
    return mel.Evaluated(
        time_s=float(cycle), task="demo", cycle=cycle, metrics={"accuracy": 0.5}, loss=1
    )


def numbers(page: str) -> list[int]:
    return [int(number) for number in re.findall(r"<tr><td>(\d+)</td>", page)]


def test_a_cycle_that_is_done_again_replaces_what_followed() -> None:
    run, _ = shown()
    for cycle in (1, 2, 3, 4, 2):
        run._take(evaluated(cycle))
    assert numbers(run._page()) == [1, 2]
    assert "running, 2 of 3000 cycles, in memory" in run._page()


def test_it_says_what_the_run_waits_for_until_it_goes_on() -> None:
    run, control = shown()
    run._take(mel.Waited(time_s=0, task="demo", cycle=1, reason="batteries are low"))
    assert "<p>cycle 1 waits: batteries are low</p>" in run._page()
    control.pause()
    assert "<p>paused</p>" in run._page()
    control.resume()
    facts: dict[str, Any] = {"time_s": 0, "task": "demo", "cycle": 1, "learner": "pi"}
    run._take(mel.Allocated(**facts, samples=1, steps=1, predicted_s=1.0))
    assert "waits" not in run._page()


def test_a_long_run_has_a_line_of_no_more_points_than_pixels() -> None:
    run, _ = shown()
    run._kept = [evaluated(cycle) for cycle in range(1, 3001)]
    (line,) = re.findall(r'points="([^"]*)"', run._page())
    assert WIDTH / 2 < len(line.split()) <= WIDTH
    assert line.split()[-1].startswith(f"{WIDTH - 4:.1f},")
    assert ">1.00 s<" in run._page()


def test_who_watches_a_run_shows_it_and_nobody_does_without_a_notebook() -> None:
    records = list[object]()
    assert Showing(JOB, None, records.append, mel.Control()).watch == records.append
    run, _ = shown()
    assert run.watch is ignore
