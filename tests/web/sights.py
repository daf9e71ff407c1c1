"""What tests look at on the page, and runs to look at."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.web.browser import Page

from melisma import rpc
from melisma.views.web import Dashboard


def tile(name: str) -> str:
    """A script that reads a figure of the header."""
    return (
        "[...document.querySelectorAll('.tiles > div')].find((tile) => "
        f"tile.querySelector('dt').textContent === {json.dumps(name)})"
        ".querySelector('dd').textContent"
    )


def cell(learner: str, title: str) -> str:
    """A script that reads a cell of the learners' table."""
    return (
        "(() => { const table = document.querySelector('main table');"
        "const column = [...table.tHead.rows[0].cells].findIndex((cell) => "
        f"cell.textContent === {json.dumps(title)});"
        "const row = [...table.tBodies[0].rows].find((row) => "
        f"row.cells[0].textContent === {json.dumps(learner)});"
        "return row.cells[column].textContent })()"
    )


def tab(page: Page, key: str) -> None:
    page.look(f"document.getElementById('tab-{key}').click()")


def press(page: Page, text: str) -> None:
    """Press the button that says so."""
    page.until(
        "(() => { const found = [...document.querySelectorAll('button')].find((one) =>"
        f"one.textContent === {json.dumps(text)} && one.checkVisibility());"
        "found?.click(); return !!found })()"
    )


def frame(page: Page) -> None:
    """Wait until what is there is drawn."""
    page.look(
        "new Promise((done) => requestAnimationFrame(() => setTimeout(done, 20)))"
    )


def report(page: Page, run: Path, view: str = "overview") -> None:
    """Open a run's report."""
    page.go("about:blank")
    page.go(f"file://{run}/report.html#view={view}")
    page.until(tile("scheme"))
    frame(page)


STATE = "document.querySelector('.state').textContent"
WIDTH = "document.querySelector('.lanes .space').clientWidth"
CYCLE = f"parseInt({tile('cycle')}.replace(',', ''))"


def quiet(text: str) -> None:
    """Say nothing."""


@contextmanager
def shown(root: Path, **options: Any) -> Iterator[str]:
    """Serve the runs in a folder; gives the address."""
    site = Dashboard(root)
    with rpc.serve(routes=site.routes, say=quiet, **options) as server:
        yield server.url


def events(task: str, learners: int, cycles: int) -> Iterator[bytes]:
    """Records of a run in which nothing goes wrong but with one learner in fifty."""
    for cycle in range(1, cycles + 1):
        for learner in range(learners):
            yield from _turn(f'"task":"{task}","cycle":{cycle}', cycle, learner)
        whole = f'"time_s":{cycle + 1},"task":"{task}","cycle":{cycle}'
        yield f'{{"event":"aggregated",{whole},{_MERGED}}}\n'.encode()
        yield f'{{"event":"evaluated",{whole},{_TESTED}}}\n'.encode()


def _turn(cycle: str, began_s: int, learner: int) -> Iterator[bytes]:
    def row(event: str, time_s: float, rest: str = "") -> bytes:
        head = f'"event":"{event}","time_s":{began_s + time_s:.3f},{cycle}'
        return f'{{{head},"learner":"device-{learner}"{rest}}}\n'.encode()

    yield row("allocated", 0.0, ',"samples":90,"steps":3,"predicted_s":0.9')
    if (began_s + learner) % 50 == 0:
        yield row("dropped", 1.0, ',"reason":"not there by the deadline"')
        return
    yield row("downloaded", 0.1)
    yield row("trained", 0.7 + 0.001 * learner, ',"samples":90,"batches":9,"loss":0.5')
    yield row("uploaded", 0.75 + 0.001 * learner)


_TESTED = '"metrics":{"accuracy":0.5},"loss":1.0'
_MERGED = (
    '"learners":196,"samples":17640,"cycle_s":0.95,"max_staleness":0,'
    '"mean_staleness":0.0,"truancy":0.0,"utilisation":0.8'
)
