"""Records as they come, into columns."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from .columns import CategoriesBuilder, StringsBuilder, natural
from .dataset import Dataset
from .masks import MaskCodes
from .record import SPLITS, Problem, Record

MOST_PROBLEMS = 1000  # sentences kept; more are counted


def pack(
    records: Iterable[Record | Problem],
    root: Path,
    name: str,
    classes: list[str] | None = None,
    mask_codes: MaskCodes = "object",
    class_order: Callable[[str], Any] = natural,
) -> Dataset:
    """The records in columns; nothing else of them is kept.

    `classes` fixes the classes and their order, and may name some that no image has; else `class_order` sorts them.
    """
    packing = _Packing()
    for record in records:
        packing.add(record)
    found = {*packing.names["label"].index, *packing.box_labels.index}
    if classes is None:
        classes = sorted(found, key=class_order)
    elif strangers := sorted(found.difference(classes)):
        raise ValueError(
            f"{name}: classes that are not in its list of {len(classes)}: {', '.join(strangers[:5])}"
        )
    dataset = Dataset(packing.columns(classes), root, name, classes)
    dataset.mask_codes, dataset.problems = mask_codes, packing.problems
    if packing.unheard:
        dataset.problems.append(f"and {packing.unheard} more")
    return dataset


class _Packing:
    def __init__(self) -> None:
        self.rows = 0
        self.strings = {key: StringsBuilder() for key in ("image", "masks", "ignore", "caption")}
        self.names = {key: CategoriesBuilder() for key in ("label", "split", "domain")}
        self.attributes: defaultdict[str, CategoriesBuilder] = defaultdict(CategoriesBuilder)
        self.box_rows, self.corners, self.flags = array("q"), array("d"), array("B")
        self.box_labels = CategoriesBuilder()
        self.problems: list[str] = []
        self.unheard = 0

    def add(self, record: Record | Problem) -> None:
        if isinstance(record, Problem):
            if len(self.problems) < MOST_PROBLEMS:
                self.problems.append(record.sentence)
            else:
                self.unheard += 1
            return
        image, label, split, boxes, masks, ignore, domain, attributes, caption = record
        row = self.rows
        self.rows += 1
        self.strings["image"].put(row, image)
        if label is not None:
            self.names["label"].put(row, label)
        if split is not None:
            self.names["split"].put(row, SPLITS.get(split.lower(), split))
        if domain is not None:
            self.names["domain"].put(row, domain)
        if masks:
            self.strings["masks"].put(row, "\n".join(masks))
        if ignore is not None:
            self.strings["ignore"].put(row, ignore)
        if caption is not None:
            self.strings["caption"].put(row, caption)
        for key, value in attributes.items():
            self.attributes[key].put(row, value)
        for box in boxes:
            if box.label is not None:
                self.box_labels.put(len(self.flags), box.label)
            self.box_rows.append(row)
            self.corners.extend(box[:4])
            self.flags.append(box.difficult | box.truncated << 1 | box.crowd << 2)

    def columns(self, classes: list[str]) -> dict[str, Any]:
        """What `Dataset` reads its records from."""
        names = {
            key: column.build(self.rows) for key, column in self.names.items() if key != "label"
        }
        boxes = None
        if self.flags:
            ends = np.bincount(np.array(self.box_rows), minlength=self.rows).cumsum()
            corners = np.array(self.corners).reshape(-1, 4)
            boxes = (
                ends,
                corners,
                self.box_labels.build(len(self.flags), classes),
                np.array(self.flags, np.uint8),
            )
        return {
            **{key: column.build(self.rows) for key, column in self.strings.items()},
            **names,
            "label": self.names["label"].build(self.rows, classes),
            "attributes": {key: column.build(self.rows) for key, column in self.attributes.items()},
            "boxes": boxes,
        }
