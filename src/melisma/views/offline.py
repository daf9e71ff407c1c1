"""The dashboard's page and its data in one HTML file that opens from disk.

It contains the live page's own modules: an import map gives each as a data: URL.
Relative imports such as ``./other.js`` do not resolve within a data: URL, so they are
rewritten to names of the map.
"""

import base64
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

_STATIC = files("melisma.views") / "web" / "static"
_STYLES = ("style.css",)
_FIRST = "main.js"
_IMPORT = re.compile(r'(\bfrom\s+|\bimport\s+)"\./([\w./-]+\.js)"')

#: The page can fetch nothing, whatever a document contains.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' data:; "
    "style-src 'unsafe-inline'; img-src data:"
)


def write(documents: Sequence[Any], path: Path, title: str) -> None:
    """Write a page that shows ``documents``; OSError if it cannot be written."""
    path.write_text(page(documents, title), encoding="utf-8")


def page(documents: Sequence[Any], title: str) -> str:
    """Return the page; a document is a value to encode as JSON, or JSON as bytes."""
    data = [msgspec.Raw(d) if isinstance(d, bytes) else d for d in documents]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>{"".join(_text(name) for name in _STYLES)}</style>
<script type="importmap">{_json({"imports": modules()})}</script>
<script type="application/json" id="documents">{_json(data)}</script>
<script type="module">import "melisma/{_FIRST}";</script>
</head>
<body>
<noscript>This page needs JavaScript.</noscript>
</body>
</html>
"""


def modules() -> dict[str, str]:
    """Return every module that the page imports, as data: URLs by name."""
    found: dict[str, str] = {}
    todo = [_FIRST]
    while todo:
        name = todo.pop()
        if f"melisma/{name}" in found:
            continue
        text = _text(name)
        todo += [other for _, other in _IMPORT.findall(text)]
        text = _IMPORT.sub(r'\1"melisma/\2"', text)
        code = base64.b64encode(text.encode()).decode()
        found[f"melisma/{name}"] = f"data:text/javascript;base64,{code}"
    return dict(sorted(found.items()))


def _text(name: str) -> str:
    return (_STATIC / name).read_text(encoding="utf-8")


def _json(value: Any) -> str:
    """Return JSON that can stand in a script element: no text in it can close it."""
    return msgspec.json.encode(value).decode().replace("<", "\\u003c")
