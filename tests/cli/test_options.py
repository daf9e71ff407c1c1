"""Options in groups: a dataclass has one in each field."""

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from melisma.cli.options import grouped


@dataclass(frozen=True, kw_only=True)
class Size:
    """A group of options."""

    width: Annotated[int, typer.Option(min=1, help="How wide.")] = 1
    deep: bool = False


def called(*words: str) -> tuple[int, str]:
    """Call a command with a group; return its exit code and what it printed."""
    app = typer.Typer()

    @app.command()
    @grouped
    def draw(name: str, *, size: Size, times: int = 1) -> None:
        """Draw it."""
        print(name, size, times)

    result = CliRunner().invoke(app, words)
    return result.exit_code, result.output.strip()


def test_a_command_is_given_its_groups_beside_its_other_options() -> None:
    words = ("box", "--width", "3", "--deep", "--times", "2")
    assert called(*words) == (0, f"box {Size(width=3, deep=True)} 2")


def test_what_is_not_given_is_the_default_of_its_field() -> None:
    assert called("box") == (0, f"box {Size()} 1")


def test_options_of_a_group_are_checked_and_in_the_help_by_their_place() -> None:
    assert called("box", "--width", "0")[0] == 2
    code, text = called("--help")
    assert code == 0
    assert all(said in text for said in ("Draw it.", "How wide."))
    assert text.index("--width") < text.index("--deep") < text.index("--times")
