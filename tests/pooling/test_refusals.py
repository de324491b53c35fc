"""Wrong input is refused with a message that names the value, before an operation of torch fails on
it.
"""

import re

import pytest
import torch

from cenote.pooling import OnMap, create_pool, list_pools
from cenote.pooling.registry import ORDER

X = torch.randn(2, 12, 8)


@pytest.mark.parametrize(
    ("x", "named"),
    [
        (torch.zeros(2, 8, 3, 4), r"\(2, 8, 3, 4\).*on_map"),
        (torch.zeros(12, 8), r"\(12, 8\)"),
        (torch.zeros(2, 12, 9), r"dim=8\b.*\b9\b"),
        (torch.zeros(2, 8, 12), r"dim=8\b.*\b12\b.*on_map"),
        (torch.zeros(2, 0, 8), r"\b1\b.*\b0\b"),
        (torch.zeros(2, 12, 8).long(), r"torch\.int64"),
        (torch.zeros(2, 12, 8).double(), r"torch\.float32.*torch\.float64.*to\(torch\.float64\)"),
    ],
)
def test_features(x, named):
    with pytest.raises(ValueError, match=f"'simpool'.*{named}"):
        create_pool("simpool", 8)(x)


@pytest.mark.parametrize("grid", [12, (3, 4, 1), (3.0, 4.0), (-3, -4), "3x4", (12,)])
def test_a_grid_is_two_numbers(grid):
    with pytest.raises(ValueError, match=f"grid.*{re.escape(repr(grid))}"):
        create_pool("gap", 8)(X, grid)


def test_a_grid_that_does_not_fit():
    with pytest.raises(ValueError, match=r"\b12\b.*3x5\b.*\b15\b"):
        create_pool("gap", 8)(X, (3, 5))
    for grid in ([3, 4], torch.Size([3, 4])):
        assert create_pool("simpool", 8).attend(X, grid)[1].shape == (2, 1, 3, 4)


def test_what_is_no_tensor():
    with pytest.raises(TypeError, match=r"'gap'.*ndarray"):
        create_pool("gap", 8)(X.numpy())
    with pytest.raises(ValueError, match=r"\blist\b"):
        OnMap(create_pool("gap", 8))([X])


def test_nan_is_refused_where_asked():
    x = X.clone()
    x[1, 3, 2] = torch.nan
    with pytest.raises(ValueError, match=r"'gap'.*\[1\]"):
        create_pool("gap", 8, check_finite=True)(x)


def test_names():
    with pytest.raises(ValueError, match=r"'simpol'.*'simpool'"):
        create_pool("simpol", 8)
    with pytest.raises(ValueError, match=r"'simpool'.*'gama'.*'gamma'.*gamma, "):
        create_pool("simpool", 8, gama=2)
    for name in (
        "gap",
        "max",
        "glsep",
    ):  # one vector as wide as the features, and nothing to choose
        with pytest.raises(ValueError, match=f"'{name}'.*'k'"):
            create_pool(name, 8, k=3)


BAD = [
    *[("gap", {}, dim) for dim in (0, -1, 8.0, "8", None)],
    *[("gem", {"gamma": gamma}, 8) for gamma in (0, -1, float("nan"), "2")],
    *[(name, {"iterations": 0}, 8) for name in ("kmeans", "otk", "slot", "simpool")],
    *[(name, {"reduction": 0}, 8) for name in ("se", "cbam", "ge", "solar")],
    *[(name, {"hidden": 0}, 8) for name in ("delf", "gsop", "abmilp")],
    *[(name, {"out_dim": 0}, 8) for name in ("how", "smk", "ep", "clip")],
    ("otk", {"eps": 0}, 8),
    ("otk", {"anchors": 0}, 8),
    ("otk", {"sigma": -1}, 8),
    ("crow", {"b": 0}, 8),
    ("netvlad", {"alpha": 0}, 8),
    ("aim", {"queries": 0}, 8),
    ("gsp", {"prototypes": 2.5}, 8),
    ("simpool", {"heads": 0}, 8),
    ("simpool", {"layers": 0}, 8),
    ("simpool", {"gamma": float("nan")}, 8),
    ("ge", {"grid": 7}, 8),
    ("clip", {"pos_grid": 7}, 8),
    ("vit", {"depth": 0}, 8),
]


@pytest.mark.parametrize(("name", "options", "dim"), BAD)
def test_options_out_of_range(name, options, dim):
    option, value = next(iter(options.items()), ("dim", dim))
    with pytest.raises(ValueError, match=rf"'{name}'.*{option}\b.*{re.escape(repr(value))}"):
        create_pool(name, dim, **options)


def test_an_mlp_without_hidden_channels():
    with pytest.raises(ValueError, match=r"mlp_ratio=0\.1\b.*dim=8\b"):
        create_pool("map", 8, mlp_ratio=0.1)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gem", {"gamma": 3}),
        ("lse", {"r": 10}),
        ("solar", {"gamma": 3}),
        ("cait", {"layer_scale": 1}),
    ],
)
def test_a_whole_number_is_a_number(name, options):
    exact = {key: float(value) for key, value in options.items()}
    assert {p.dtype for p in create_pool(name, 8, **options).parameters()} == {torch.float32}
    torch.manual_seed(0)
    u = create_pool(name, 8, **options).eval()(X)
    torch.manual_seed(0)
    torch.testing.assert_close(u, create_pool(name, 8, **exact).eval()(X))


def test_pools_stand_in_the_order_of_the_table():
    assert list_pools() == [name for name in ORDER.split() if name != "|"]
