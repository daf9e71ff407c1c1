import numpy as np
from matplotlib.figure import Figure

from melisma.views import plots


def test_a_scheme_that_is_not_ours_is_drawn_too() -> None:
    ax = Figure().subplots()
    line = np.array([1.0, 2.0])
    plots.curves(ax, [plots.Line("my_schemes:fastest", line, line, 0.1 * line)])
    assert [line.get_color() for line in ax.get_lines()] == [
        plots.look("my_schemes:fastest").colour
    ]
    assert [line.get_text() for line in ax.texts] == ["my_schemes:fastest"]


def test_labels_stand_apart_beside_the_axis_whatever_its_scale() -> None:
    for scale in ("linear", "log"):
        figure = Figure()
        ax = figure.subplots()
        ax.set_yscale(scale)
        ax.set_ylim(1e-3, 10.0)
        ends = [("a", "#000", 5e-3), ("b", "#000", 5e-3), ("c", "#000", 99.0)]
        plots.label_ends(ax, ends)
        a, b, c = (text.xy[1] for text in ax.texts)  # type: ignore[attr-defined]
        assert b - a + 1e-9 >= 0.06
        assert -0.1 < a < b < c < 1.1
        # Half way between its ends, a logarithmic axis is at 0.1.
        assert (a + b) / 2 < (0.1 if scale == "linear" else 0.3)


def test_a_band_is_drawn_where_it_is_known() -> None:
    half = np.array([np.nan, 1.0, 1.0])
    figure = Figure()
    ax = figure.subplots()
    plots.curves(ax, [plots.Line("csa", np.arange(3.0), np.ones(3), half)])
    (band,) = ax.collections
    assert band.get_paths()[0].get_extents().x0 == 1.0
