"""The documentation's site: `make docs`.

Pages are Markdown, tutorials are scripts that run when the site is built, and the
reference is generated from the code: its docstrings, the schema of jobs, the commands
and the records. Nothing is loaded from elsewhere when the site is read.
"""

import sys
from pathlib import Path

import melisma

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_site"))

project = "Melisma"
author = "the Melisma authors"
copyright = author
version = release = melisma.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "llms",
    "reference",
    "sources",
    "versions",
]
exclude_patterns = ["_site", "tutorials", "examples/own"]
suppress_warnings = ["config.cache"]  # the gallery's own settings

myst_enable_extensions = ["attrs_inline"]  # targets of links: []{#here}
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
default_role = "code"  # as docstrings quote
smartquotes = False  # --json is no dash

sphinx_gallery_conf = {
    "examples_dirs": "tutorials",
    "gallery_dirs": "learn",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"^(?!plot_)",  # what tutorials import
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_signature": False,
    "min_reported_time": 1,
    "abort_on_example_error": True,
    "within_subsection_order": "FileNameSortKey",
}

html_theme = "furo"
html_title = f"Melisma {version}"
html_show_sourcelink = False
html_static_path: list[str] = []
html_theme_options = {"navigation_with_keys": True}
copybutton_prompt_text = "$ "
