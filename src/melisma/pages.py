"""HTML that opens anywhere, offline: one skeleton, one style.

What is given as text is escaped here; what is called a part is HTML already.
"""

import base64
from collections.abc import Iterable, Mapping
from html import escape


def page(title: str, *parts: str) -> str:
    """Return a whole page that needs no other file."""
    body = "\n".join(parts)
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
<h1>{escape(title)}</h1>
{body}
</html>
"""


def section(title: str, *parts: str) -> str:
    """Return parts under a heading."""
    return "\n".join((f"<h2>{escape(title)}</h2>", *parts))


def paragraph(text: str) -> str:
    """Return a paragraph, or nothing if there is nothing to say."""
    return f"<p>{escape(text)}</p>" if text else ""


def picture(png: bytes, alt: str) -> str:
    """Return a picture, in the page itself."""
    data = base64.b64encode(png).decode()
    source = f"data:image/png;base64,{data}"
    return f'<figure><img alt="{escape(alt)}" src="{source}"></figure>'


def facts(told: Mapping[str, str]) -> str:
    """Return a few figures, each with its name."""
    pairs = (
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in told.items()
    )
    return f"<dl>{''.join(pairs)}</dl>"


def row(cells: Iterable[str]) -> str:
    """Return a row of a table; its first cell names it."""
    name, *rest = cells
    data = "".join(f"<td>{escape(cell)}</td>" for cell in rest)
    return f'<tr><th title="{escape(name)}">{escape(name)}</th>{data}</tr>'


def table(titles: Iterable[str], rows: Iterable[str], *, words: bool = False) -> str:
    """Return a table of rows that are HTML; of ``words``, or else of numbers."""
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    kind = ' class="words"' if words else ""
    return f"""<div class="wide"><table{kind}><thead><tr>{head}</tr></thead>
<tbody>{"".join(rows)}</tbody></table></div>"""


def code(text: str) -> str:
    """Return text as it is written."""
    return f"<pre>{escape(text)}</pre>"


_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto;
  padding: 0 1rem; overflow-wrap: break-word; }
h2 { margin-top: 2.5rem; }
figure { margin: 1rem 0; padding: .5rem; background: #fff; border-radius: 6px;
  overflow-x: auto; }
img { display: block; width: 100%; min-width: 38rem; }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(10rem, 1fr));
  gap: 1rem; }
dt { opacity: .7; font-size: .85rem; }
dd { margin: 0; font-size: 1.25rem; font-variant-numeric: tabular-nums; }
.wide { overflow: auto; max-height: 34rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .5rem; border-bottom: 1px solid #8884; text-align: right;
  white-space: nowrap; }
thead th { position: sticky; top: 0; background: Canvas; vertical-align: bottom;
  white-space: normal; }
th:first-child, td.why, .words th, .words td { text-align: left; }
tbody th { max-width: 11rem; overflow: hidden; text-overflow: ellipsis; }
td.why, .words td:last-child { white-space: normal; overflow-wrap: anywhere;
  min-width: 16rem; }
pre { padding: 1rem; background: #8881; border-radius: 6px; overflow-x: auto; }
@media print { .wide { max-height: none; } }
"""
