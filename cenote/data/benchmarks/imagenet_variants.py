"""Test sets for ImageNet models: ImageNet-9's backgrounds, ImageNet-A, ImageNet-C, ImageNet-R."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from ..backgrounds import VARIANTS
from ..checks import check_layout
from ..dataset import Dataset, pack
from ..record import Record
from .imagenet_metadata import class_names, wnids_in
from .parsing import FREEDOM, FULL, folders, images, layout_error, read_domain_lists
from .registry import benchmark

BACKGROUNDS = (
    "github.com/MadryLab/backgrounds_challenge, release data (backgrounds_challenge_data.tar.gz)"
)
SEVERITIES = ("1", "2", "3", "4", "5")
# The folders of ImageNet-C; those of `extra` are for selecting settings, not for reporting.
CORRUPTIONS = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    "weather": ("snow", "frost", "fog", "brightness"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
    "extra": ("speckle_noise", "gaussian_blur", "spatter", "saturate"),
}


@benchmark(
    "imagenet-9",
    "ImageNet-9: all variants in the folder, each a domain",
    "\n".join(f"{variant}/val/00_dog/*.JPEG" for variant in VARIANTS),
    BACKGROUNDS,
)
def read_imagenet_9(root: Path) -> Dataset:
    check_layout(root, "ImageNet-9", "|".join(f"{variant}/" for variant in VARIANTS))
    variants = [variant for variant in VARIANTS if (root / variant).is_dir()]
    return _read_variants(root, "imagenet-9", variants)


def _read_variant(variant: str, root: Path) -> Dataset:
    check_layout(root, "ImageNet-9", f"{variant}/")
    return _read_variants(root, f"imagenet-9-{variant.replace('_', '-')}", [variant])


for _variant in VARIANTS:
    _name, _tree = _variant.replace("_", "-"), f"{_variant}/val/00_dog/*.JPEG"
    _title = f"ImageNet-9, {_name.title().replace('Fg', 'FG').replace('Bg', 'BG')} only"
    benchmark(f"imagenet-9-{_name}", _title, _tree, BACKGROUNDS)(partial(_read_variant, _variant))


def _read_variants(root: Path, name: str, variants: list[str]) -> Dataset:
    paths = [f"{variant}/{split}" for variant in variants for split in ("train", "val")]
    numbered = sorted({folder for path in paths for folder in _numbered(root / path)})
    if not numbered:
        expected = "class folders such as val/00_dog/"
        raise layout_error(root / variants[0], "a variant of ImageNet-9", expected)

    def records() -> Iterator[Record]:
        for path in paths:
            variant, _, split = path.partition("/")
            for folder in _numbered(root / path):
                for image in images(root / path / folder):
                    yield Record(f"{path}/{folder}/{image}", folder[3:], split, domain=variant)

    return pack(records(), root, name, [folder[3:] for folder in numbered])


def _numbered(path: Path) -> list[str]:
    """Return the class folders, such as 00_dog."""
    return [folder for folder in folders(path) if folder[:2].isdigit() and folder[2:3] == "_"]


@benchmark(
    "imagenet-a",
    "ImageNet-A: natural adversarial examples of 200 classes",
    "n01498041/*.jpg\nREADME.txt (optional: names)",
    "github.com/hendrycks/natural-adv-examples (imagenet-a.tar)",
)
def read_imagenet_a(root: Path) -> Dataset:
    return _read_folders(root, "ImageNet-A", "n01498041/", lambda image: None)


@benchmark(
    "imagenet-r",
    "ImageNet-R: renditions of 200 classes, the kind of rendition as domain",
    "n01443537/art_0.jpg\nREADME.txt (optional: names)",
    "github.com/hendrycks/imagenet-r (imagenet-r.tar)",
)
def read_imagenet_r(root: Path) -> Dataset:
    return _read_folders(
        root, "ImageNet-R", "n01443537/", lambda image: image.rpartition("_")[0] or None
    )


@benchmark(
    "imagenet-r-conversion",
    "ImageNet-R and ImageNet photographs, domain conversion: every image is a query and in the "
    "database",
    "full_files.csv\nimagenet-r/n01443537/*.jpg\nreal/n01443537/*.JPEG",
    f"{FREEDOM}; ImageNet-R; ImageNet's validation images",
)
def read_imagenet_r_conversion(root: Path) -> Dataset:
    what = "ImageNet-R for domain conversion"
    check_layout(root, what, "imagenet-r/", "real/", "full_files.csv")
    return read_domain_lists(root, "imagenet-r-conversion", what, FULL)


def _read_folders(
    root: Path, what: str, example: str, domain_of: Callable[[str], str | None]
) -> Dataset:
    wnids = wnids_in(folders(root))
    if not wnids:
        raise layout_error(root, what, f"class folders such as {example}")
    names = class_names(root)
    records = (
        Record(
            f"{wnid}/{image}",
            names.get(wnid, wnid),
            "test",
            domain=domain_of(image),
            attributes={"wnid": wnid},
        )
        for wnid in wnids
        for image in images(root / wnid)
    )
    return pack(records, root, what.lower(), [names.get(wnid, wnid) for wnid in wnids])


@benchmark(
    "imagenet-c",
    "ImageNet-C: corruptions of the validation images, the corruption as domain and its severity as "
    "attribute",
    "gaussian_noise/1/n01440764/*.JPEG (or noise/gaussian_noise/1/...)\n"
    "LOC_synset_mapping.txt (optional: names)",
    "zenodo.org/record/2235448 (blur, digital, extra, noise, weather)",
)
def read_imagenet_c(root: Path) -> Dataset:
    paths = [
        path
        for group, corruptions in CORRUPTIONS.items()
        for corruption in corruptions
        for path in (corruption, f"{group}/{corruption}")
        if (root / path).is_dir()
    ]
    if not paths:
        expected = "folders of corruptions such as gaussian_noise/1/ or noise/gaussian_noise/1/"
        raise layout_error(root, "ImageNet-C", expected)
    names = class_names(root)

    def records() -> Iterator[Record]:
        for path in paths:
            domain = path.rpartition("/")[2]
            for severity in (name for name in folders(root / path) if name in SEVERITIES):
                for wnid in wnids_in(folders(root / path / severity)):
                    label, attributes = names.get(wnid, wnid), {"severity": severity, "wnid": wnid}
                    for image in images(root / path / severity / wnid):
                        file = f"{path}/{severity}/{wnid}/{image}"
                        yield Record(file, label, "test", domain=domain, attributes=attributes)

    return pack(records(), root, "imagenet-c", list(names.values()) or None)
