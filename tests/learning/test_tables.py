import csv
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.learning.reading import arrays_of, fault, refused

from melisma.errors import ConfigError, DataError
from melisma.learning.files import check_labels, columns, read
from melisma.learning.tables import PART_ROWS

in_one_folder = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30
)
numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)
wholes = st.integers(-(2**63), 2**63 - 1)


@st.composite
def tables(draw: st.DrawFn) -> dict[str, list[Any]]:
    rows = draw(st.integers(1, 8))
    names = draw(
        st.lists(
            st.text('abü,"\n0', min_size=1, max_size=3).map(lambda name: f"c{name}c"),
            min_size=2,
            max_size=5,
            unique=True,
        )
    )
    kinds = [draw(st.sampled_from([numbers, wholes])) for _ in names]
    return {
        name: draw(st.lists(kind, min_size=rows, max_size=rows))
        for name, kind in zip(names, kinds, strict=True)
    }


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def write_parquet(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    parquet: Any = pytest.importorskip(
        "pyarrow.parquet", reason="needs melisma[parquet]"
    )
    pyarrow: Any = pytest.importorskip("pyarrow")
    parquet.write_table(pyarrow.table(columns), path, **options)
    return path


def check_against(
    table: dict[str, list[Any]], found: dict[str, NDArray[Any]], target: str
) -> None:
    *_, kind = {type(value) for value in table[target]}
    assert found["y"].dtype == (np.int64 if kind is int else np.float32)
    assert found["y"].tolist() == table[target]
    assert found["x"].dtype == np.float32
    inputs = [table[name] for name in table if name != target]
    expected = np.array(inputs, np.float64).T.astype(np.float32)
    assert found["x"].tolist() == expected.tolist()


@in_one_folder
@given(table=tables(), quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
def test_a_csv_file_comes_back_value_for_value(
    tmp_path: Path, table: dict[str, list[Any]], quoting: Any
) -> None:
    path = tmp_path / "table.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=quoting)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))
    check_against(table, arrays_of(path), list(table)[-1])
    first = next(iter(table))
    check_against(table, arrays_of(path, target=first), first)


@in_one_folder
@given(table=tables())
def test_a_parquet_file_comes_back_value_for_value(
    tmp_path: Path, table: dict[str, list[Any]]
) -> None:
    path = write_parquet(tmp_path / "table.parquet", table)
    for target in (None, next(iter(table))):
        found = arrays_of(path, target=target)
        check_against(table, found, target or list(table)[-1])


def test_columns_can_be_chosen_and_others_may_hold_text(tmp_path: Path) -> None:
    text = 'name,price,"rooms",size\n"A, the\nfirst",10.5,3,70\nB,20,4,90\n'
    path = write(tmp_path / "houses.csv", text)
    found = arrays_of(path, target="price", features=["size", "rooms"])
    assert found["x"].tolist() == [[70, 3], [90, 4]]
    assert found["y"].tolist() == [10.5, 20]


def test_columns_of_parquet_can_be_chosen_too(tmp_path: Path) -> None:
    columns = {"name": ["A", "B"], "size": [70, 90], "rooms": [3, 4], "price": [1, 2]}
    path = write_parquet(tmp_path / "houses.parquet", columns)
    assert arrays_of(path, features=["size"])["x"].tolist() == [[70], [90]]


def test_files_as_other_programs_write_them(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "\ufeffa, b ,c\r\n1, 2,3\r\n\r\n4,5 ,-6\r\n\r\n")
    found = arrays_of(path, target="b")
    assert found["x"].tolist() == [[1, 3], [4, -6]]
    assert found["y"].tolist() == [2, 5]
    numbered = write(tmp_path / "numbered.csv", "0,1\n5,6\n")  # by pandas
    assert arrays_of(numbered)["x"].tolist() == [[5]]
    loud = write(tmp_path / "LOUD.CSV", "a,b\n5,6\n")
    assert arrays_of(loud)["y"].tolist() == [6]


def test_a_target_with_one_fraction_is_float_throughout(tmp_path: Path) -> None:
    rows = ["1,2"] * PART_ROWS + ["1,2.5"]
    y = arrays_of(write(tmp_path / "a.csv", "a,b\n" + "\n".join(rows)))["y"]
    assert y.dtype == np.float32
    assert y[:2].tolist() == [2, 2]
    assert y[-1] == 2.5


def test_a_long_table_may_turn_to_quotation_marks_midway(tmp_path: Path) -> None:
    rows = [f"{n},{2 * n}" for n in range(PART_ROWS + 10)]
    rows[PART_ROWS + 3] = f'"{PART_ROWS + 3}","{2 * (PART_ROWS + 3)}"'
    found = arrays_of(write(tmp_path / "a.csv", "a,b\n" + "\n".join(rows)))
    assert found["x"][:, 0].tolist() == list(range(PART_ROWS + 10))
    assert found["y"].tolist() == list(range(0, 2 * (PART_ROWS + 10), 2))


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ("1,2,3\n4,,6", 'line 3, column "b" is empty: fill in the missing value, or'),
        ("1,2,3\n\n\n4, ,6", 'line 5, column "b" is empty: fill in the missing value'),
        ("1,NaN,3", 'line 2, column "b" is NaN: fill in the missing value'),
        ("1,2,3\n4,5,", 'line 3, column "c" is empty'),
        ("1,2,3\n4,red,6", "line 3, column \"b\" holds 'red': give a number, or leave"),
        ('"1\n",2,3\n4,"5,5",6', "line 4, column \"b\" holds '5,5': give a number"),
        ("1,2,3\n4,5", "line 3 has 2 cells for 3 columns: give one for each"),
        ("1,2,3\n4,5,6,7", "line 3 has 4 cells for 3 columns: give one for each"),
        ("1,2,3,4", "line 2 has 4 cells for 3 columns"),
        ("1e300,2,3", 'line 2, column "a" is 1e300, beyond what float32 can hold: sc'),
        ("1,2,-inf", 'line 2, column "c" is -inf, beyond what float32 can hold'),
        ('1,2,3\n4,"5,6', "line 3: unexpected end of data: is a quotation mark miss"),
        ('1,2,3\n4,"5"5,6', "line 3: .* is a quotation mark missing"),
        ("", " has no row below the names of its columns: add some"),
        ("\n\n", " has no row below the names of its columns: add some"),
    ],
)
def test_a_fault_is_told_with_line_and_column(
    tmp_path: Path, rows: str, fault: str
) -> None:
    path = write(tmp_path / "a.csv", f"a,b,c\n{rows}\n" if rows else "a,b,c")
    with pytest.raises(DataError, match=rf"a\.csv,? ?{fault}"):
        read(path)


def test_the_line_of_a_fault_is_right_far_into_a_file(tmp_path: Path) -> None:
    rows = ["1,2"] * (2 * PART_ROWS)
    rows[PART_ROWS + 6] = "1,x"
    path = write(tmp_path / "a.csv", "a,b\n" + "\n".join(rows))
    assert f"line {PART_ROWS + 8}, column \"b\" holds 'x'" in refused(path)


@pytest.mark.parametrize(
    ("header", "fault"),
    [
        ("", "a.csv is empty: give names of columns, then rows of numbers"),
        ("1,2,3\n", "a.csv, line 1 holds numbers: begin with a line that names"),
        ("a;b;c\n1;2;3\n", "line 1: 'a;b;c' has no commas: separate columns by commas"),
        ("a,b,a\n1,2,3\n", "its columns are named ['a', 'b', 'a']: give each a name"),
        ("a,,c\n1,2,3\n", "its columns are named ['a', '', 'c']: give each a name of"),
        ("a\n1\n", "a.csv has no column beside the target 'a': give the inputs too"),
    ],
)
def test_columns_need_names(tmp_path: Path, header: str, fault: str) -> None:
    assert fault in refused(write(tmp_path / "a.csv", header))


def test_a_column_that_is_not_there_is_named_with_the_nearest(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "price,rooms\n1,2\n")
    with pytest.raises(ConfigError, match=r"unknown column of .*'prise': did you mean"):
        read(path, target="prise")
    with pytest.raises(ConfigError, match=r"unknown column of .*'room': did you mean"):
        read(path, features=["room"])
    with pytest.raises(ConfigError, match="one is named twice"):
        read(path, target="price", features=["price", "rooms"])
    with pytest.raises(DataError, match="has no column beside the target"):
        read(path, target="price", features=[])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_another_table_is_read_alike_whatever_the_order_of_its_columns(
    tmp_path: Path, suffix: str
) -> None:
    train, test = tmp_path / f"train{suffix}", tmp_path / f"test{suffix}"
    if suffix == ".csv":
        write(train, "a,b,c\n1,2,3\n")
        write(test, "c,a,b\n3,1,2\n")
    else:
        write_parquet(train, {"a": [1], "b": [2], "c": [3]})
        write_parquet(test, {"c": [3], "a": [1], "b": [2]})
    used = columns(train)
    assert used is not None
    assert (used.features, used.target) == (["a", "b"], "c")
    found = arrays_of(test, target=used.target, features=used.features)
    assert found["x"].tolist() == [[1, 2]]
    assert found["y"].tolist() == [3]
    assert columns(tmp_path) is None


def test_a_line_that_is_no_utf_8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,b\n1,2\n" * 1 + b"3,4\n" * 5000 + b"5,\xe4\n")
    assert "a.csv, line 5003 is not UTF-8: save the file as UTF-8" in refused(path)


@in_one_folder
@given(content=st.binary(max_size=60) | st.text("ab12.,;\"'\n\r \0").map(str.encode))
def test_whatever_a_csv_file_holds_only_data_errors_are_raised(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    assert "\n" not in fault(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ({"a": [1.0, None], "b": [1, 2]}, 'row 2, column "a" is empty: fill in the'),
        ({"a": [1, 2], "b": [1, None]}, 'row 2, column "b" is empty: fill in the mis'),
        ({"a": [1.0, float("nan")], "b": [1, 2]}, 'row 2, column "a" is nan: fill in'),
        ({"a": [1.0, 1e300], "b": [1, 2]}, 'row 2, column "a" is 1e+300, beyond what'),
        ({"a": ["x", "y"], "b": [1, 2]}, 'column "a" is of type string: give numbers'),
        ({"a": [[1], [2]], "b": [1, 2]}, 'column "a" is of type list<'),
        ({"a": [1], "b": [2**64 - 1]}, "cannot be read: Integer value 18446"),
        ({"a": [1]}, "has no column beside the target 'a'"),
    ],
)
def test_a_fault_in_parquet_is_told_with_row_and_column(
    tmp_path: Path, columns: dict[str, list[Any]], fault: str
) -> None:
    made = {name: np.array(c) if c == [2**64 - 1] else c for name, c in columns.items()}
    assert fault in refused(write_parquet(tmp_path / "a.parquet", made))


def test_an_empty_parquet_file_is_refused(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", dict.fromkeys("ab", np.zeros(0)))
    assert "a.parquet has no rows: add some" in refused(path)


def test_rows_of_parquet_count_over_its_batches(tmp_path: Path) -> None:
    values: list[float | None] = [1.0] * 200_000
    values[150_000] = None
    columns = {"a": values, "b": range(200_000)}
    path = write_parquet(tmp_path / "a.parquet", columns, row_group_size=70_000)
    assert 'row 150001, column "a" is empty' in refused(path)


def test_true_and_false_are_one_and_zero(tmp_path: Path) -> None:
    columns = {"a": [True, False], "b": [False, True]}
    found = arrays_of(write_parquet(tmp_path / "a.parquet", columns))
    assert found["x"].tolist() == [[1.0], [0.0]]
    assert found["y"].tolist() == [0, 1]
    assert found["y"].dtype == np.int64


def test_a_parquet_file_cut_short_is_refused(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", {"a": [1, 2], "b": [1, 2]})
    for length in range(0, path.stat().st_size, 7)[::-1]:
        os.truncate(path, length)
        assert "a.parquet cannot be read: " in refused(path)


def test_without_pyarrow_the_command_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = write(tmp_path / "a.parquet", "")
    with pytest.raises(ConfigError, match=r"pip install 'melisma\[parquet\]'"):
        read(path)


def test_a_label_out_of_range_is_told_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'name,a,b\n"two\nlines",1,2\n\nc,1,3\n')
    y = arrays_of(path, features=["a"])["y"]
    with pytest.raises(
        DataError, match=r"a\.csv, line 5: y is class 3: give classes from 0 to 2"
    ):
        check_labels(y, 3, path)


def test_a_label_out_of_range_is_told_with_its_row(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    with pytest.raises(DataError, match=r"a\.parquet, row 2: y is class 9"):
        check_labels(np.array([0, 9]), 3, path)
