"""Pictures of runs: drawn on the page, and saved from there as SVG and PNG."""

import json
import re
import time
from itertools import permutations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest
from matplotlib.image import imread
from tests.views.test_fog import leave, moved
from tests.views.test_page import happened
from tests.views.test_page import leave as leave_plain
from tests.web.browser import PATIENCE_S, Page
from tests.web.sights import events, frame, press, report, shown, tile

from melisma import views as runs
from melisma.jobs.files import dump
from melisma.jobs.schema import Job
from melisma.runs.records import Record
from melisma.units import Deadline
from melisma.views.history import history

pytestmark = [pytest.mark.slow, pytest.mark.browser]

SVG = "{http://www.w3.org/2000/svg}"
SEEN = "[...document.querySelectorAll('.save')].filter((one) => one.checkVisibility())"
SAID = "document.querySelector('main figure .said').textContent"


def save(page: Page, folder: Path, place: int, kind: str) -> Path:
    """Press a button of the picture at a place of the page; returns its file."""
    folder.mkdir(exist_ok=True)
    page.downloads(folder)
    page.look(
        f"[...{SEEN}[{place}].querySelectorAll('button')].find((one) => "
        f"one.textContent === {json.dumps(kind.upper())}).click()"
    )
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        files = list(folder.iterdir())  # while it is written, it has another name
        if [file.suffix for file in files] == [f".{kind}"] and files[0].stat().st_size:
            return files[0].rename(folder.parent / files[0].name)
        time.sleep(0.02)
    raise AssertionError(f"nothing was saved: {page.text()}")


def drawing(page: Page, folder: Path, place: int = 0) -> ElementTree.Element:
    """What is saved as SVG."""
    return ElementTree.parse(save(page, folder / "one", place, "svg")).getroot()


def texts(root: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{SVG}text")]


def area(path: str) -> float:
    """Pixels of a path's boxes."""
    boxes = re.findall(r"h([\d.]+)v([\d.]+)", path)
    return sum(float(width) * float(height) for width, height in boxes)


@pytest.mark.parametrize(
    ("name", "view", "pictures"),
    [
        ("demo", "overview", ["timeline", "test-accuracy-by-cycle"]),
        ("demo", "allocation", ["samples-allocated"]),
        ("demo", "predictions", ["each-learner-in-each-cycle"]),
        ("coded", "coded", ["who-answered", "when-the-gradient-was-known"]),
        ("tasks", "overview", ["timeline", "test-accuracy-by-time"]),
        (
            *("fog", "overview"),
            [
                *("test-accuracy-by-cycle", "test-loss-by-cycle", "who-sent-to-whom"),
                *("what-became-of-the-samples-collected", "cost-per-sample-collected"),
            ],
        ),
    ],
)
def test_what_is_seen_is_saved(
    made: Path, page: Page, tmp_path: Path, name: str, view: str, pictures: list[str]
) -> None:
    report(page, made / name, view)
    assert page.look(f"{SEEN}.length") >= len(pictures)
    for place, picture in enumerate(pictures):
        vector = save(page, tmp_path / "one", place, "svg")
        bitmap = save(page, tmp_path / "one", place, "png")
        assert (vector.stem, bitmap.stem) == (f"{name}-{picture}",) * 2
        root = ElementTree.parse(vector).getroot()
        pixels = imread(bitmap)
        # A PNG is three times as fine as the SVG is said to be.
        size = [float(root.get(side, "0")) for side in ("height", "width")]
        assert list(pixels.shape[:2]) == [3 * side for side in size]
        assert min(size) > 150
        assert len(list(root.iter(f"{SVG}path"))) > 5
        assert len(texts(root)) > 5
        # Nothing shows through, corners are white, and something is drawn.
        assert pixels[..., 3].min() == 1.0
        assert (pixels[[0, 0, -1, -1], [0, -1, 0, -1], :3] == 1.0).all()
        assert 0.002 < np.mean(pixels[..., :3].min(axis=-1) < 0.6) < 0.6
    assert page.errors == []


def test_a_page_that_is_served_saves_too(
    made: Path, page: Page, tmp_path: Path
) -> None:
    with shown(made, port=0) as url:
        page.go(f"{url}/#run=demo")
        page.until(f"{tile('scheme')} === 'csa'")
        frame(page)
        assert imread(save(page, tmp_path / "one", 0, "png")).shape[1] > 2000
        assert page.errors == []


def test_axes_are_labelled_with_their_units(
    made: Path, page: Page, tmp_path: Path
) -> None:
    report(page, made / "demo", "curves")
    labels = [set(texts(drawing(page, tmp_path, place))) for place in range(9)]
    assert labels[0] >= {"cycle", "test accuracy (%)", "1", "2", "3"}
    assert labels[3] >= {"time on the learners' clock (s)", "test loss"}
    assert labels[4] >= {"staleness (epochs)", "largest", "mean"}
    report(page, made / "async", "curves")
    drawn = [set(texts(drawing(page, tmp_path, place))) for place in range(5)]
    assert any("staleness (versions)" in found for found in drawn)
    assert page.look(tile("deadline of an order")) == "30 s"
    report(page, made / "demo", "predictions")
    frame(page)
    found = texts(drawing(page, tmp_path))
    assert {"predicted (s)", "measured (s)", "deadline 1 s"} <= set(found)


def test_a_line_goes_through_the_accuracies(
    made: Path, page: Page, tmp_path: Path
) -> None:
    report(page, made / "demo", "curves")
    root = drawing(page, tmp_path)
    (line,) = [
        path for path in root.iter(f"{SVG}path") if path.get("stroke") == "#0072B2"
    ]
    points = np.array(re.findall(r"[ML]([\d.]+) ([\d.]+)", line.get("d", "")), float)
    _, records = runs.read(made / "demo")
    accuracies = history(records).metric
    # Pixels are a linear map of accuracies, upside down.
    assert np.corrcoef(points[:, 1], accuracies)[0, 1] == pytest.approx(-1.0, abs=1e-4)
    assert np.diff(points[:, 0], n=2) == pytest.approx(0.0, abs=0.02)


def saved(page: Page, run: Path, view: str, folder: Path) -> list[str]:
    """All pictures of a view as SVG; clips are numbered anew each time."""
    report(page, run, view)
    places = range(page.look(f"{SEEN}.length"))
    files = [save(page, folder / "one", place, "svg") for place in places]
    return [re.sub(r"clip-\d+", "clip", file.read_text("utf-8")) for file in files]


@pytest.mark.parametrize(
    ("name", "view"),
    [("demo", "overview"), ("demo", "allocation"), ("fog", "overview")],
)
def test_paper_is_light_when_the_page_is_dark(
    made: Path, page: Page, tmp_path: Path, name: str, view: str
) -> None:
    light = saved(page, made / name, view, tmp_path)
    page.screen(1280, 900, dark=True)
    dark = saved(page, made / name, view, tmp_path)
    assert page.look("document.documentElement.dataset.theme") == "dark"
    assert light
    assert dark == light


def test_names_that_xml_cannot_hold_are_drawn_all_the_same(
    page: Page, tmp_path: Path
) -> None:
    evil = "<b>\x01 &amp; \N{SNOWMAN}"
    run = leave_plain(tmp_path / "made", happened(["a", evil, "c"], cycles=2))
    runs.write(run)
    report(page, run)
    found = texts(drawing(page, tmp_path))
    assert {"a", "<b>\N{REPLACEMENT CHARACTER} &amp; \N{SNOWMAN}", "c"} <= set(found)


def big(folder: Path, learners: int, cycles: int) -> Path:
    """A run in which one update in fifty is lost."""
    folder.mkdir()
    job = Job(name="big", cycles=cycles, deadline=Deadline(1.0))
    (folder / "config.toml").write_text(dump(job))
    with (folder / "records.jsonl").open("wb") as file:
        file.writelines(events("big", learners, cycles))
    runs.write(folder)
    return folder


def test_a_timeline_is_saved_as_far_as_it_is_seen(page: Page, tmp_path: Path) -> None:
    report(page, big(tmp_path / "big", 40, 60))
    found = texts(drawing(page, tmp_path))
    assert {"cycle 1", "cycle 6", "time since the order", "1 s"} <= set(found)
    assert not {"cycle 8", "device-39", "halted", "does not count"} & set(found)


def test_of_a_long_run_cells_show_what_was_lost(page: Page, tmp_path: Path) -> None:
    report(page, big(tmp_path / "big", 40, 60))
    press(page, "all")
    frame(page)
    root = drawing(page, tmp_path)
    assert {"used of the deadline 0", "100 %", "does not count"} <= set(texts(root))
    lost = sum((cycle + i) % 50 == 0 for cycle in range(1, 61) for i in range(40))
    cells = [
        path
        for path in root.iter(f"{SVG}path")
        if path.get("shape-rendering") == "crispEdges"
    ]
    areas = {path.get("fill"): area(path.get("d", "")) for path in cells}
    share = areas["#d55e00"] / sum(areas.values())
    assert share == pytest.approx(lost / (40 * 60), rel=0.01)


def test_arrow_keys_say_a_charts_values(made: Path, page: Page) -> None:
    report(page, made / "tasks", "curves")
    page.look("document.querySelector('main canvas[tabindex]').focus()")
    page.key("ArrowRight", 2)
    said = page.look(SAID)
    assert re.fullmatch(
        r"cycle 2: digits [\d.]+, digits-deep [\d.]+, latecomer [\d.]+", said
    )


def drag(page: Page, *across: float) -> None:
    """Press in the first chart, pull, and let go; places are shares of its width."""
    left, top, width = page.look(
        "(({ left, top, width }) => [left, top, width])"
        "(document.querySelector('main canvas[tabindex]').getBoundingClientRect())"
    )
    for kind, share in zip(
        ("mousePressed", "mouseMoved", "mouseReleased"),
        (across[0], across[1], across[1]),
        strict=True,
    ):
        spot: dict[str, Any] = {"x": left + share * width, "y": top + 60}
        page.call(
            "Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **spot
        )


def test_a_chart_is_zoomed_into_and_a_line_is_hidden(
    made: Path, page: Page, tmp_path: Path
) -> None:
    report(page, made / "tasks", "curves")
    assert {"1", "3"} <= set(texts(drawing(page, tmp_path)))
    drag(page, 0.4, 0.8)
    press(page, "latecomer")
    root = drawing(page, tmp_path)
    assert {"digits", "2"} <= set(texts(root))
    assert not {"latecomer", "1", "3"} & set(texts(root))


def test_a_chart_is_zoomed_into_by_keys(made: Path, page: Page, tmp_path: Path) -> None:
    report(page, made / "tasks", "curves")
    page.look("document.querySelector('main canvas[tabindex]').focus()")
    page.key("ArrowRight")
    page.key("+")
    assert "3" not in texts(drawing(page, tmp_path))
    page.key("Escape")
    assert {"1", "2", "3"} <= set(texts(drawing(page, tmp_path)))


def fog(folder: Path, rows: list[Record], **job: Any) -> Path:
    run = leave(folder, rows, **job)
    runs.write(run)
    return run


def test_of_many_arrows_the_widest_are_shown(page: Page, tmp_path: Path) -> None:
    # 12 · 11 = 132 arrows of 1, 2, … samples; the widest 120 are all but 1 + … + 12.
    pairs = list(permutations(range(12), 2))
    rows: list[Record] = [
        moved(
            *(1, f"d{i}"),
            {f"d{to}": n for n, (at, to) in enumerate(pairs, start=1) if at == i},
            collected=2000,
        )
        for i in range(12)
    ]
    report(page, fog(tmp_path / "made", rows))
    assert page.look("document.querySelectorAll('svg path.flow').length") == 120
    share = round(100 * (1 - 78 / (132 * 133 / 2)))
    note = f"the 120 widest of 132 arrows, {share} % of what was sent"
    assert note in page.text()


def test_many_devices_are_a_matrix_of_groups(page: Page, tmp_path: Path) -> None:
    # Device i sends i + 1 samples to d0: who sends least trains on most, so that by
    # rank d0 and d1 are a group, d2 and d3, …, and d100 is alone.
    rows: list[Record] = [
        moved(1, f"d{i}", {"d0": i + 1} if i else {}, collected=200) for i in range(101)
    ]
    report(page, fog(tmp_path / "made", rows))
    assert "101 devices in groups of 2." in page.text()
    matrix = "[...document.querySelectorAll('figure.full')].find((one) => "
    matrix += "one.textContent.includes('from row to column'))"
    page.look(f"{matrix}.querySelector('canvas[tabindex]').focus()")
    said = []
    for key, times in (("ArrowRight", 1), ("ArrowDown", 1), ("ArrowDown", 60)):
        page.key(key, times)
        said.append(page.look(f"{matrix}.querySelector('.said').textContent"))
    assert said == [
        "d0 …, to d0 …: 2 samples",
        "d2 …, to d0 …: 7 samples",
        "d100 …, to d0 …: 101 samples",
    ]


def test_a_yardstick_without_costs_has_no_picture_of_them(
    page: Page, tmp_path: Path
) -> None:
    free = {"process_cost": 0.0, "transfer_cost": 0.0, "error_cost": 0.0}
    row = msgspec.structs.replace(moved(1, "central", {}), **free)
    report(page, fog(tmp_path / "made", [row], scheme="fog:central"))
    assert "What became of the samples collected" in page.text()
    assert "Cost per sample collected" not in page.text()
