"""Places to test, and what is there of them."""

import subprocess
import sys

import pytest

from melisma.testbed import Device, Place, missing, ownership
from melisma.testbed.cgroups import Cgroups

LACK = missing()
real = pytest.mark.skipif(bool(LACK), reason=f"a testbed needs {LACK}")

PLAIN = Device(name="plain")
PYTHON = [sys.executable, "-I", "-S", "-c"]
#: Connects to argv[1:3] and sends argv[3] bytes.
SEND = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 10) as link:
    link.sendall(bytes(int(sys.argv[3])))
"""


def things(label: str) -> set[str]:
    """Links, namespaces and cgroups whose names begin so."""
    cgroups = Cgroups.find()
    assert cgroups is not None
    return {name for name in ownership.names(cgroups) if name.startswith(label)}


def run(place: Place, code: str, *arguments: object) -> tuple[int, str]:
    process = place.popen(
        [*PYTHON, code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    printed, _ = process.communicate(timeout=60)
    return process.returncode, printed
