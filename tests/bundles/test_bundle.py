"""Files of a bundle: paths, sizes and hash are checked, wherever they come from."""

from pathlib import Path
from typing import Any

import pytest

from melisma.bundles import folders
from melisma.bundles.bundle import MOST_BYTES, MOST_FILES, Bundle
from melisma.errors import DataError

FILES = {"mine.py": b"x = 1\n", "kit/__init__.py": b"", "kit/sub/leaf.py": b"y = 2\n"}

NAMES: list[Any] = [
    *("../x.py", "kit/../x.py", "/etc/x.py", "./x.py", "kit//x.py", "~/x.py", "kit/"),
    *("x\0.py", "x.py\0", "x.py\n", "x", "x.pyc", "x.py/", ".py", "a-b.py", "a b.py"),
    *("C:x.py", "C:/x.py", "\\\\host\\x.py", "kit\\x.py", "é.py", "x.PY", "x.y.py"),
    *("1x.py", "__init__.py", "", "x.so", "ｘ.py", "kit/x.py ", "a/" * 100 + "x.py"),
    *(3, None, b"x.py", ("x.py",)),
]


@pytest.mark.parametrize("name", NAMES, ids=repr)
def test_a_path_is_of_identifiers_alone(name: Any) -> None:
    with pytest.raises(DataError, match="is no file of a bundle") as raised:
        Bundle.of({"mine.py": b"", name: b""})
    assert str(raised.value).isprintable()


@pytest.mark.parametrize(
    "other",
    ["Mine.py", "mine/x.py", "MINE/x.py", "Kit/x.py", "kit/Sub/x.py", "KIT.py"],
)
def test_no_two_files_are_one_where_case_does_not_count(other: str) -> None:
    with pytest.raises(DataError, match=f"both .*{other.split('/')[0]}.*: rename one"):
        Bundle.of(FILES | {other: b""})


@pytest.mark.parametrize(
    "files",
    [
        None,
        [],
        {},
        "mine.py",
        {f"m{n}.py": b"" for n in range(MOST_FILES + 1)},
        {"mine.py": "x = 1"},
        {"mine.py": b"#" * (MOST_BYTES + 1)},
        {"mine.py": b"\xff"},
        {"mine.py": b"\0"},
    ],
    ids=lambda files: type(files).__name__,
)
def test_what_is_no_source_of_bearable_size_is_refused(files: Any) -> None:
    with pytest.raises(DataError) as raised:
        Bundle.of(files)
    assert "\n" not in str(raised.value)


def test_files_of_another_hash_are_refused() -> None:
    right = Bundle.of(FILES)
    with pytest.raises(DataError, match=f"{right.hash} came with other files"):
        Bundle.of(FILES | {"mine.py": b"x = 3\n"}, right.hash)
    # A byte that moves from a name to a content is seen.
    assert Bundle.of({"ab.py": b"c"}).hash != Bundle.of({"a.py": b"bc"}).hash


def test_it_knows_its_modules() -> None:
    bundle = Bundle.of(FILES)
    assert bundle.tops == {"mine", "kit"}
    for reference in ("mine:f", "kit:f", "kit.sub.leaf:f"):
        assert bundle.holds(reference)
    for reference in ("mine", "kit.sub:f", "kit.other:f", "json:f", ":f", "", "leaf:f"):
        assert not bundle.holds(reference)


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    bundle, place = Bundle.of(FILES), tmp_path / "here" / "it"
    folders.write(bundle, place)
    assert folders.read(place, bundle.hash) == bundle
    (place / "notes.txt").write_text("of the owner")
    folders.write(bundle, place)  # in place of the old one
    assert folders.read(place, bundle.hash) == bundle
    assert [path.name for path in place.parent.iterdir()] == ["it"]


def spoilt_file(place: Path) -> None:
    (place / "mine.py").write_text("x = 9\n")


def more_files(place: Path) -> None:
    (place / "more.py").write_text("")


def fewer_files(place: Path) -> None:
    (place / "mine.py").unlink()


def linked_file(place: Path) -> None:
    target = place.parent / "target.py"
    (place / "mine.py").rename(target)  # of the same content
    (place / "mine.py").symlink_to(target)


def linked_package(place: Path) -> None:
    (place / "kit").rename(place.parent / "kit")
    (place / "kit").symlink_to(place.parent / "kit")


def linked_folder(place: Path) -> None:
    place.rename(place.parent / "moved")
    place.symlink_to(place.parent / "moved")


def hostile_name(place: Path) -> None:
    (place / "a-b.py").write_text("")


def crowded(place: Path) -> None:
    for n in range(1100):
        (place / f"{n}.txt").write_text("")


SPOILT = [
    *(spoilt_file, more_files, fewer_files, linked_file, linked_package),
    *(linked_folder, hostile_name, crowded),
]


@pytest.mark.parametrize("spoil", SPOILT)
def test_what_changed_on_disk_is_refused_and_can_be_replaced(
    tmp_path: Path, spoil: Any
) -> None:
    bundle, place = Bundle.of(FILES), tmp_path / "it"
    folders.write(bundle, place)
    spoil(place)
    with pytest.raises(DataError):
        folders.read(place, bundle.hash)
    before = {p: p.read_bytes() for p in tmp_path.glob("[!i]*/**/*.py")}
    folders.write(bundle, place)
    assert folders.read(place, bundle.hash) == bundle
    assert {p: p.read_bytes() for p in tmp_path.glob("[!i]*/**/*.py")} == before


def test_a_missing_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read: No such file"):
        folders.read(tmp_path / "none", "0" * 64)
