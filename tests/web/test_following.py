"""The timeline follows the newest cycle, as long as somebody looks at it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.web.browser import Page
from tests.web.sights import CYCLE, events, frame, shown, tab

from melisma.jobs.files import dump
from melisma.jobs.schema import Job
from melisma.runs.lock import lock
from melisma.units import Deadline

pytestmark = [pytest.mark.slow, pytest.mark.browser]

LEARNERS, CYCLES = 2, 60
LANES = "document.querySelector('.lanes')"
LEFT = f"{LANES}.scrollLeft"
#: Pixels between what is seen and the end.
BEHIND = f"{LANES}.scrollWidth - {LANES}.clientWidth - {LANES}.scrollLeft"


@contextmanager
def growing(root: Path) -> Iterator[tuple[str, Callable[[int], None]]]:
    """A run under way: its address, and what goes on with it up to a cycle."""
    run = root / "going"
    run.mkdir()
    job = Job(name="going", cycles=CYCLES, deadline=Deadline(1.0))
    (run / "config.toml").write_text(dump(job))
    lines = list(events("going", LEARNERS, CYCLES))
    ends = [n for n, line in enumerate(lines, start=1) if b'"evaluated"' in line]
    records = run / "records.jsonl"
    records.touch()

    def until(cycle: int) -> None:
        past = records.read_bytes().count(b"\n")
        with records.open("ab") as file:
            file.writelines(lines[past : ends[cycle - 1]])

    with records.open("rb") as held:
        lock(held)
        with shown(root, port=0) as url:
            yield url, until


def test_who_leaves_the_overview_and_returns_follows_the_newest_cycle(
    tmp_path: Path, page: Page
) -> None:
    with growing(tmp_path) as (url, until):
        until(40)
        page.go(f"{url}/")
        page.until(f"{CYCLE} === 40")
        page.until(f"{BEHIND} < 2 && {LEFT} > 1000")
        tab(page, "learners")
        until(49)
        page.until(f"{CYCLE} === 49")
        tab(page, "overview")
        assert page.look(BEHIND) < 2
        until(55)
        page.until(f"{CYCLE} === 55")
        frame(page)
        assert page.look(BEHIND) < 2


def test_who_looks_at_an_early_cycle_finds_it_again(tmp_path: Path, page: Page) -> None:
    with growing(tmp_path) as (url, until):
        until(40)
        page.go(f"{url}/")
        page.until(f"{CYCLE} === 40")
        page.look(f"{LANES}.scrollLeft = 300")
        frame(page)
        tab(page, "curves")
        until(49)
        page.until(f"{CYCLE} === 49")
        tab(page, "overview")
        frame(page)
        assert page.look(LEFT) == 300
