"""Traces of measured costs: what is written is read, and nothing else."""

from pathlib import Path

import numpy as np
import pytest

from melisma.errors import ConfigError
from melisma.fog.links import Links
from melisma.fog.topologies import full, random_graph
from melisma.fog.traces import HEADER, Trace, read, series, write

#: A slot of two devices.
SLOT = "{0},0,0,0.5\n{0},0,1,0.25\n{0},1,0,0.125\n{0},1,1,1\n"


def drawn(slots: int, devices: int, seed: int = 0) -> Trace:
    rng = np.random.default_rng(seed)
    shape = (slots, devices, devices)
    return Trace(sample_s=np.exp(rng.normal(-4.0, 2.0, shape)), notes=("of", "a test"))


def written(folder: Path, text: str) -> Path:
    (folder / "trace.csv").write_text(text, encoding="utf-8")
    return folder / "trace.csv"


@pytest.mark.parametrize(("slots", "devices"), [(1, 2), (3, 2), (7, 5)])
def test_what_is_written_is_read_to_the_last_digit(
    tmp_path: Path, slots: int, devices: int
) -> None:
    trace = drawn(slots, devices)
    write(tmp_path / "trace.csv", trace)
    again = read(tmp_path / "trace.csv")
    assert (again.sample_s == trace.sample_s).all()
    assert again.notes == trace.notes


def test_a_line_says_from_where_to_where(tmp_path: Path) -> None:
    trace = read(written(tmp_path, f"{HEADER}\n{SLOT.format(0)}"))
    assert trace.process_s(1).tolist() == [[0.5, 1.0]]
    assert trace.link_s(Links.of(2, 1, [0, 0], [0, 1], [1, 0])).tolist() == [
        0.25,
        0.125,
    ]


def test_lines_may_come_in_any_order(tmp_path: Path) -> None:
    rows = (SLOT.format(1) + SLOT.format(0)).splitlines(keepends=True)
    trace = read(written(tmp_path, HEADER + "\n" + "".join(reversed(rows))))
    assert (trace.sample_s[0] == [[0.5, 0.25], [0.125, 1.0]]).all()
    assert (trace.sample_s[1] == trace.sample_s[0]).all()


def test_other_systems_ends_of_lines_are_ends_of_lines(tmp_path: Path) -> None:
    text = f"\ufeff# of a spreadsheet\n{HEADER}\n{SLOT.format(0)}"
    (tmp_path / "trace.csv").write_bytes(text.replace("\n", "\r\n").encode())
    assert read(tmp_path / "trace.csv").notes == ("of a spreadsheet",)


def test_a_short_trace_repeats() -> None:
    trace = drawn(3, 4)
    links = random_graph(4, 8, 0.5, np.random.default_rng(1))
    for t in range(8):
        now = trace.sample_s[t % 3]
        assert trace.process_s(8)[t].tolist() == [now[i, i] for i in range(4)]
        at = links.slot == t
        assert (
            trace.link_s(links)[at] == now[links.source[at], links.target[at]]
        ).all()


def test_some_devices_of_a_trace_keep_their_costs() -> None:
    trace = drawn(3, 4)
    some = trace.only([3, 1])
    assert some.process_s(1).tolist() == [[trace.sample_s[0, k, k] for k in (3, 1)]]
    assert some.sample_s[2, 0, 1] == trace.sample_s[2, 3, 1]
    assert some.sample_s[2, 1, 0] == trace.sample_s[2, 1, 3]


def test_devices_that_were_not_measured_have_no_costs() -> None:
    with pytest.raises(ConfigError, match="a trace of 2 devices has no costs for 3"):
        drawn(1, 2).only(range(3))


def test_notes_are_one_line_each(tmp_path: Path) -> None:
    trace = Trace(sample_s=np.ones((1, 2, 2)), notes=("two\nlines\x1b[31m", "#3"))
    write(tmp_path / "trace.csv", trace)
    assert read(tmp_path / "trace.csv").notes == ("two lines [31m", "#3")


GOOD = f"# a note\n{HEADER}\n{SLOT.format(0)}{SLOT.format(1)}"


def test_a_file_that_was_cut_is_refused(tmp_path: Path) -> None:
    between = GOOD.index(SLOT.format(1))  # a shorter trace, and whole
    assert read(written(tmp_path, GOOD[:between])).slots == 1
    for cut in set(range(len(GOOD))) - {between}:
        with pytest.raises(ConfigError, match=r"trace\.csv"):
            read(written(tmp_path, GOOD[:cut]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"line 1: give the header {HEADER}"),
        ("slot,source,target,seconds\n", "line 1: give the header"),
        (f"{HEADER}\n", "there is no slot in it"),
        (f"{HEADER}\n0,0,0,1\n0,0,0,1\n", "line 3: slot 0, from 0 to 0 is there twice"),
        (f"{HEADER}\n0,0,0,1\n00,0,0,2\n", "line 3: slot 0.*twice"),
        (f"{HEADER}\n0,0,0,1\n2,0,0,1\n", "slot 1, from 0 to 0 is missing"),
        (f"{HEADER}\n0,0,0,1\n1,0,0,1\n", "there is one device in it: measure two"),
        (f"{HEADER}\n0,1,1,1\n", "slot 0, from 0 to 0 is missing, of 1 .* 2 devices"),
        (f"{HEADER}\n99999,99999,99999,1\n", "slot 0, from 0 to 0 is missing"),
        (f"{HEADER}\n0,0,0\n", "line 2: '0,0,0': give slot,source"),
        (f"{HEADER}\n0,0,0,1,1\n", "line 2: '0,0,0,1,1'"),
        (f"{HEADER}\n\n0,0,0,1\n", "line 2: ''"),
        (f"{HEADER}\n# late\n0,0,0,1\n", "line 2: '# late'"),
        (f"{HEADER}\n-1,0,0,1\n", "line 2: slot '-1': give a whole number"),
        (f"{HEADER}\n0,1.0,0,1\n", "line 2: source '1.0'"),
        (f"{HEADER}\n0,0,pi,1\n", "line 2: target 'pi'"),
        (f"{HEADER}\n0,0,٣,1\n", "line 2: target"),
        (f"{HEADER}\n{'9' * 5000},0,0,1\n", "line 2: slot '9+…'"),
        *(
            (f"{HEADER}\n0,0,0,{wrong}\n", "line 2: sample_s .*give seconds from 1e-09")
            for wrong in (
                "0",
                "0.0",
                "-1",
                "nan",
                "inf",
                "1e400",
                "1e-400",
                "1e7",
                "1_0",
                "=1",
                "",
            )
        ),
        (f"{HEADER}\n0,0,0,\x1b[2J\n", "line 2: sample_s ' .2J'"),
    ],
)
def test_what_is_no_trace_is_refused_by_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        read(written(tmp_path, text))
    assert "\n" not in str(refused.value)


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_bytes(b"\xff\xfe\x00slot")
    with pytest.raises(ConfigError, match="is no text"):
        read(tmp_path / "trace.csv")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no\.csv: No such file.*give a CSV file"):
        read(tmp_path / "no.csv")


@pytest.mark.parametrize(
    "sample_s",
    [
        np.ones((2, 3)),
        np.ones((1, 2, 3)),
        np.ones((0, 2, 2)),
        np.zeros((1, 2, 2)),
    ],
)
def test_a_table_that_is_no_trace_is_refused(sample_s: np.ndarray) -> None:
    with pytest.raises(ConfigError, match="sample_s"):
        Trace(sample_s=sample_s)


def test_every_link_of_a_full_fog_has_a_cost() -> None:
    assert (drawn(3, 4).link_s(full(4, 5)) > 0.0).all()


@pytest.mark.parametrize(("phi", "spread"), [(0.0, 0.5), (0.8, 0.2), (-0.5, 1.0)])
def test_a_series_shows_what_it_was_drawn_with(phi: float, spread: float) -> None:
    rng, logs = np.random.default_rng(0), np.zeros((5000, 4))
    for t in range(1, 5000):
        logs[t] = phi * logs[t - 1] + rng.normal(0.0, (1 - phi**2) ** 0.5, 4)
    levels = np.array([1.0, 10.0, 100.0, 1000.0])  # of columns: no spread of theirs
    found = series(levels * np.exp(spread * logs))
    assert found.spread == pytest.approx(spread, rel=0.1)
    assert found.autocorrelation == pytest.approx(phi, abs=0.05)
    assert found.mean == pytest.approx(1111 / 4 * np.exp(spread**2 / 2), rel=0.2)


def test_what_never_varies_has_no_autocorrelation() -> None:
    assert series(np.full((5, 2), 3.0)).autocorrelation is None
    assert series(np.full((1, 2), 3.0)).autocorrelation is None
