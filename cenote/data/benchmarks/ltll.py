"""LTLL, location recognition over large time lags: 25 places in new and old photographs."""

from __future__ import annotations

from pathlib import Path

from ..checks import check_layout
from ..dataset import Dataset, pack
from ..record import Record
from .parsing import FREEDOM, FULL, folders, images, layout_error, read_domain_lists
from .registry import benchmark


@benchmark(
    "ltll",
    "LTLL, domain conversion: every image is a query and in the database",
    "New/images/TajMahal/*.jpg\nOld/images/TajMahal/*.jpg\n"
    "full_files.csv (optional: the images to take)",
    f"users.cecs.anu.edu.au/~basura/beeldcanon (LTLL.zip); list: {FREEDOM}",
)
def read_ltll(root: Path) -> Dataset:
    check_layout(root, "LTLL", "New/images/", "Old/images/")
    if (root / "full_files.csv").is_file():
        return read_domain_lists(root, "ltll", "LTLL", FULL)
    records = (
        # The archive has spaces in some names; FreeDom's list has none.
        Record(f"{domain}/images/{place}/{image}", place.replace(" ", ""), domain=domain)
        for domain in ("New", "Old")
        for place in folders(root / domain / "images")
        for image in images(root / domain / "images" / place)
    )
    dataset = pack(records, root, "ltll")
    if not len(dataset):
        raise layout_error(root / "New" / "images", "LTLL's", "folders of places such as TajMahal/")
    return dataset
