"""`melisma version`."""

from melisma import __version__
from melisma.cli.options import Json
from melisma.cli.output import json_line, line


def version(as_json: Json = False) -> None:
    """Print the version."""
    if as_json:
        json_line({"version": __version__})
    else:
        line(f"melisma {__version__}")
