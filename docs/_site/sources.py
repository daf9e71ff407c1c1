"""Pages that are read in the repository too, as the site needs them.

A link to a source file offers it as it was when the site was built. A folder has none
to offer: its README or its module stands for it, and where there is neither, the words
stay without a link. The changelog and other files at the repository's root are pages of
the site, and anchors in HTML become targets, so that links to them are checked.
"""

import os
import re
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parents[1]

_LINK = re.compile(r"\[([^\]\[]*)\]\((?!\w+:)([^)#\s]+)(#[^)\s]*)?\)")
_ANCHOR = re.compile(r'<a id="([\w-]+)"></a>')

#: Pages at the root, by the page of the site that has them.
_ROOT = {
    "README.md": "index.md",
    "CHANGELOG.md": "reference/changelog.md",
    "CONTRIBUTING.md": "reference/contributing.md",
    "LICENSE": "../LICENSE",
}


def setup(app: Sphinx) -> dict[str, bool]:
    """Look at every page as it is read."""
    app.connect("source-read", _read)
    return {"parallel_read_safe": True}


def _read(app: Sphinx, page: str, source: list[str]) -> None:
    path = Path(app.env.doc2path(page))
    for name, standing in _ROOT.items():
        if standing == f"{page}.md" and page != "index":
            root = DOCS.parent / name
            app.env.note_dependency(root)
            source[0] = _adapted(root.read_text("utf-8"), root.parent, path.parent)
            return
    source[0] = _adapted(source[0], path.parent, path.parent)


def _adapted(text: str, folder: Path, page: Path) -> str:
    """Return Markdown of a file in ``folder`` for a page in the folder ``page``."""

    def linked(found: re.Match[str]) -> str:
        words, target, anchor = found.groups()
        path = (folder / target).resolve()
        if path.parent == DOCS.parent and path.name in _ROOT:
            path = (DOCS / _ROOT[path.name]).resolve()
        elif path.parent == DOCS / "tutorials" and path.name.startswith("plot_"):
            path = DOCS / "learn" / path.stem  # the page that it becomes
        elif path.is_dir():
            standing = (path / name for name in ("README.md", "__init__.py"))
            path = next((there for there in standing if there.exists()), path)
        if path.is_dir() or (path.suffix == ".md" and DOCS not in path.parents):
            return words
        return f"[{words}]({os.path.relpath(path, page)}{anchor or ''})"

    return _ANCHOR.sub(r"[]{#\1}", _LINK.sub(linked, text))
