"""Build the site of this version beside those of others: `make docs`.

    build/docs/index.html    leads to the newest
    build/docs/versions.js   which there are
    build/docs/0.2.0/        this one; its llms.txt is a map of all pages

A warning of Sphinx is an error: a link that leads nowhere, a page in no menu, a
tutorial that fails.
"""

import json
import re
import sys
from pathlib import Path

from sphinx.cmd.build import main as sphinx

import melisma

DOCS = Path(__file__).resolve().parents[1]
SITE = DOCS.parent / "build" / "docs"

_LEAD = """<!doctype html>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={version}/index.html">
<link rel="canonical" href="{version}/index.html">
<title>Melisma</title>
<a href="{version}/index.html">Melisma {version}</a>
"""


def order(version: str) -> tuple[int, ...]:
    """Return what sorts versions: their numbers."""
    return tuple(int(number) for number in re.findall(r"\d+", version))


def list_versions(site: Path) -> list[str]:
    """Write which versions lie in a folder, newest first, and lead to the newest."""
    found = (path.parent.name for path in site.glob("*/index.html"))
    versions = sorted(found, key=order, reverse=True)
    script = f"window.MELISMA_VERSIONS = {json.dumps(versions)};\n"
    (site / "versions.js").write_text(script, "utf-8")
    (site / "index.html").write_text(_LEAD.format(version=versions[0]), "utf-8")
    return versions


def build() -> int:
    """Build; return Sphinx's exit code."""
    target = SITE / melisma.__version__
    cache = SITE / ".cache" / melisma.__version__
    options = ["-b", "html", "-W", "--keep-going", "-q", "-d", str(cache)]
    if failed := sphinx([*options, *sys.argv[1:], str(DOCS), str(target)]):
        return failed
    list_versions(SITE)
    print(f"file://{target}/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(build())
