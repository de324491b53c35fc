from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

Whole = Annotated[
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
    images: Whole = None,
    size: Whole = None,
    seed: int = 0,
    classes: Names = (),
    labels: Literal["preset", "classes", "subclasses", "unseen"] = "preset",
    scenes: Names = (),
    domain: Names = (),
    bias: Share = None,
    test_bias: Share = None,
    distractors: Whole = None,
    occlusion: Share = None,
    variants: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    jobs: Annotated[
        int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: all cores)")
    ] = None,
) -> None:
    """Draw a data set with every truth known: classes, boxes, masks, domains, attributes, captions.

    Writes OUT/images, OUT/masks, annotations.jsonl, classes.txt, world.json and a contact sheet, sheet.png. Stopped,
    it goes on where it was; with more images, it draws those that are missing.

    Args:
        out: the folder to write.
        preset: where the settings start. tiny: 96 images of 64 pixels; small: 4000, all classes; hard: subclasses,
            small and partly hidden, in a home scene in train and anywhere in test; retrieval: test has unseen
            subclasses; collage: one tile of the class and three of shared classes; domains: six of them.
        images: how many.
        size: pixels of a side.
        seed: of everything.
        classes: their names, or a number: the first so many.
        labels: classes (bird), subclasses (bird/crested), or subclasses of which test has others than train.
        scenes: their names, or a number.
        domain: photo, cartoon, sketch, sepia, dim, mosaic; each image is in one of those named.
        bias: train and val: how often an image is in its label's home scene, beyond chance.
        test_bias: the same in the test split.
        distractors: at most so many objects that are no class.
        occlusion: the share of objects with something in front of them.
        variants: also draw the test split with the eight backgrounds of ImageNet-9, in OUT/backgrounds.
        jobs: processes.
    """
    from ..data.synthetic import World, write_world

    given: dict[str, Any] = {
        "images": images,
        "size": size,
        "seed": seed,
        "bias": bias,
        "test_bias": test_bias,
    }
    given |= {"distractors": distractors, "occlusion": occlusion}
    given |= {"classes": classes or None, "scenes": scenes or None, "domains": domain or None}
    if labels != "preset":
        given |= {"fine": labels != "classes", "unseen": labels == "unseen"}
    world = World.preset(
        preset, **{key: value for key, value in given.items() if value is not None}
    )
    write_world(world, out, jobs)
    print(
        f"{len(world)} images of {len(world.labels)} classes: {out / 'annotations.jsonl'}, {out / 'sheet.png'}"
    )
    if variants:
        from ..data import open_dataset
        from ..data.backgrounds import VARIANTS, write_variants

        for sentence in write_variants(open_dataset(out, "test"), out / "backgrounds", seed):
            print(f"left out: {sentence}")
        print(f"the test split with {len(VARIANTS)} backgrounds: {out / 'backgrounds'}")
