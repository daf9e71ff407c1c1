"""A run as a notebook shows it."""

import re
from pathlib import Path
from xml.etree import ElementTree

import msgspec

import melisma as mel
from melisma.units import Deadline

QUICK = mel.Job(cycles=7, samples=400, deadline=Deadline(0.3))


def shown(run: mel.Run) -> ElementTree.Element:
    """Return what a notebook shows, which must be well-formed."""
    return ElementTree.fromstring(run._repr_html_())


def cells(page: ElementTree.Element) -> list[list[str]]:
    return [["".join(cell.itertext()) for cell in row] for row in page.iter("tr")]


def test_a_run_shows_its_last_cycles_and_its_metric_against_time() -> None:
    run = mel.simulate(QUICK, runs=None)
    page = shown(run)
    head, *rows = cells(page)
    assert head == ["cycle", "time (s)", "accuracy (%)", "loss"]
    assert [row[0] for row in rows] == ["3", "4", "5", "6", "7"]
    assert rows[-1][2] == f"{100 * run.history.metric[-1]:.2f}"
    (line,) = page.iter("polyline")
    assert len(line.attrib["points"].split()) == 7
    (title,) = page.iter("title")
    assert re.fullmatch(r"accuracy \(%\) from .* to .* in .* s", title.text or "")


def test_who_shows_a_run_again_sees_what_has_happened_since(tmp_path: Path) -> None:
    seen: list[int] = []

    def watch(record: object) -> None:
        if isinstance(record, mel.Evaluated):
            seen.append(len(cells(shown(mel.open(tmp_path / "demo")))) - 1)

    mel.simulate(QUICK, runs=tmp_path, watch=watch)
    assert seen == sorted(seen)
    assert len(cells(shown(mel.open(tmp_path / "demo")))) - 1 == 5


def test_several_tasks_have_a_table_each() -> None:
    file = Path(__file__).parents[2] / "examples" / "tasks.toml"
    job = msgspec.structs.replace(mel.load(file), cycles=1)
    run = mel.simulate(job, runs=None)
    assert len(list(shown(run).iter("table"))) == len(run.tasks) > 1


def test_names_are_text_and_no_markup() -> None:
    run = mel.Run(msgspec.structs.replace(QUICK, scheme="<script>"))
    page = shown(run)
    assert "<script>" in "".join(page.itertext())
    assert not list(page.iter("script"))
    assert "no cycle yet" in "".join(page.itertext())


def test_a_comparison_shows_its_table(tmp_path: Path) -> None:
    comparison = mel.compare(QUICK, ["csa", "eta"], seeds=1, runs=tmp_path)
    page = ElementTree.fromstring(comparison._repr_html_())
    assert "".join(page.itertext()) == comparison.table()
