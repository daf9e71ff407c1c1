"""Directives that generate the reference from the code itself.

    job-keys   the keys of a job file: type, default and comment, from its schema
    commands   every command, its arguments and options, from the command line itself
    records    the records of a run: their fields, from the union that is written

Each writes Markdown, which is parsed in place.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from enum import EnumType
from typing import Any, ClassVar, get_args

import msgspec
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import stringify_annotation
from typer.main import get_command

import melisma
from melisma.cli import app
from melisma.cli.help import _texts
from melisma.jobs.schema import Job, TaskTable
from melisma.jobs.table import Table
from melisma.runs import records
from melisma.units import Quantity


def comments(struct: type) -> dict[str, str]:
    """Return the ``#:`` comment of each field, its bases' too."""
    found: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        if base.__module__.startswith("melisma."):
            written = ModuleAnalyzer.for_module(base.__module__).find_attr_docs()
            for (owner, name), lines in written.items():
                if owner == base.__name__:
                    found[name] = " ".join(line for line in lines if line)
    if struct is TaskTable:
        found = {**comments(Job), **found}  # what it leaves out is as there
    return found


def kind(annotation: Any) -> str:
    """Return a type in the words of a job file."""
    if annotation is type(None):
        return "none"
    if isinstance(annotation, EnumType):
        members: Iterator[Any] = iter(annotation)
        return " or ".join(f"`{_shown(member.value)}`" for member in members)
    if isinstance(annotation, type):
        if issubclass(annotation, Table):
            return "table"
        if issubclass(annotation, Quantity):
            return f"quantity in {', '.join(annotation.units)}"
        words = {str: "text", bool: "true or false", int: "integer", float: "number"}
        if annotation in words:
            return words[annotation]
    parts = [part for part in get_args(annotation) if part is not type(None)]
    origin = getattr(annotation, "__origin__", None)
    if origin in (list, tuple):
        return "list of " + kind(parts[0])
    if origin is dict:
        return "table"
    if parts:
        kinds = dict.fromkeys(
            kind(part) if get_args(part) or isinstance(part, type) else repr(part)
            for part in parts
        )
        return " or ".join(kinds)
    return str(annotation)


def default(field: msgspec.structs.FieldInfo) -> str:
    """Return a field's default as a job file writes it."""
    if field.default_factory is not msgspec.NODEFAULT:
        made = field.default_factory()
        return "" if not made or isinstance(made, Table) else f"`{_shown(made)}`"
    if field.default is msgspec.NODEFAULT:
        return "**required**"
    made = field.default
    is_tables = isinstance(made, tuple) and any(isinstance(x, Table) for x in made)
    if made in (None, ()) or isinstance(made, Table) or is_tables:
        return ""
    return f"`{_shown(field.default)}`"


def tables(struct: type, path: str = "") -> Iterator[tuple[str, type]]:
    """Yield each table of a job with the header that a file gives it."""
    yield path, struct
    for field in msgspec.structs.fields(struct):
        for part, many in _parts(field.type):
            if isinstance(part, type) and issubclass(part, Table):
                inner = f"{path}.{field.name}".strip(".")
                yield from tables(part, f"{inner}[]" if many else inner)


def job_keys() -> str:
    """Return the page of job keys."""
    lines = []
    for path, struct in tables(Job):
        name = path.replace("[]", "")
        header = f"[[{name}]]" if path.endswith("[]") else f"[{name}]"
        lines += ["", f"## {f'`{header}`' if path else 'The job itself'}", ""]
        lines += _first(struct)
        rows = msgspec.structs.fields(struct)
        lines += _fields(rows, comments(struct), "key", path)
    return "\n".join(lines)


def commands() -> str:
    """Return the page of commands."""
    lines: list[str] = []
    for words, command in _commands(get_command(app), ("melisma",)):
        context = command.context_class(command, info_name=" ".join(words))
        usage = " ".join(command.collect_usage_pieces(context))
        lines += ["", f"## {' '.join(words[1:])}", ""]
        lines += ["```console", f"$ {' '.join(words)} {usage}".rstrip(), "```", ""]
        lines += [_plain(inspect.cleandoc(command.help or "")), ""]
        rows = [_parameter(param, command) for param in command.params]
        if shown := [row for row in rows if row]:
            lines += [
                "| argument or option | what it does | default |",
                "|---|---|---|",
            ]
            lines += shown
    return "\n".join(lines)


def record_fields() -> str:
    """Return the page of records: of each kind, the fields that not all have."""
    lines = []
    for struct in kinds():
        tag = str(struct.__struct_config__.tag)
        whose = "of a learner" if issubclass(struct, records.LearnerEvent) else ""
        public = (
            f"`mel.{struct.__name__}`" if struct.__name__ in melisma.__all__ else ""
        )
        facts = ", ".join(fact for fact in (public, whose) if fact)
        lines += [
            "",
            f"## `{tag}`",
            "",
            *([facts, ""] if facts else []),
            *_first(struct),
        ]
        own = [
            field
            for field in msgspec.structs.fields(struct)
            if field.name not in records.LearnerEvent.__struct_fields__
        ]
        if own:
            lines += _fields(own, comments(struct), "field")
    return "\n".join(lines)


def kinds() -> list[type[msgspec.Struct]]:
    """Return the kinds of records as they stand in their module, without bases."""
    return [
        value
        for value in vars(records).values()
        if isinstance(value, type)
        and issubclass(value, records.Event)
        and not value.__subclasses__()
    ]


def _fields(
    fields: Sequence[msgspec.structs.FieldInfo],
    said: dict[str, str],
    noun: str,
    path: str = "",
) -> list[str]:
    """Return a table of fields."""
    # What a phone has no room for is on the right.
    lines = [f"| {noun} | what it is | type | default |", "|---|---|---|---|"]
    for field in fields:
        name = field.encode_name
        cells = (
            f"`{name}`",
            said.get(field.name, ""),
            kind(field.type),
            default(field),
        )
        lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    return lines


def _parameter(param: Any, command: Any) -> str:
    """Return the row of one argument or option; nothing for ``--help``."""
    if param.name == "help" or getattr(param, "hidden", False):
        return ""
    text = getattr(param, "help", None) or _texts(command.callback).get(param.name, "")
    if param.param_type_name == "argument":
        name = f"`{param.make_metavar(command.context_class(command))}`"
    else:
        metavar = (
            ""
            if param.is_flag
            else f" {param.make_metavar(command.context_class(command))}"
        )
        name = ", ".join(
            f"`{option}`" for option in (*param.opts, *param.secondary_opts)
        )
        name += f" `{metavar.strip()}`" if metavar else ""
    given = param.default
    shown = (
        "" if given in (None, False, ()) or callable(given) else f"`{_shown(given)}`"
    )
    return f"| {_cell(name)} | {_cell(_plain(text))} | {_cell(shown)} |"


def _commands(
    command: Any, words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command below one, groups by what they hold."""
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from _commands(inner, (*words, name))
    else:
        yield words, command


def _first(struct: type) -> list[str]:
    """Return a struct's own docstring, without its examples."""
    said = inspect.cleandoc(struct.__doc__ or "").split(">>>")[0].strip()
    return [re.sub(r"``(.+?)``", r"`\1`", said), ""]


def _parts(annotation: Any, many: bool = False) -> Iterator[tuple[Any, bool]]:
    """Yield the types that a type is made of, and whether they stand in a list."""
    inner = get_args(annotation)
    if not inner:
        yield annotation, many
    origin = getattr(annotation, "__origin__", None)
    for part in inner:
        yield from _parts(part, many or origin in (list, tuple))


def _shown(value: Any) -> str:
    """Return a value as it stands in a job file."""
    value = getattr(value, "value", value)
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else f"{value}"


def _plain(text: str) -> str:
    """Join lines, and keep paragraphs."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _cell(text: str) -> str:
    """Escape what would end a table's cell."""
    return " ".join(text.replace("|", r"\|").split())


class _Generated(SphinxDirective):
    """Markdown from a function, in place."""

    write: ClassVar[Callable[[], str]]

    def run(self) -> list[nodes.Node]:
        """Write it, and remember that the page depends on the package."""
        for module in list(sys.modules.values()):
            path = getattr(module, "__file__", None)
            if path and module.__name__.startswith("melisma."):
                self.env.note_dependency(path)
        return self.parse_text_to_nodes(type(self).write(), allow_section_headings=True)


class JobKeys(_Generated):
    """The keys of a job file."""

    write = staticmethod(job_keys)


class Commands(_Generated):
    """The commands."""

    write = staticmethod(commands)


class Records(_Generated):
    """The kinds of records."""

    write = staticmethod(record_fields)


def fold(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, *signature: str | None
) -> tuple[str | None, ...]:
    """Call the union of all records by its name where a signature spells it out."""
    spelled = stringify_annotation(records.Record, "smart")
    return tuple(part and part.replace(spelled, "Record") for part in signature)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.connect("autodoc-process-signature", fold)
    app.add_directive("job-keys", JobKeys)
    app.add_directive("commands", Commands)
    app.add_directive("records", Records)
    return {"parallel_read_safe": True}
