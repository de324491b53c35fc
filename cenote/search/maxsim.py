"""Rank results again by local vectors, and tell where they match: late interaction (MaxSim).

An index may store, beside the vector of an image, k local ones: the means of the network's last map
over the cells of a square grid. The score of a candidate is the mean over the cells of the query of
the largest cosine to a cell of the candidate (Khattab and Zaharia, ColBERT, 2020).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from ..models.image_text import LocalNetwork
from ..options import check_number
from ..predict.openvino_engine import run_frozen
from ..unit import unit

if TYPE_CHECKING:
    from ..models.image_text import ImageText
    from .store import Store

BLOCK = 256  # candidates at a time
Box = tuple[int, int, int, int]  # x0, y0, x1, y1 in pixels


class CellMatch(NamedTuple):
    """A cell of a query image, and the cell of the result that is most similar to it."""

    similarity: float
    image: int  # of the query, from 0
    query_cell: int
    cell: int
    query_box: Box
    box: Box


class LocalQuery(NamedTuple):
    """The local vectors of the images of a query."""

    vectors: Tensor  # (I, k, D)
    sizes: Sequence[tuple[int, int]]  # width and height of each image


def check_local(k: int) -> None:
    """Raise ValueError unless the cells of an image are a square."""
    check_number("--local", k, whole=True, least=1)
    if math.isqrt(k) ** 2 != k:
        raise ValueError(f"--local {k}: local vectors are a square grid, such as 4, 9 or 16")


def local_network(model: ImageText) -> LocalNetwork:
    """Return the model; raise ValueError if it has no features of positions."""
    if not isinstance(model, LocalNetwork):
        raise ValueError(
            f"'{model.name}' has no map of features: leave --local out, or use another model"
        )
    return model


@torch.inference_mode()
def describe_local(model: ImageText, k: int, device: torch.device) -> dict[str, int]:
    """Return number and width of the local vectors that an index of this model stores."""
    network = local_network(model)
    pixels = model.transform()(Image.new("RGB", (64, 64)))[None].to(device)
    _, maps = network.embed_local_output(network.local_network(pixels))
    dim, height, width = maps.shape[1:]
    side = min(height, width)
    if math.isqrt(k) > side:
        raise ValueError(
            f"--local {k}: the map of '{model.name}' has {height} x {width} positions: give at "
            f"most {side * side}"
        )
    return {"k": k, "dim": dim}


def embed_with_local(model: LocalNetwork, k: int, pixels: Tensor) -> Tensor:
    """Return the vector of each image and its k local ones in one row, (B, dim + k D)."""
    with torch.no_grad():
        output = run_frozen(model.local_network, pixels)
        vectors, maps = model.embed_local_output(output)
        return torch.cat([vectors, local_vectors(maps, k).flatten(1)], 1)


def local_vectors(maps: Tensor, k: int) -> Tensor:
    """Average maps (B, D, h, w) over the cells of a square grid -> (B, k, D) of length one."""
    cells = F.adaptive_avg_pool2d(maps.float(), math.isqrt(k))
    return unit(cells.flatten(2).transpose(1, 2))


def best_cells(query: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest cosine of each vector of `query` (Q, D) to one of `candidates` (N, k, D).

    Both results are (N, Q): the cosines, and the cells that reach them.
    """
    best = torch.einsum("qd,nkd->nqk", query, candidates).max(2)
    return best.values, best.indices


def maxsim(query: Tensor, rows: Tensor, store: Store) -> Tensor:
    """Return the scores of these rows of an index; only their local vectors are read."""
    scores = [query.new_empty(0)]
    for block in rows.split(BLOCK):
        candidates = stored_local(store, block)
        scores.append(best_cells(query, candidates)[0].mean(1))
    return torch.cat(scores)


def stored_local(store: Store, rows: Tensor) -> Tensor:
    """Return the local vectors (R, k, D) of rows; raise ValueError if the index has none."""
    local = store.local(rows)
    if local is None:
        raise ValueError(
            f"{store.where} stores no local vectors: `cenote index IMAGES -o NEW --local 16` makes "
            "an index that does"
        )
    return local


def cell_matches(
    query: LocalQuery, local: Tensor, size: tuple[int, int], model: LocalNetwork
) -> tuple[CellMatch, ...]:
    """Return the match of each cell of the query in an image with vectors (k, D), best first."""
    k = len(local)
    similarities, cells = (
        x[0].tolist() for x in best_cells(query.vectors.flatten(0, 1), local[None])
    )
    boxes = cell_boxes(k, size, model)
    query_boxes = [cell_boxes(k, query_size, model) for query_size in query.sizes]
    matches = []
    for i, (similarity, cell) in enumerate(zip(similarities, cells, strict=True)):
        image, query_cell = divmod(i, k)
        pair = query_boxes[image][query_cell], boxes[cell]
        matches.append(CellMatch(similarity, image, query_cell, cell, *pair))
    return tuple(sorted(matches, key=lambda match: -match.similarity))


def cell_boxes(k: int, size: tuple[int, int], model: LocalNetwork) -> list[Box]:
    """Return the cells of an image of this width and height, in reading order.

    Cells of padding, which some models of open_clip add, are empty.
    """
    width, height = size
    x0, y0, x1, y1 = model.visible_box(*size)
    side = math.isqrt(k)
    steps = [i / side for i in range(side + 1)]
    xs = [min(max(round(x0 + (x1 - x0) * step), 0), width) for step in steps]
    ys = [min(max(round(y0 + (y1 - y0) * step), 0), height) for step in steps]
    return [
        (xs[column], ys[row], xs[column + 1], ys[row + 1])
        for row in range(side)
        for column in range(side)
    ]
