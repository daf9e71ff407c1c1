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


_TASKS = {
    "med": "Assigns learners to tasks by the delays expected over their states.",
    "mmtt": "As med, by the delays of the state in which each was benchmarked.",
    "mmtt-ideal": "As med, by the delays of the states to come: a yardstick.",
    "med-probe": "As med; each cycle is split anew by what its first batches took.",
    "med-learned": "As mmtt at first, then by the mean of what past cycles took.",
    "rmed": "As med, by the expected largest delay and a price on untrained data.",
}
_CODED = {
    "coded": "The code that the job names as `code`.",
    "coded:uncoded": "Disjoint parts by speed: waits for every learner.",
    "coded:fractional": "Groups of learners, each covering all data, by speed.",
    "coded:cyclic": "Neighbouring parts on a ring, the same for every learner.",
    "coded:hetero": "Parts on a ring, by speed.",
    "coded:two-stage": "Disjoint parts by speed; a code for what is late.",
}
_FOG = {
    "fog": "The plan that the job names as `fog.plan`.",
    "fog:alone": "Moves no data.",
    "fog:known": "The best plan, all slots known beforehand.",
    "fog:windows": "Plans by the averages of the window before.",
    "fog:rolling": "Plans anew in each slot, by the averages so far.",
    "fog:federated": "Moves no data, and averages models after every slot.",
    "fog:central": "One device trains on all data: a yardstick of accuracy.",
}
#: Schemes that know what live nobody does.
_SIMULATED = {"mmtt-ideal", "fog:central"}


def listed() -> list[Listed]:
    """Return every scheme of every family."""
    from melisma.schemes import SCHEMES, summary

    families = [
        (
            "Averaged updates (docs/schemes.md)",
            "one task",
            {name: summary(name) for name in SCHEMES},
        ),
        (
            "Several tasks (docs/multitask.md)",
            '[[task]] tables, mode = "parallel"',
            _TASKS,
        ),
        (
            "Coded gradients (docs/coding.md)",
            'mode = "parallel", training.optimiser = "sgd"',
            _CODED,
        ),
        (
            "Data moved in a fog (docs/fog.md)",
            'mode = "federated", training.optimiser = "sgd"',
            _FOG,
        ),
    ]
    return [
        Listed(
            family, name, does, needs + (", simulation" if name in _SIMULATED else "")
        )
        for family, needs, schemes in families
        for name, does in schemes.items()
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
    line("A step is an epoch: one pass of a learner over its samples.")
