"""How the page applies documents and changes, in Python."""

from typing import Any

KEYS = {
    "turns": ("task", "cycle", "learner"),
    "cycles": ("task", "cycle"),
    "incidents": (),
    "slots": ("slot",),
    "flows": ("source", "target"),
    "devices": ("learner",),
}


def rows(columns: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of columns; of metrics, those with a value."""
    metrics: dict[str, list[Any]] = columns.get("metrics", {})
    names = [name for name in columns if name != "metrics"]
    found = [
        dict(zip(names, row, strict=True))
        for row in zip(*(columns[name] for name in names), strict=True)
    ]
    for n, row in enumerate(found if "metrics" in columns else ()):
        row["metrics"] = {k: v[n] for k, v in metrics.items() if v[n] is not None}
    return found


class Page:
    """Keeps what it was sent: a later row of a key takes the place of the one before;
    incidents are added.
    """

    def __init__(self) -> None:
        self.tables: dict[str, dict[Any, dict[str, Any]]] = {}
        self.rest: dict[str, Any] = {}

    def take(self, document: dict[str, Any]) -> None:
        if document["after"] == 0:
            self.tables, self.rest = {}, {}
        document = dict(document)
        document |= document.pop("fog", None) or {}
        for name, value in document.items():
            if name in KEYS:
                self._take_rows(name, value)
            elif name != "after":
                self.rest[name] = value

    def _take_rows(self, name: str, columns: dict[str, list[Any]]) -> None:
        table = self.tables.setdefault(name, {})
        for row in rows(columns):
            key = tuple(row[part] for part in KEYS[name]) or len(table)
            table[key] = row

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Page)
        return (self._filled(), self.rest) == (other._filled(), other.rest)

    def _filled(self) -> dict[str, dict[Any, dict[str, Any]]]:
        return {name: table for name, table in self.tables.items() if table}


def page_of(*documents: dict[str, Any]) -> Page:
    page = Page()
    for document in documents:
        page.take(document)
    return page
