import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from papers import pages, store
from papers.kit import Data, Exhibit, Paper, Spread, Variant
from papers.regenerate import available, judge, regenerate
from papers.spread import spread_over
from papers.tsdcfl_testbed import BED, Scheme, planned
from tests.papers import toy

from melisma.comparison.sweeps import Engine, Tick, in_turn, over_processes
from melisma.errors import ConfigError, DataError, LostError
from melisma.learning import data

QUICK, FULL = Variant.QUICK, Variant.FULL


def counted(exhibit: Exhibit[toy.Study]) -> tuple[Exhibit[toy.Study], list[toy.Study]]:
    """The exhibit, and of what studies it was really run."""
    seen: list[toy.Study] = []

    def run(study: toy.Study, spread: Spread) -> Data:
        seen.append(study)
        return toy.run(study, spread)

    return replace(exhibit, run=run), seen


def made(paper: Paper, variant: Variant, root: Path, **options: Any) -> str:
    page, _ = regenerate(
        paper,
        variant,
        runs=root / "runs",
        docs=root / "docs",
        shipped=root / "docs",
        **options,
    )
    return page.read_text()


def test_a_second_time_nothing_is_run(tmp_path: Path) -> None:
    exhibit, seen = counted(toy.FIGURE)
    paper = replace(toy.PAPER, exhibits=(exhibit,))
    first, second = (made(paper, QUICK, tmp_path) for _ in range(2))
    assert seen == [toy.Study()]
    assert first == second


def test_a_changed_study_is_run(tmp_path: Path) -> None:
    exhibit, seen = counted(toy.FIGURE)
    for study in (toy.Study(), toy.Study(scale=2.0)):
        paper = replace(toy.PAPER, exhibits=(replace(exhibit, quick=study),))
        made(paper, QUICK, tmp_path)
    assert seen == [toy.Study(), toy.Study(scale=2.0)]


def test_exhibits_share_a_run(tmp_path: Path) -> None:
    exhibit, seen = counted(toy.FIGURE)
    twin = replace(exhibit, name="1.2", file="fig1.2")
    made(replace(toy.PAPER, exhibits=(exhibit, twin)), QUICK, tmp_path)
    assert len(seen) == 1


def test_what_is_kept_is_what_was_found(tmp_path: Path) -> None:
    first, second = (
        store.result(tmp_path, toy.run, toy.Study(), in_turn)["drawn"] for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)
    assert len(list(tmp_path.glob("*.npz"))) == 1


def test_a_damaged_result_is_named(tmp_path: Path) -> None:
    store.result(tmp_path, toy.run, toy.Study(), in_turn)
    (file,) = tmp_path.glob("*.npz")
    file.write_bytes(b"no archive")
    with pytest.raises(DataError, match=rf"{file.name}.*delete it"):
        store.result(tmp_path, toy.run, toy.Study(), in_turn)


def test_a_run_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def run(study: toy.Study, spread: Spread) -> Data:
        raise ConfigError("no such thing")

    with pytest.raises(ConfigError):
        store.result(tmp_path, run, toy.Study(), in_turn)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_results_do_not_depend_on_the_number_of_processes(
    tmp_path: Path, processes: int
) -> None:
    here = toy.run(toy.Study(trials=5))["drawn"]
    with over_processes(processes) as engine:
        there = store.result(tmp_path, toy.run, toy.Study(trials=5), engine)["drawn"]
    np.testing.assert_array_equal(here, there)


def stopped_after(ended: int, done: list[int]) -> Engine:
    """An engine that Ctrl-C ends, and the trials that it did."""

    def engine(
        trial: Callable[..., Any], todo: Sequence[Any], tick: Tick = lambda: None
    ) -> Iterator[tuple[int, Any]]:
        for place, result in in_turn(trial, todo, tick):
            if place == ended:
                raise KeyboardInterrupt
            done.append(todo[place][0])
            yield place, result

    return engine


def test_a_run_that_is_stopped_goes_on_with_the_trials_that_are_missing(
    tmp_path: Path,
) -> None:
    first: list[int] = []
    rest: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        store.result(tmp_path, toy.run, toy.Study(), stopped_after(3, first))
    assert [path.suffix for path in tmp_path.iterdir()] == [".parts"]
    found = store.result(tmp_path, toy.run, toy.Study(), stopped_after(99, rest))
    assert (first, rest) == ([0, 1, 2], [3])
    assert "took" not in store.made(store.file_of(tmp_path, toy.run, toy.Study()))
    np.testing.assert_array_equal(found["drawn"], toy.run(toy.Study())["drawn"])
    assert not list(tmp_path.glob("*.parts"))


def test_trials_of_other_things_are_not_taken_for_done(tmp_path: Path) -> None:
    spread_over(in_turn, tmp_path, lambda trials: lambda: None)(toy.draw_of, [(0, 1.0)])
    again = spread_over(in_turn, tmp_path, lambda trials: lambda: None)
    assert again(toy.draw_of, [(1, 1.0)]) == [toy.draw_of((1, 1.0))]


def test_each_spread_of_a_run_has_its_own_trials(tmp_path: Path) -> None:
    for _ in range(2):  # the second time from the folder
        spread = spread_over(in_turn, tmp_path, lambda trials: lambda: None)
        assert spread(toy.draw_of, [(0, 1.0)]) == [toy.draw_of((0, 1.0))]
        assert spread(toy.draw_of, [(0, 2.0)]) == [toy.draw_of((0, 2.0))]
    assert len(list(tmp_path.iterdir())) == 2


def test_plans_that_have_no_form_are_made_again(tmp_path: Path) -> None:
    for _ in range(2):
        spread = spread_over(in_turn, tmp_path, lambda trials: lambda: None)
        (plan,) = spread(planned, [(BED, "CR", 1, 80)])
        assert isinstance(plan, Scheme)
        assert plan.shuffled
    assert not list(tmp_path.iterdir())


def test_trials_are_counted_as_they_end(tmp_path: Path) -> None:
    told: list[object] = []

    def begin(trials: int) -> Any:
        told.append(trials)
        return lambda: told.append("end")

    store.result(tmp_path, toy.run, toy.Study(trials=3), in_turn, begin)
    assert told == [3, "end", "end", "end"]


def fails(number: int) -> int:
    raise ConfigError(f"trial {number} cannot be")


def test_what_a_trial_raises_is_raised(tmp_path: Path) -> None:
    spread = spread_over(in_turn, tmp_path, lambda trials: lambda: None)
    with pytest.raises(ConfigError, match="trial 0 cannot be"):
        spread(fails, [0])


def test_a_trial_that_is_lost_ends_the_run_and_keeps_the_others(tmp_path: Path) -> None:
    def engine(
        trial: Callable[..., Any], todo: Sequence[Any], tick: Tick = lambda: None
    ) -> Iterator[tuple[int, Any]]:
        yield 0, trial(todo[0], tick)
        yield 1, LostError("lost 3 times")

    spread = spread_over(engine, tmp_path, lambda trials: lambda: None)
    with pytest.raises(LostError, match="lost 3 times"):
        spread(toy.draw_of, [(0, 1.0), (1, 1.0)])
    assert len(list(tmp_path.iterdir())) == 1


def test_no_row_is_without_a_number(tmp_path: Path) -> None:
    page = made(toy.PAPER, QUICK, tmp_path)
    rows = [line.split(" | ") for line in page.splitlines() if " | quick | " in line]
    assert len(rows) == 6
    for row in rows:
        number, *half = row[4].removesuffix(" m").split(" ± ")
        assert float(number) > 0
        assert all(float(one) > 0 for one in half)
        assert row[5] in ("**holds**", "**holds weaker**")
        assert row[1] in ("paper", "given")


def test_the_page_names_command_time_differences_figures_and_study(
    tmp_path: Path,
) -> None:
    page = made(toy.PAPER, QUICK, tmp_path)
    for text in (
        "melisma papers run toy --quick",
        "No time at all.",
        "1. It is no paper.",
        "![Figure 1.1, quick](toy/fig1.1_numbers.png)",
        "4 trials on mnist-5k.",
        "| first | ",
        "took 0 s",
        "trials = 4, scale = 1.0",
        "it is a toy",
    ):
        assert text in page, text
    assert (tmp_path / "docs/toy/fig1.1_numbers.png").stat().st_size > 1000


def test_both_variants_are_shown_once_both_were_run(tmp_path: Path) -> None:
    made(toy.PAPER, FULL, tmp_path)
    page = made(toy.PAPER, QUICK, tmp_path)
    assert "toy/fig1.1_numbers.png" in page
    assert "toy/fig1.1_numbers_full.png" in page
    assert page.count("| full |") == page.count("| quick |") == 6


def test_what_a_changed_study_came_to_before_is_not_shown(tmp_path: Path) -> None:
    made(toy.PAPER, FULL, tmp_path)
    changed = replace(toy.FIGURE, full=toy.Study(trials=9))
    page = made(replace(toy.PAPER, exhibits=(changed, toy.TABLE)), QUICK, tmp_path)
    assert "fig1.1_numbers_full.png" not in page
    assert page.count("| full |") == 3


def test_one_figure_alone_leaves_the_others_as_they_were(tmp_path: Path) -> None:
    made(toy.PAPER, QUICK, tmp_path)
    exhibit, seen = counted(toy.FIGURE)
    page = made(
        replace(toy.PAPER, exhibits=(exhibit, toy.TABLE)), QUICK, tmp_path, figure="II"
    )
    assert not seen
    assert "## Figure 1.1" in page
    assert "## Table II" in page


def test_equal_variants_are_shown_once(tmp_path: Path) -> None:
    same = replace(toy.FIGURE, full=toy.FIGURE.quick)
    page = made(replace(toy.PAPER, exhibits=(same,)), FULL, tmp_path)
    assert "full |" not in page


def test_an_unknown_figure_is_named_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"toy '1\.2': did you mean '1\.1'"):
        made(toy.PAPER, QUICK, tmp_path, figure="1.2")


@pytest.fixture
def only_5k(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> None:
        if name != "mnist-5k":
            raise DataError(f"no {name} here")

    monkeypatch.setattr(data, "load", load)


@pytest.mark.usefixtures("only_5k")
def test_a_study_on_what_is_there_stands_in(tmp_path: Path) -> None:
    missing, there = toy.Study(dataset="mnist"), toy.Study()
    either = replace(toy.FIGURE, quick=missing, embedded=there, full=missing)
    said: list[str] = []
    assert available(either, QUICK, tmp_path, said.append) == there
    (warning,) = said
    assert "is made with mnist-5k in place of mnist: no mnist here" in warning
    assert available(toy.FIGURE, QUICK, tmp_path) == there
    with pytest.raises(DataError, match="no mnist here"):
        available(either, FULL, tmp_path)


@pytest.mark.usefixtures("only_5k")
def test_what_was_run_is_drawn_again_without_its_data_set(tmp_path: Path) -> None:
    missing = toy.Study(dataset="mnist")
    either = replace(toy.FIGURE, quick=missing, embedded=toy.Study())
    store.result(tmp_path, either.run, missing, in_turn)
    assert available(either, QUICK, tmp_path) == missing


def test_the_gallery_shows_every_paper(tmp_path: Path) -> None:
    for key in ("toy", "game"):
        made(replace(toy.PAPER, key=key), QUICK, tmp_path)
    gallery = (tmp_path / "docs/gallery.md").read_text()
    assert "[A toy](toy.md)" in gallery
    assert "![Figure 1.1](game/fig1.1_numbers.png)" in gallery
    assert (
        "Claims of the papers: 8 (holds 4, holds weaker 4, does not hold 0, not "
        "decided 0). Given by construction or calibration: 4 (holds 4, holds weaker 0, "
        "does not hold 0, not decided 0)." in gallery
    )


def test_the_index_has_the_main_claims_and_leads_to_their_rows(tmp_path: Path) -> None:
    page = made(toy.PAPER, QUICK, tmp_path)
    index = (tmp_path / "docs/README.md").read_text()
    (line,) = [line for line in index.splitlines() if "Much is drawn" in line]
    assert "[holds weaker](toy.md#figure-1-1-much-of-it)" in line
    assert "it is a toy" in line
    assert page.count('<a id="figure-1-1-much-of-it"></a>much of it') == 1
    assert "| [A toy](toy.md) | 2 | 2 | 0 | 0 | 0 of 0 | 2 of 2 |" in index


def test_a_main_claim_that_was_not_run_is_said(tmp_path: Path) -> None:
    made(toy.PAPER, QUICK, tmp_path, figure="II")
    index = (tmp_path / "docs/README.md").read_text()
    assert "| Much is drawn |  |  | not run |  |" in index


def test_small_trials_are_shipped_and_judged_without_a_run(tmp_path: Path) -> None:
    page = made(toy.PAPER, QUICK, tmp_path)
    (file,) = (tmp_path / "docs/toy/trials").glob("*.npz")
    assert f"raw trials are [kept](toy/trials/{file.name})" in page
    shutil.rmtree(tmp_path / "runs")
    # Another rule is another verdict, of the same trials.
    stricter = replace(toy.FIGURE, claims=lambda data: toy.claims(data)[:1])
    paper = replace(toy.PAPER, exhibits=(stricter, toy.TABLE))
    again = judge(paper, tmp_path / "docs").read_text()
    assert again.count("| quick |") == 4
    assert judge(toy.PAPER, tmp_path / "docs").read_text() == page


def test_trials_that_are_shipped_are_drawn_without_a_run(tmp_path: Path) -> None:
    made(toy.PAPER, QUICK, tmp_path)
    shutil.rmtree(tmp_path / "runs")
    exhibit, seen = counted(toy.FIGURE)
    made(replace(toy.PAPER, exhibits=(exhibit,)), QUICK, tmp_path)
    assert not seen


def test_large_trials_are_not_shipped_and_their_rows_judged_as_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SMALL_BYTES", 10)
    page = made(toy.PAPER, QUICK, tmp_path)
    assert not (tmp_path / "docs/toy/trials").exists()
    assert "raw trials are not kept" in page
    file = pages.results_file(tmp_path / "docs", "toy")
    good = file.read_text()
    assert '"verdict": "holds weaker"' in good
    file.write_text(good.replace('"verdict": "holds weaker"', '"verdict": "holds"'))
    assert judge(toy.PAPER, tmp_path / "docs").read_text() == page
    assert file.read_text() == good


def test_nothing_is_judged_where_nothing_is_kept(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing is kept of toy: run it first"):
        judge(toy.PAPER, tmp_path)


def test_a_damaged_page_is_named(tmp_path: Path) -> None:
    made(toy.PAPER, QUICK, tmp_path)
    pages.results_file(tmp_path / "docs", "toy").write_text("{")
    with pytest.raises(DataError, match=r"results\.json.*delete it"):
        made(toy.PAPER, QUICK, tmp_path)
