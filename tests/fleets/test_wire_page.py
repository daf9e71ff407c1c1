"""docs/wire.md, held to what is sent."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from melisma.fleets import messages
from melisma.fleets.attendance import Attendance
from melisma.fleets.served import ModelServer
from melisma.learner.service import Service
from melisma.learning.outline import Layer
from melisma.learning.settings import Training
from melisma.rpc import frames
from melisma.rpc.service import Service as Exposed

PAGE = (Path(__file__).parents[2] / "docs" / "wire.md").read_text(encoding="utf-8")
RECORDS = (
    messages.TaskSpec,
    Training,
    messages.Ready,
    messages.Speeds,
    messages.StateSpeeds,
    messages.TrainRequest,
    messages.Update,
    messages.Outline,
    Layer,
    messages.Shaped,
)


def row_of(record: Any) -> str:
    """Return a record's row of the page."""
    told: Any = msgspec.inspect.type_info(record)
    fields = ", ".join(f"`{field.name}` {_type(field)}" for field in told.fields)
    return f"| `{record.__name__}` | {fields} |"


def _type(field: Any) -> str:
    default = "" if field.required else " ="
    return _name(field.type) + default


def _name(kind: Any) -> str:
    match kind:
        case msgspec.inspect.UnionType():
            return " or ".join(_name(one) for one in kind.types)
        case msgspec.inspect.ListType():
            return f"list of {_name(kind.item_type)}"
        case msgspec.inspect.DictType():
            return f"map of {_name(kind.key_type)} to {_name(kind.value_type)}"
        case msgspec.inspect.StructType() | msgspec.inspect.DataclassType():
            return f"`{kind.cls.__name__}`"
        case msgspec.inspect.EnumType():
            return " / ".join(f'"{one}"' for one in kind.cls)
        case msgspec.inspect.CustomType():
            return f"{kind.cls.__name__}".lower()
        case msgspec.inspect.NoneType():
            return "nil"
    return type(kind).__name__.removesuffix("Type").lower()


@pytest.mark.parametrize("record", RECORDS)
def test_the_page_has_every_field_of_a_record(record: Any) -> None:
    assert row_of(record) in PAGE


def test_the_page_has_every_frame() -> None:
    for tag, name, fields in re.findall(
        r"^\| +(\d+) \| `(\w+)` \| (.*) \|$", PAGE, re.M
    ):
        frame = getattr(frames, name)
        assert frame.__struct_config__.tag == int(tag)
        assert re.findall(r"`(\w+)`", fields) == [*frame.__struct_fields__]
    assert len(re.findall(r"^\| +\d+ \| `", PAGE, re.M)) == 12


def test_the_page_has_the_functions_of_both_sides() -> None:
    def listed(title: str) -> dict[str, str]:
        section = PAGE.split(f"## {title}")[1].split("\n## ")[0]
        return dict(re.findall(r"^\| `(\w+)\(.*?\)` \| (\S+)", section, re.M))

    learner = Exposed([Service(None)]).functions  # type: ignore[arg-type]
    asked = listed("What an orchestrator asks of a learner")
    assert asked == {
        name: "yes" if exposed.idempotent else "no" for name, exposed in learner.items()
    }
    served = Exposed([ModelServer([]), Attendance()]).functions
    assert listed("What a learner asks of an orchestrator").keys() == served.keys()
    assert all(exposed.idempotent for exposed in served.values())
