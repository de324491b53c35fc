"""Synthetic images are functions of the settings and their number, and their annotations are correct."""

import hashlib
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image, ImageFilter

from cenote.data.synthetic import PRESETS, World
from cenote.data.synthetic.domains import DOMAINS
from cenote.data.synthetic.drawing import SyntheticImage, boxes_of, plan_shared_tile
from cenote.data.synthetic.paint import COLOURS
from cenote.data.synthetic.rng import PortableRng
from cenote.data.synthetic.scenes import SCENES
from cenote.data.synthetic.settings import home_scenes
from cenote.data.synthetic.shapes import SHAPES

SMALL = World.preset("small")
# Of the first images of each preset, in six domains. They change only with a preset, or with VERSION in generate.py.
PINNED = "ed2535388e2893b7"


def digest(drawn: SyntheticImage) -> str:
    parts = (drawn.pixels, drawn.mask, drawn.background)
    record = repr(drawn.record).replace(", labels=None", "")  # a field that is newer than PINNED
    content = b"".join(part.tobytes() for part in parts) + record.encode()
    return hashlib.sha256(content).hexdigest()[:16]


def some_digests() -> str:
    worlds = {name: World.preset(name) for name in PRESETS}
    found = [
        digest(world.draw(i, list(DOMAINS)[i]))
        for world in worlds.values()
        for i in range(len(DOMAINS))
    ]
    return hashlib.sha256("".join(found).encode()).hexdigest()[:16]


def test_the_pixels_are_those_of_every_machine() -> None:
    assert some_digests() == PINNED


def test_order_and_process_do_not_matter() -> None:
    forwards = [digest(World(size=64).draw(i)) for i in range(6)]
    backwards = [digest(World(size=64).draw(i)) for i in reversed(range(6))]
    assert forwards == backwards[::-1]
    code = "from tests.data.test_synthetic import *; print(digest(World(size=64).draw(5)))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == forwards[5]


def test_seeds_and_numbers_differ_and_the_number_of_images_does_not() -> None:
    assert (
        digest(World(size=64, seed=1).draw(0))
        != digest(World(size=64).draw(0))
        != digest(World(size=64).draw(1))
    )
    assert digest(World(images=5, size=64).draw(3)) == digest(World(images=500, size=64).draw(3))


@pytest.mark.parametrize("name", PRESETS)
def test_as_many_objects_as_the_record_says_each_in_its_box(name: str) -> None:
    world = World.preset(name)
    for i in range(40):
        drawn = world.draw(i)
        count = int(drawn.record.attributes["count"])
        assert set(np.unique(drawn.mask)) == {0, *range(1, count + 1)}
        assert len(drawn.record.boxes) == count
        for number, box in enumerate(drawn.record.boxes, 1):
            inside = drawn.mask[int(box.y1) : int(box.y2), int(box.x1) : int(box.x2)] == number
            assert inside.sum() == (drawn.mask == number).sum() >= 12
            assert (
                inside[0].any() and inside[-1].any() and inside[:, 0].any() and inside[:, -1].any()
            )


def test_boxes_of_a_mask_by_hand() -> None:
    mask = np.zeros((8, 10), np.uint8)
    mask[2:5, 3:9], mask[6, 0] = 1, 3
    assert [box[:4] for box in boxes_of(mask)] == [(3, 2, 9, 5), (0, 6, 1, 7)]
    assert boxes_of(np.zeros((4, 4), np.uint8)) == ()


@pytest.mark.parametrize("name", ["small", "hard", "collage"])
def test_the_background_is_the_image_without_the_objects(name: str) -> None:
    world = World.preset(name)
    for i in range(12):
        drawn = world.draw(i, domain="photo")
        differs = (drawn.pixels != drawn.background).any(-1)
        # An edge pixel that is covered by less than half belongs to nobody and differs all the same.
        near = (
            np.asarray(
                Image.fromarray((drawn.mask > 0).astype(np.uint8) * 255).filter(
                    ImageFilter.MaxFilter(5)
                )
            )
            > 0
        )
        assert not (differs & ~near).any()
        assert differs[drawn.mask > 0].mean() > 0.9


@pytest.mark.parametrize("scene", SCENES)
def test_every_scene_at_every_size_covers_the_canvas(scene: str) -> None:
    for size in (32, 50, 300):
        for density in ("sparse", "dense"):
            drawn = World(size=size).draw(0, scene=scene, density=density)
            assert drawn.pixels.shape == (size, size, 3)
            assert not (drawn.plain_background.max(-1) == 0).any()  # unpainted pixels are black


def test_a_domain_changes_the_picture_and_no_truth() -> None:
    for i in range(6):
        drawings = {domain: SMALL.draw(i, domain=domain) for domain in DOMAINS}
        assert len({d.pixels.tobytes() for d in drawings.values()}) == len(DOMAINS) == 6
        for domain, drawn in drawings.items():
            assert (drawn.mask == drawings["photo"].mask).all()
            assert drawn.record == drawings["photo"].record._replace(domain=domain)


def test_a_changed_attribute_keeps_the_rest() -> None:
    i = next(
        i for i in range(100) if SMALL.plan(i).colour == "red" and SMALL.plan(i).texture == "plain"
    )
    red, blue = SMALL.draw(i), SMALL.draw(i, colour="blue")
    assert (red.mask == blue.mask).all() and (red.background == blue.background).all()
    inside = red.mask > 0
    assert red.pixels[inside, 0].mean() > red.pixels[inside, 2].mean() + 20
    assert blue.pixels[inside, 2].mean() > blue.pixels[inside, 0].mean() + 20
    assert {
        k for k in red.record.attributes if red.record.attributes[k] != blue.record.attributes[k]
    } == {"colour"}
    assert "red" in (red.record.caption or "") and "blue" in (blue.record.caption or "")
    for count in "1234":
        assert len(SMALL.draw(i, count=count).record.boxes) == int(count)
    areas = [(SMALL.draw(i, size=size).mask > 0).sum() for size in ("small", "medium", "large")]
    assert all(a < b for a, b in pairwise(areas))
    assert (SMALL.draw(i, scene="room").mask == SMALL.draw(i, scene="sea").mask).all()


def test_enough_of_everything() -> None:
    assert len(SHAPES) >= 24 and len(SCENES) >= 8 and len(COLOURS) >= 8 and len(DOMAINS) == 6
    assert all(len(shape.subclasses) == 5 for shape in SHAPES.values())
    assert len({shape.outline("plain")[0].tobytes() for shape in SHAPES.values()}) == len(SHAPES)


@pytest.mark.parametrize("name", SHAPES)
def test_a_mark_is_a_small_part_that_can_be_seen(name: str) -> None:
    world = World(classes=(name,), distractors=0, bias=0)
    same = {
        "size": "large",
        "count": "1",
        "texture": "plain",
        "shape": "regular",
        "scene": "desert",
    }
    plain = world.draw(0, subclass="plain", **same)
    area = (plain.mask > 0).sum()
    for subclass in SHAPES[name].marks:
        marked = world.draw(0, subclass=subclass, **same).pixels.astype(int)
        changed = (abs(marked - plain.pixels).max(-1) > 8).sum()
        assert 0.01 * area < changed < 0.45 * area, f"{name}/{subclass}: {changed} of {area} pixels"


@pytest.mark.parametrize("bias", [0.0, 0.6, 1.0])
def test_the_scene_tells_the_class_as_often_as_asked(bias: float) -> None:
    world = World(images=8000, bias=bias, test_bias=0.0)
    homes = dict(zip(world.labels, home_scenes(world.settings), strict=True))
    plans = [world.plan(i) for i in range(len(world))]
    for split, amount in (("train", bias), ("val", bias), ("test", 0.0)):
        found = [plan.scene == homes[plan.label] for plan in plans if plan.split == split]
        expected = amount + (1 - amount) / len(SCENES)
        assert np.mean(found) == pytest.approx(expected, abs=4 * np.sqrt(0.25 / len(found)) + 1e-9)
    assert max(Counter(homes.values()).values()) - min(Counter(homes.values()).values()) <= 1


def test_attributes_say_nothing_about_the_class() -> None:
    """The share of each value is the same in every class, up to chance (chi-square per class, five sigma)."""
    plans = [SMALL.plan(i) for i in range(4000)]
    for key in ("colour", "texture", "shape", "density"):
        values = sorted({getattr(plan, key) for plan in plans})
        for label in SMALL.labels:
            counts = Counter(getattr(plan, key) for plan in plans if plan.label == label)
            expected = sum(counts.values()) / len(values)
            chi = sum((counts[value] - expected) ** 2 / expected for value in values)
            freedom = len(values) - 1
            assert chi < freedom + 5 * np.sqrt(2 * freedom) + 5


def test_splits_are_balanced() -> None:
    plans = [SMALL.plan(i) for i in range(len(SMALL.labels) * 20)]
    counts = Counter((plan.label, plan.split) for plan in plans)
    assert all(
        counts[label, split] == n
        for label in SMALL.labels
        for split, n in (("train", 14), ("val", 2), ("test", 4))
    )


def test_unseen_subclasses_and_collages_keep_them_apart() -> None:
    """Told and shared ones alike."""
    for name in ("retrieval", "collage"):
        world = World.preset(name)
        found: dict[tuple[str, str], set[str]] = {}
        for i in range(3000):
            plan = world.plan(i)
            assert plan.label == f"{plan.family}/{plan.subclass}"
            plans = (
                [plan]
                if name == "retrieval"
                else [plan, plan_shared_tile(world.settings, plan, PortableRng(i))]
            )
            for one in plans:
                found.setdefault((one.family, one.split), set()).add(one.subclass)
        for family in {family for family, _ in found}:
            train, val, test = (found[family, split] for split in ("train", "val", "test"))
            assert (len(train), len(val), len(test)) == (2, 1, 2)  # as 002 splits
            assert len(train | val | test) == 5
        assert len({family for family, _ in found}) == 20
    assert len(World.preset("collage").labels) == 16 * 5
    assert World.preset("hard").labels[1].count("/") == 1


def test_a_collage_has_its_class_in_one_tile_and_only_there() -> None:
    world = World.preset("collage", size=128)
    places = Counter()
    for i in range(40):
        drawn = world.draw(i)
        tiles = [(drawn.mask[y : y + 64, x : x + 64] > 0).any() for y in (0, 64) for x in (0, 64)]
        assert sum(tiles) == 1
        places[tiles.index(True)] += 1
    assert len(places) == 4


def test_captions_are_english() -> None:
    world = World(images=600)
    captions = [world.plan(i).caption for i in range(600)]
    assert any(c.startswith("two ") and " fish " in c for c in captions)
    for i, caption in enumerate(captions):
        plan = world.plan(i)
        assert plan.colour in caption.split() and SCENES[plan.scene][0] in caption
        assert caption.split()[0] in ("a", "an", "two", "three", "four")
        assert caption.startswith("an ") == (caption.split()[1][0] in "aeiou" and plan.count == "1")


@pytest.mark.parametrize(
    ("settings", "values"),
    [
        ({"images": 0}, r"images\b.*\b0\b"),
        ({"size": 7}, r"size\b.*\b32\b.*\b1024\b.*\b7\b"),
        ({"size": 65}, r"size\b.*\b65\b"),
        ({"bias": 1.5}, r"bias\b.*\b1\.5\b"),
        ({"classes": ("cat", "brid")}, "'brid'.*'bird'"),
        ({"classes": 99}, r"classes\b.*\b47\b.*\b99\b"),
        ({"classes": ("cat", "cat")}, "classes.*cat, cat"),
        ({"domains": ("foto",)}, "'foto'.*'photo'"),
        ({"counts": (1, 1)}, r"counts\b.*\b4\b.*\(1\.0, 1\.0\)"),
        ({"sizes": (0, 0, 0)}, r"sizes\b.*\b3\b.*\(0\.0, 0\.0, 0\.0\)"),
        ({"unseen": True}, "unseen.*fine"),
        ({"collage": True}, "collage.*unseen"),
        ({"collage": True, "fine": True, "unseen": True, "classes": 4}, r"\b4\b"),
    ],
)
def test_a_wrong_setting_is_refused(settings: dict, values: str) -> None:
    with pytest.raises(ValueError, match=values):
        World(**settings)


def test_a_wrong_question_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'smal'.*'small'"):
        World.preset("smal")
    with pytest.raises(ValueError, match=r"'oil'.*photo"):
        SMALL.draw(0, domain="oil")
    with pytest.raises(ValueError, match=r"'rot'.*red"):
        SMALL.draw(0, colour="rot")
    with pytest.raises(ValueError, match=r"'family'.*colour"):
        SMALL.draw(0, family="cat")
    with pytest.raises(IndexError, match=r"\b4000\b"):
        SMALL.draw(4000)
