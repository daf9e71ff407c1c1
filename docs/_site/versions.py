"""The versions of the site that lie side by side, offered at the foot of the sidebar.

`make docs` builds into ``build/docs/VERSION`` and lists its neighbours in
``versions.js``: a script and no JSON, since pages opened from a disk may load one.
"""

from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).parent


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the list to every page's sidebar."""
    app.connect("config-inited", _configure)
    return {"parallel_read_safe": True}


def _configure(app: Sphinx, config: object) -> None:
    app.config.templates_path.append(str(HERE / "templates"))
    app.config.html_sidebars = {
        "**": [
            "sidebar/brand.html",
            "sidebar/search.html",
            "sidebar/scroll-start.html",
            "sidebar/navigation.html",
            "versions.html",
            "sidebar/scroll-end.html",
        ]
    }
