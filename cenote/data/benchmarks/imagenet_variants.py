"""Test sets for models of ImageNet: ImageNet-9's backgrounds, ImageNet-A, ImageNet-C, ImageNet-R."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from ..dataset import Dataset, pack
from ..layout import check_layout
from ..record import Record
from .imagenet_truth import class_names, wnids_in
from .parsing import SOURCE as FREEDOM
from .parsing import WHOLE, folders, images, layout_error, read_domain_lists
from .registry import benchmark

VARIANTS = (
    "original",
    "only_fg",
    "mixed_same",
    "mixed_rand",
    "mixed_next",
    "no_fg",
    "only_bg_b",
    "only_bg_t",
)
BACKGROUNDS = (
    "github.com/MadryLab/backgrounds_challenge, release data (backgrounds_challenge_data.tar.gz)"
)
SEVERITIES = ("1", "2", "3", "4", "5")
CORRUPTIONS = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    "weather": ("snow", "frost", "fog", "brightness"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
    "extra": (
        "speckle_noise",
        "gaussian_blur",
        "spatter",
        "saturate",
    ),  # to choose settings on, not to report
}


@benchmark(
    "imagenet-9",
    "ImageNet-9: all variants that are there, each a domain",
    "\n".join(f"{variant}/val/00_dog/*.JPEG" for variant in VARIANTS),
    BACKGROUNDS,
)
def read_imagenet_9(root: Path) -> Dataset:
    check_layout(root, "ImageNet-9", "|".join(f"{variant}/" for variant in VARIANTS))
    return _read_9(
        root, "imagenet-9", [variant for variant in VARIANTS if (root / variant).is_dir()]
    )


def _read_variant(variant: str, root: Path) -> Dataset:
    check_layout(root, "ImageNet-9", f"{variant}/")
    return _read_9(root, f"imagenet-9-{variant.replace('_', '-')}", [variant])


for _variant in VARIANTS:
    _name, _tree = _variant.replace("_", "-"), f"{_variant}/val/00_dog/*.JPEG"
    _title = f"ImageNet-9, {_name.title().replace('Fg', 'FG').replace('Bg', 'BG')} only"
    benchmark(f"imagenet-9-{_name}", _title, _tree, BACKGROUNDS)(partial(_read_variant, _variant))


def _read_9(root: Path, name: str, variants: list[str]) -> Dataset:
    places = [f"{variant}/{split}" for variant in variants for split in ("train", "val")]
    numbered = sorted({folder for place in places for folder in _numbered(root / place)})
    if not numbered:
        raise layout_error(
            root / variants[0], "a variant of ImageNet-9", "class folders such as val/00_dog/"
        )
    return pack(_records_9(root, places), root, name, [folder[3:] for folder in numbered])


def _numbered(path: Path) -> list[str]:
    return [folder for folder in folders(path) if folder[:2].isdigit() and folder[2:3] == "_"]


def _records_9(root: Path, places: list[str]) -> Iterator[Record]:
    for place in places:
        variant, _, split = place.partition("/")
        for folder in _numbered(root / place):
            for image in images(root / place / folder):
                yield Record(f"{place}/{folder}/{image}", folder[3:], split, domain=variant)


@benchmark(
    "imagenet-a",
    "ImageNet-A: natural adversarial examples of 200 classes",
    "n01498041/*.jpg\nREADME.txt (if there: names)",
    "github.com/hendrycks/natural-adv-examples (imagenet-a.tar)",
)
def read_imagenet_a(root: Path) -> Dataset:
    return _read_folders(root, "imagenet-a", "ImageNet-A", "n01498041/", lambda image: None)


@benchmark(
    "imagenet-r",
    "ImageNet-R: renditions of 200 classes, the kind of rendition as domain",
    "n01443537/art_0.jpg\nREADME.txt (if there: names)",
    "github.com/hendrycks/imagenet-r (imagenet-r.tar)",
)
def read_imagenet_r(root: Path) -> Dataset:
    return _read_folders(
        root,
        "imagenet-r",
        "ImageNet-R",
        "n01443537/",
        lambda image: image.rpartition("_")[0] or None,
    )


@benchmark(
    "imagenet-r-conversion",
    "ImageNet-R and ImageNet photographs, domain conversion: every image is a query and in the database",
    "full_files.csv\nimagenet-r/n01443537/*.jpg\nreal/n01443537/*.JPEG",
    f"{FREEDOM}; ImageNet-R; ImageNet's validation images",
)
def read_imagenet_r_conversion(root: Path) -> Dataset:
    check_layout(root, "ImageNet-R for domain conversion", "imagenet-r/", "real/", "full_files.csv")
    return read_domain_lists(
        root, "imagenet-r-conversion", "ImageNet-R for domain conversion", WHOLE
    )


def _read_folders(
    root: Path, name: str, what: str, example: str, domain_of: Callable[[str], str | None]
) -> Dataset:
    wnids = wnids_in(folders(root))
    if not wnids:
        raise layout_error(root, what, f"class folders such as {example}")
    names = class_names(root)

    def records() -> Iterator[Record]:
        for wnid in wnids:
            for image in images(root / wnid):
                label, domain = names.get(wnid, wnid), domain_of(image)
                yield Record(
                    f"{wnid}/{image}", label, "test", domain=domain, attributes={"wnid": wnid}
                )

    return pack(records(), root, name, [names.get(wnid, wnid) for wnid in wnids])


@benchmark(
    "imagenet-c",
    "ImageNet-C: corruptions of the validation images, the corruption as domain and its severity as attribute",
    "gaussian_noise/1/n01440764/*.JPEG (or noise/gaussian_noise/1/...)\nLOC_synset_mapping.txt (if there: names)",
    "zenodo.org/record/2235448 (blur, digital, extra, noise, weather)",
)
def read_imagenet_c(root: Path) -> Dataset:
    pairs = [(group, name) for group, names in CORRUPTIONS.items() for name in names]
    places = [
        path
        for group, name in pairs
        for path in (name, f"{group}/{name}")
        if (root / path).is_dir()
    ]
    if not places:
        raise layout_error(
            root,
            "ImageNet-C",
            "folders of corruptions such as gaussian_noise/1/ or noise/gaussian_noise/1/",
        )
    names = class_names(root)
    return pack(_corrupted(root, places, names), root, "imagenet-c", list(names.values()) or None)


def _corrupted(root: Path, places: list[str], names: dict[str, str]) -> Iterator[Record]:
    for place in places:
        for severity in (folder for folder in folders(root / place) if folder in SEVERITIES):
            for wnid in wnids_in(folders(root / place / severity)):
                attributes = {"severity": severity, "wnid": wnid}
                for image in images(root / place / severity / wnid):
                    path, domain = f"{place}/{severity}/{wnid}/{image}", place.rpartition("/")[2]
                    yield Record(
                        path, names.get(wnid, wnid), "test", domain=domain, attributes=attributes
                    )
