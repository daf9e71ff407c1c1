"""The site's map as one text file, ``llms.txt``, for programs that read it.

A heading for each part of the menu, a line for each page: its title, where it is, and
what a reader has at its end.
"""

from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment


def setup(app: Sphinx) -> dict[str, bool]:
    """Write it once all pages are."""
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True}


def _write(app: Sphinx, failed: Exception | None) -> None:
    if failed is None:
        Path(app.outdir, "llms.txt").write_text("\n".join(_lines(app.env)), "utf-8")


def _lines(env: BuildEnvironment) -> Iterator[str]:
    """Yield the lines of the map."""
    home = env.get_doctree("index")
    yield f"# {env.titles['index'].astext()}\n\n> {_first(home)}"
    for menu in home.findall(addnodes.toctree):
        yield f"\n## {menu['caption']}\n"
        for _, page in menu["entries"]:
            yield from _pages(env, page)
    yield ""


def _pages(env: BuildEnvironment, page: str) -> Iterator[str]:
    """Yield a line for a page, and for those below it."""
    title = env.titles[page].astext()
    yield f"- [{title}]({page}.html): {_first(env.get_doctree(page))}"
    for below in env.toctree_includes.get(page, []):
        yield from _pages(env, below)


def _first(page: nodes.document) -> str:
    """Return a page's first paragraph that is no note."""
    for paragraph in page.findall(nodes.paragraph):
        if isinstance(paragraph.parent, nodes.section):
            return " ".join(paragraph.astext().split())
    return ""
