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
