"""The picture of GSP's synthetic tokens shows the hulls of the classes."""

import numpy as np
import pytest

from examples.gsp_tokens import Hulls, draw_hulls, hull


def test_hulls() -> None:
    square = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1], [0.5, 0.5], [0.2, 0.7]])
    assert sorted(hull(square).tolist()) == [0, 1, 2, 3]
    line = np.array([[0.0, 0], [3, 3], [1, 1], [2, 2]])
    assert sorted(hull(line).tolist()) == [0, 1]  # its ends
    assert sorted(hull(line[:2]).tolist()) == [0, 1] and set(hull(line[:1]).tolist()) == {0}
    tokens = np.array([[0.0, 0], [2, 2], [5, 5]])
    panel = Hulls(
        "GAP",
        np.concatenate([square, line + 3]),
        np.repeat([0, 1], [6, 4]),
        tokens,
        np.array([0, 1, -1]),
    )
    figure = draw_hulls([panel, panel._replace(title="GSP")])
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["GAP", "GSP"]
    corners = figure.axes[0].patches[0].get_path().vertices
    assert {tuple(corner) for corner in np.asarray(corners)} == {(0, 0), (1, 0), (1, 1), (0, 1)}
    background = figure.axes[0].lines[-1]
    assert (list(background.get_xdata()), list(background.get_ydata())) == ([5], [5])
    with pytest.raises(ValueError):
        draw_hulls([panel._replace(samples=np.zeros((4, 3)))])
