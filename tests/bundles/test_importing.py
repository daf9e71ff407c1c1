"""Modules of a bundle run from its bytes, and meet no others of the same name."""

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from melisma.bundles.bundle import Bundle
from melisma.bundles.importing import importable
from melisma.errors import ConfigError
from melisma.registry import imported

PLACE = Path("/nowhere")


def bundle(**files: str) -> Bundle:
    """Return a bundle, with ``__`` for each slash of a path."""
    named = {f"{name.replace('__', '/')}.py": text for name, text in files.items()}
    named = {name.replace("/init.", "/__init__."): t for name, t in named.items()}
    return Bundle.of({name: text.encode() for name, text in named.items()})


def function(of: Bundle, reference: str) -> Callable[..., Any]:
    return imported("function", f"{importable(of, PLACE)}.{reference}")


def test_nothing_runs_before_it_is_named() -> None:
    one = bundle(explosive="1 / 0\n", calm="def f():\n    return 1\n")
    assert function(one, "calm:f")() == 1
    with pytest.raises(ConfigError, match=r"ZeroDivisionError.*explosive.py, line 1"):
        function(one, "explosive:f")


def test_modules_import_each_other_in_every_way() -> None:
    one = bundle(
        kit__init="from .a import ONE\nfrom . import a\n",
        kit__a="ONE = 1\n",
        kit__sub__deep="from ..a import ONE\nfrom kit.a import ONE as SAME\nTWO = 2\n",
        plain="import kit.sub.deep\nimport kit.a as a\nfrom kit import ONE, sub\n"
        "from kit.sub import deep\n"
        "def f():\n    from late import THREE\n    import json\n"
        "    return kit.sub.deep.TWO, a.ONE, deep.SAME, THREE, json.dumps([ONE])\n",
        late="THREE = 3\n",
    )
    assert function(one, "plain:f")() == (2, 1, 1, 3, "[1]")


def test_two_bundles_and_the_device_have_modules_of_one_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "shared_name.py").write_text("def f():\n    return 'device'\n")
    (tmp_path / "helper_name.py").write_text("WHOSE = 'device'\n")
    device = importlib.import_module("shared_name")
    importlib.import_module("helper_name")
    late = "def f():\n    import helper_name\n    return helper_name.WHOSE\n"
    first, second = (
        function(
            bundle(shared_name=late, helper_name=f"WHOSE = {whose!r}\n"),
            "shared_name:f",
        )
        for whose in ("first", "second")
    )
    # What is imported late is of the same bundle still.
    assert (first(), second(), device.f()) == ("first", "second", "device")
    assert sys.modules["shared_name"] is device


def test_other_modules_do_not_see_it() -> None:
    one = bundle(only_in_a_bundle="import json\ndef f():\n    return json\n")
    assert function(one, "only_in_a_bundle:f")() is sys.modules["json"]
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("only_in_a_bundle")


def test_a_module_of_a_librarys_name_is_the_bundles_alone() -> None:
    one = bundle(
        json="WHOSE = 'bundle'\n", asks="import json\ndef f():\n    return json.WHOSE"
    )
    assert function(one, "asks:f")() == "bundle"
    assert not hasattr(importlib.import_module("json"), "WHOSE")


def test_what_a_file_says_of_its_encoding_changes_nothing() -> None:
    # Under UTF-7, +AAo- is the end of the line: the comment would end there.
    trick = "# coding: utf-7\nWHOSE = 'shown'  # +AAo-WHOSE = 'hidden'\ndef f():\n"
    one = bundle(encoded=trick + "    return WHOSE\n")
    assert function(one, "encoded:f")() == "shown"


def test_tracebacks_and_inspection_show_the_source() -> None:
    one = bundle(raising="def f():\n    return 1 / 0  # this line\n")
    f = function(one, "raising:f")
    with pytest.raises(ZeroDivisionError) as raised:
        f()
    shown = "".join(traceback.format_exception(raised.value))
    assert "/nowhere/raising.py" in shown
    assert "# this line" in shown
    assert "# this line" in inspect.getsource(f)
    assert sys.modules[f.__module__].__file__ == "/nowhere/raising.py"


def test_what_is_not_in_it_is_not_found() -> None:
    one = bundle(kit__a="from kit import missing\n", b="def f(): pass\n")
    with pytest.raises(ConfigError, match=r"missing.*a.py, line 1"):
        function(one, "kit.a:f")
    with pytest.raises(ConfigError, match="there is no module"):
        function(one, "kit.c:f")


def test_a_name_that_an_earlier_version_registered_is_replaced() -> None:
    source = (
        "import melisma as mel\n"
        "@mel.task('bundled-task')\n"
        "def made():\n    return mel.Task(model='TwoNN', rate={})\n"
    )
    for rate in (0.1, 0.2):
        made = function(bundle(registers=source.format(rate)), "registers:made")
        assert made().rate == rate
