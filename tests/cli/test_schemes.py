"""`melisma schemes`, run as a user runs it."""

import json
import subprocess
import sys

from tests.cli.running import Melisma

from melisma.cli.schemes import listed
from melisma.coding import CODES
from melisma.jobs.asynchronous_checks import ASYNCHRONOUS
from melisma.jobs.families import CENTRAL, FEDERATED
from melisma.jobs.fog_table import Moving
from melisma.jobs.multitask import ESTIMATES
from melisma.schemes import FIXED, SCHEMES


def test_every_scheme_of_every_family_is_listed_once() -> None:
    names = [row.name for row in listed()]
    known = [*SCHEMES, *ESTIMATES, "coded", *(f"coded:{code}" for code in CODES)]
    known += ["fog", *(f"fog:{plan.value}" for plan in Moving), FEDERATED, CENTRAL]
    known += [*ASYNCHRONOUS, *FIXED]
    assert sorted(names) == sorted(known)
    assert all(all(row) for row in listed())


def test_they_are_printed_with_what_they_do_and_need(melisma: Melisma) -> None:
    lines = melisma("schemes").out.splitlines()
    heading = "Several tasks (docs/multitask.md): needs [[tasks]] tables, mode = "
    assert f'{heading}"parallel"' in lines
    for row in listed():
        (shown,) = [line for line in lines if line.split()[:1] == [row.name]]
        assert row.does in shown
        assert ("Needs simulation." in shown) == ("simulation" in row.needs)


def test_as_json_they_are_objects_by_name(melisma: Melisma) -> None:
    shown = json.loads(melisma("schemes", "--json").out)
    assert shown["fog:central"] == {
        "family": "Data moved in a fog (docs/fog.md)",
        "name": "fog:central",
        "does": "One device trains on all data: a yardstick of what can be learned.",
        "needs": 'mode = "federated", simulation',
    }
    assert list(shown) == [row.name for row in listed()]


def test_they_are_listed_without_torch() -> None:
    code = "import sys; from melisma.cli import app; app(standalone_mode=False); "
    code += "sys.exit('torch' in sys.modules)"
    command = [sys.executable, "-c", code, "schemes"]
    assert subprocess.run(command, stdout=subprocess.DEVNULL).returncode == 0
