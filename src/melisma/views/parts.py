"""Cells of CSV files."""


def cell(value: object) -> object:
    """Return a value as a spreadsheet can hold it safely."""
    match value:
        case bool():
            return int(value)
        case float():
            return round(value, 6)
        case str() if value.startswith(("=", "+", "-", "@")):
            return f"'{value}"  # a spreadsheet would run a learner's name as a formula
    return value
