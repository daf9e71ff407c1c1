"""Help texts, shown as they are written.

Typer takes square brackets in them for rich's markup: `[[learners]]` would be `[]`.
With click 8.5 it also loses the texts of arguments.
"""

import inspect
from copy import copy
from typing import Any, get_type_hints

from typer.core import TyperCommand, TyperGroup


class Command(TyperCommand):
    """A command whose help has its docstring, and the text of every parameter."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help to standard output."""
        shown: Any = _escaped(self)
        written = _texts(self.callback)
        shown.params = [
            _escaped(param, written.get(param.name)) for param in self.params
        ]
        super(Command, shown).format_help(ctx, formatter)


class Group(TyperGroup):
    """A group whose help has the first paragraph of each command's docstring."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help to standard output."""
        shown: Any = _escaped(self)
        shown.commands = {name: _escaped(c) for name, c in self.commands.items()}
        super(Group, shown).format_help(ctx, formatter)


def _escaped(described: Any, text: str | None = None) -> Any:
    """Copy a command or parameter, with its help as markup that shows just that."""
    from rich.markup import escape

    copied = copy(described)
    paragraphs = inspect.cleandoc(text or described.help or "").split("\n\n")
    copied.help = escape("\n\n".join(" ".join(p.split()) for p in paragraphs))
    return copied


def _texts(function: Any) -> dict[str, str]:
    """Return the help that the parameters of a function are annotated with."""
    hints = get_type_hints(inspect.unwrap(function), include_extras=True)
    return {
        name: info.help
        for name, hint in hints.items()
        for info in getattr(hint, "__metadata__", ())
    }
