"""`cenote world`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

Count = Annotated[
    int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: the preset's)")
]
Share = Annotated[
    float | None, tyro.conf.arg(metavar="0..1", help_behavior_hint="(default: the preset's)")
]
Names = Annotated[
    tuple[str, ...], tyro.conf.arg(metavar="NAME...", help_behavior_hint="(default: the preset's)")
]


def run(
    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")],
    preset: Literal["tiny", "small", "hard", "retrieval", "collage", "domains"] = "small",
    images: Count = None,
    size: Count = None,
    seed: int = 0,
    classes: Names = (),
    labels: Literal["preset", "classes", "subclasses", "unseen"] = "preset",
    scenes: Names = (),
    domain: Names = (),
    bias: Share = None,
    test_bias: Share = None,
    distractors: Count = None,
    occlusion: Share = None,
    variants: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    jobs: Annotated[
        int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: all cores)")
    ] = None,
) -> None:
    """Draw a synthetic data set with ground truth: classes, boxes, masks, domains, captions.

    Writes OUT/images, OUT/masks, annotations.jsonl, classes.txt, world.json and a contact sheet,
    sheet.png. An interrupted command resumes; with more images, it draws those that are missing.

    Args:
        out: the folder to write.
        preset: the initial settings. tiny: 96 images of 64 pixels; small: 4000, all classes; hard:
            subclasses, small and partly occluded, in a home scene in train and anywhere in test;
            retrieval: unseen subclasses in test; collage: one tile of the class and three of
            shared classes; domains: six domains.
        images: the number of images.
        size: the side of an image in pixels.
        seed: the seed of all random numbers.
        classes: names of classes, or a number: the first N.
        labels: classes (bird), subclasses (bird/crested), or subclasses that differ between train
            and test.
        scenes: names of scenes, or a number: the first N.
        domain: photo, cartoon, sketch, sepia, dim, mosaic; each image has one of those named.
        bias: train and val: the share of images in the home scene of their label, beyond chance.
        test_bias: the same for the test split.
        distractors: the largest number of objects that belong to no class.
        occlusion: the share of objects that are partly hidden.
        variants: also draw the test split with the eight backgrounds of ImageNet-9, in
            OUT/backgrounds.
        jobs: the number of processes.
    """
    from ..data import open_dataset
    from ..data.synthetic import World, write_world
    from ..report.dataset_sheet import write_contents

    numbers = {"images": images, "size": size, "seed": seed, "distractors": distractors}
    shares = {"bias": bias, "test_bias": test_bias, "occlusion": occlusion}
    names = {"classes": classes, "scenes": scenes, "domains": domain}
    settings: Mapping[str, Any] = {**numbers, **shares, **names}
    changes = {name: value for name, value in settings.items() if value not in (None, ())}
    if labels != "preset":
        changes |= {"fine": labels != "classes", "unseen": labels == "unseen"}
    world = World.preset(preset, **changes)
    write_world(world, out, jobs)
    write_contents(open_dataset(out), out / "sheet.png")
    annotations = f"{out / 'annotations.jsonl'}, {out / 'sheet.png'}"
    print(f"{len(world)} images of {len(world.labels)} classes: {annotations}")
    if variants:
        from ..data.backgrounds import VARIANTS, write_variants

        for message in write_variants(open_dataset(out, "test"), out / "backgrounds", seed):
            print(f"skipped: {message}")
        print(f"the test split with {len(VARIANTS)} backgrounds: {out / 'backgrounds'}")
