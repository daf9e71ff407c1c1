"""`melisma schemes`: the names that `scheme` in a job file may have."""

from melisma.cli.options import Json
from melisma.cli.output import json_line, line, show


def schemes(as_json: Json = False) -> None:
    """List the allocation schemes."""
    from melisma.schemes import SCHEMES, summary

    if as_json:
        json_line({name: summary(name) for name in SCHEMES})
        return
    from melisma.cli.tables import table_of

    table = table_of("scheme", "what it does", text_columns=2)
    for name in SCHEMES:
        table.add_row(name, summary(name))
    show(table)
    line(
        "Others: coded:CODE around stragglers (docs/coding.md), fog:PLAN to move data "
        "(docs/fog.md), med and more for several tasks (docs/multitask.md)."
    )
