"""`melisma schemes`: the names that `scheme` in a job file may have."""

from melisma.cli.options import Json
from melisma.cli.output import json_line, line, show


def schemes(as_json: Json = False) -> None:
    """List every scheme of every family, and what a family needs."""
    from melisma.jobs.families import FAMILIES

    if as_json:
        json_line(
            [
                {"scheme": name, "family": family.kind, "does": does}
                | {"needs": family.needs}
                for family in FAMILIES.values()
                for name, does in family.schemes().items()
            ]
        )
        return
    from melisma.cli.tables import table_of

    for family in FAMILIES.values():
        table = table_of(f"{family.title} schemes", "what it does", text_columns=2)
        for name, does in family.schemes().items():
            table.add_row(name, does)
        show(table)
        line(f"They need {family.needs}.\n")
    line("Your own: module:function, a function from a Problem to an Allocation.")
