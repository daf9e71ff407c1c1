"""`melisma schemes`: all names that `scheme` in a job file may have."""

from itertools import groupby
from typing import NamedTuple

from melisma.cli.options import Json
from melisma.cli.output import json_line, line, show


class Listed(NamedTuple):
    """One scheme, as it is listed."""

    family: str  #: how its updates become a model
    name: str
    does: str
    needs: str  #: of the job file


def listed() -> list[Listed]:
    """Return every scheme of every family."""
    from melisma.jobs.families import FAMILIES

    return [
        Listed(
            family.title,
            name,
            does,
            family.needs + (", simulation" if name == family.simulated_only else ""),
        )
        for family in FAMILIES.values()
        for name, does in family.schemes().items()
    ]


def schemes(as_json: Json = False) -> None:
    """List the schemes that a job file may name, and what each needs of it."""
    rows = listed()
    if as_json:
        json_line({row.name: row._asdict() for row in rows})
        return
    from melisma.cli.tables import table_of

    for family, group in groupby(rows, key=lambda row: row.family):
        members = list(group)
        common = members[0].needs
        table = table_of("", "", text_columns=2)
        table.show_header = False
        table.columns[0].min_width = max(len(row.name) for row in rows)
        for row in members:
            more = row.needs.removeprefix(common).strip(", ")
            table.add_row(row.name, row.does + (f" Needs {more}." if more else ""))
        show(table, f"{family}: needs {common}")
        line("")
    line("Your own: module:function, a function from a Problem to an Allocation.")
    line("A step is an epoch: one pass of a learner over its samples.")
