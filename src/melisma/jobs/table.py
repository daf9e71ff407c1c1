"""What every table of a job file has: values that are checked when it is made."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import EnumType
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    Self,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
)

import msgspec

from melisma.errors import ConfigError, unknown
from melisma.units import Quantity

Read_co = TypeVar("Read_co", covariant=True)
Written_contra = TypeVar("Written_contra", contravariant=True)

if TYPE_CHECKING:

    class Given(Generic[Read_co, Written_contra]):
        """A field that is read as the first type, and may be given as the second.

        To a checker it is a descriptor; there is none, and the first type is all that
        is left of it when the table is made.
        """

        def __get__(self, instance: object, owner: Any) -> Read_co: ...

        def __set__(self, instance: object, value: Written_contra) -> None: ...

else:

    class Given:
        """A field that is read as the first type, and may be given as the second."""

        def __class_getitem__(cls, types: tuple[Any, Any]) -> Any:
            return types[0]


#: What may be given for a function, for a quantity or none, for an array of tables.
Named: TypeAlias = str | Callable[..., Any]
Text: TypeAlias = float | str | None
Rows: TypeAlias = "Sequence[Table | Mapping[str, Any]]"


def given(default: Any) -> Any:
    """Return the default of a field that is `Given`, whose type is that of reading."""
    return default


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of a job file, or the same made in Python: checked alike.

    One within another may be given as a dictionary.

    >>> from melisma.jobs.schema import Job
    >>> Job(deadline="2 min").deadline
    120.0
    """

    if TYPE_CHECKING:  # as in `Given`

        def __get__(self, instance: object, owner: Any) -> Self: ...

        def __set__(
            self, instance: object, value: "Table | Mapping[str, Any]"
        ) -> None: ...

    def __post_init__(self) -> None:
        for field in msgspec.structs.fields(self):
            value = getattr(self, field.name)
            checked = _checked(value, field.type, field.name)
            if checked is not value:
                msgspec.structs.force_setattr(self, field.name, checked)
        self._check()

    def _check(self) -> None:
        """Raise ConfigError if the values contradict each other."""


def _checked(value: object, kind: Any, key: str) -> Any:
    """Convert a value to its field's type; ConfigError if that fails."""
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        value = value.tolist()  # msgspec takes Python's own numbers alone
    try:
        return msgspec.convert(value, kind, dec_hook=quantity)
    except msgspec.ValidationError as error:
        raise ConfigError(explain(error, kind, key)) from error


def quantity(kind: type[Any], written: object) -> Any:
    """Read a number with a unit: msgspec's hook for types that it does not know."""
    if issubclass(kind, Quantity):
        return written if isinstance(written, kind) else kind.of(written)
    raise TypeError(f"no way to read a {kind.__name__}")


def explain(error: msgspec.ValidationError, kind: Any, outer: str = "") -> str:
    """Return msgspec's message in the words of a job file, with the nearest name.

    ``kind`` is the type that was converted to, ``outer`` the key that holds it.
    """
    text, _, path = str(error).partition(" - at `$")
    path = path.rstrip("`")
    where = f"{outer}{path}".strip(".")
    if (cause := error.__cause__) is not None:
        return f"{where}: {cause}" if where else str(cause)
    if found := re.search(r"unknown field `(.*?)`", text):
        what = f"key in {where}" if where else "key"
        return str(unknown(what, found[1], _names_at(kind, path)))
    if found := re.search(r"Invalid enum value '(.*?)'", text):
        key = re.sub(r"\[.*?\]", "", where).rpartition(".")[2]
        return str(unknown(key, found[1], _names_at(kind, path)))
    return f"{where}: {text[0].lower()}{text[1:]}"


def _names_at(kind: Any, path: str) -> Iterable[str]:
    """Return the keys of the table, or the values of the enum, at a path of a type."""
    for key in re.findall(r"\.(\w+)", path):
        (table,) = (part for part in _parts(kind) if issubclass(part, Table))
        types = {field.name: field.type for field in msgspec.structs.fields(table)}
        kind = types[key]
    for part in _parts(kind):
        if issubclass(part, Table):
            return part.__struct_fields__
        if isinstance(part, EnumType):
            return [member.value for member in part]
    return _literals(kind)


def _parts(kind: Any) -> Iterator[type[Any]]:
    """Yield the classes that a type is made of: ``A``, ``B`` of ``tuple[A] | B``."""
    if isinstance(kind, type) and not get_args(kind):
        yield kind
    elif get_origin(kind) is not Literal:
        for part in get_args(kind):
            yield from _parts(part)


def _literals(kind: Any) -> tuple[str, ...]:
    if get_origin(kind) is Literal:
        return get_args(kind)
    return tuple(name for part in get_args(kind) for name in _literals(part))
