"""`--help` of every command has the texts of the source, as they are written there."""

import inspect
from collections.abc import Iterator
from typing import Annotated, Any, get_type_hints

import pytest
import typer
from tests.cli.running import Melisma
from typer.testing import CliRunner

from melisma.cli import app
from melisma.cli.help import Command, Group


def pages(group: typer.Typer, *words: str) -> Iterator[tuple[str, list[str]]]:
    """Each command by its words, with what its help is to show."""
    texts = [str(group.info.help)]
    for info in group.registered_commands:
        described = inspect.getdoc(info.callback) or ""
        texts.append(described.split("\n\n")[0])
        yield " ".join((*words, str(info.name))), [described, *options(info.callback)]
    for sub in group.registered_groups:
        assert sub.typer_instance
        texts.append(str(sub.typer_instance.info.help))
        yield from pages(sub.typer_instance, *words, str(sub.name))
    yield " ".join(words), texts


def options(function: Any) -> list[str]:
    hints = get_type_hints(function, include_extras=True)
    del hints["return"]
    return [hint.__metadata__[0].help for hint in hints.values()]


def plain(text: str) -> str:
    """Without the boxes that typer draws, and in one line."""
    return " ".join(text.replace("│", " ").split())


PAGES = dict(pages(app))


def test_all_commands_are_walked() -> None:
    assert {"", "join", "token", "token add", "papers run"} <= PAGES.keys()
    assert len(PAGES) == 25


@pytest.mark.parametrize("words", PAGES)
def test_help_has_every_text_of_the_source(
    words: str, melisma: Melisma, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "500")  # a text is in one line
    result = melisma(*words.split(), "--help")
    assert (result.code, result.err) == (0, "")
    assert result.out.strip().startswith(f"Usage: melisma {words}".strip())
    shown = plain(result.out)
    for text in PAGES[words]:
        assert text
        assert plain(text) in shown


def test_brackets_of_a_job_file_are_not_markup(
    melisma: Melisma, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "500")
    assert "[[states]] as in a job's [[learners]]" in melisma("join", "--help").out


ODD = r"[[a]] [b] [/c] [red]d[/red] [link=e] \[f] C:\g"


def test_nothing_that_a_text_may_have_is_taken_for_markup() -> None:
    odd = typer.Typer(cls=Group, help=ODD, add_completion=False)

    @odd.command("one", cls=Command, help=ODD)
    def one(a: Annotated[str, typer.Argument(help=ODD)]) -> None: ...

    @odd.command("two", cls=Command)
    def two(b: Annotated[str, typer.Option(help=ODD)] = "") -> None: ...

    for words, times in (("", 2), ("one", 2), ("two", 1)):
        page = CliRunner().invoke(
            odd, [*words.split(), "--help"], env={"COLUMNS": "500"}
        )
        assert page.stdout.count(ODD) == times, page.stdout
