"""Test sets for ImageNet models: ImageNet-9's backgrounds, ImageNet-A, ImageNet-C, ImageNet-R."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ..backgrounds import VARIANTS
from ..dataset import Dataset, pack
from ..record import Record
from .imagenet import class_names, wnids_in
from .parsing import folders, images
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


def read_imagenet_9(root: Path, variants: Sequence[str]) -> Dataset:
    """Read the variants that exist, each a domain; the class folders are such as 00_dog."""
    paths = [
        (variant, split, folder)
        for variant in variants
        for split in ("train", "val")
        for folder in folders(root / variant / split)
        if folder[:2].isdigit() and folder[2:3] == "_"
    ]
    records = (
        Record(f"{variant}/{split}/{folder}/{image}", folder[3:], split, domain=variant)
        for variant, split, folder in paths
        for image in images(root / variant / split / folder)
    )
    classes = [folder[3:] for folder in sorted({folder for _, _, folder in paths})]
    return pack(records, root, "ImageNet-9", classes)


benchmark(
    "imagenet-9",
    "ImageNet-9: all variants in the folder, each a domain",
    "\n".join(f"{variant}/val/00_dog/*.JPEG" for variant in VARIANTS),
    BACKGROUNDS,
    ["|".join(f"{variant}/" for variant in VARIANTS)],
    variants=VARIANTS,
)(read_imagenet_9)
for _variant in VARIANTS:
    _name = _variant.replace("_", "-")
    benchmark(
        f"imagenet-9-{_name}",
        f"ImageNet-9, {_name.title().replace('Fg', 'FG').replace('Bg', 'BG')} only",
        f"{_variant}/val/00_dog/*.JPEG",
        BACKGROUNDS,
        [f"{_variant}/"],
        variants=[_variant],
    )(read_imagenet_9)


@benchmark(
    "imagenet-a",
    "ImageNet-A: natural adversarial examples of 200 classes",
    "n01498041/*.jpg\nREADME.txt (optional: names)",
    "github.com/hendrycks/natural-adv-examples (imagenet-a.tar)",
    domains=False,
)
@benchmark(
    "imagenet-r",
    "ImageNet-R: renditions of 200 classes, the kind of rendition as domain",
    "n01443537/art_0.jpg\nREADME.txt (optional: names)",
    "github.com/hendrycks/imagenet-r (imagenet-r.tar)",
    domains=True,
)
def read_class_folders(root: Path, domains: bool) -> Dataset:
    """Read folders of classes; with `domains`, an image's name starts with its domain: art_0.jpg."""
    wnids, names = wnids_in(root), class_names(root)

    def record(wnid: str, image: str) -> Record:
        domain = image.rpartition("_")[0] if domains else ""
        path, label = f"{wnid}/{image}", names.get(wnid, wnid)
        return Record(path, label, "test", domain=domain or None, attributes={"wnid": wnid})

    records = (record(wnid, image) for wnid in wnids for image in images(root / wnid))
    return pack(records, root, "ImageNet", [names.get(wnid, wnid) for wnid in wnids])


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
    names = class_names(root)

    def records() -> Iterator[Record]:
        for path in paths:
            domain = path.rpartition("/")[2]
            for severity in SEVERITIES:
                for wnid in wnids_in(root / path / severity):
                    label, attributes = names.get(wnid, wnid), {"severity": severity, "wnid": wnid}
                    for image in images(root / path / severity / wnid):
                        file = f"{path}/{severity}/{wnid}/{image}"
                        yield Record(file, label, "test", domain=domain, attributes=attributes)

    return pack(records(), root, "imagenet-c", list(names.values()) or None)
